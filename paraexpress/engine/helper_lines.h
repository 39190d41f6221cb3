// A rank's dealings with the helpers beside an operation's messages: rank 0 tells them of operations, and each rank
// asks one that is silent for long whether it lives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "paraexpress/core/order.h"
#include "paraexpress/core/pulse.h"
#include "paraexpress/engine/mesh.h"

namespace clustar::paraexpress {

// Tags of small messages between ranks and helpers, beyond those of operations.
inline constexpr int kOrderTag = 0x7ffffff0, kAskTag = 0x7ffffff1, kAnswerTag = 0x7ffffff2;

// Helpers by their number from 0. Thread rule: that of the mesh's channels.
class HelperLines {
 public:
  HelperLines(Mesh& mesh, std::uint32_t ranks, std::uint32_t helpers) : mesh_(mesh), ranks_(ranks), lines_(helpers) {}

  Result<void> open();
  // An operation begins, or a message came from it or was taken by it.
  void heard(std::uint32_t helper);
  // Takes a moment's work of what is under way. `waits`: something is expected of it.
  void poll(std::uint32_t helper, bool waits);
  // Rank 0: to be sent, after the one before.
  void order(std::uint32_t helper, const Order& order);
  // Until all orders are sent, or for `limit`.
  void flush(Duration limit);
  // Its channels are closed, so that it ends too.
  void lose(std::uint32_t helper);
  bool lost(std::uint32_t helper) const { return lines_[helper].lost; }

 private:
  struct Line {
    bool lost = false;
    Pulse pulse{};
    OrderBytes order{};
    std::deque<OrderBytes> orders{};  // to be sent behind `order`
    bool to_order = false, to_ask = false;
    std::array<std::byte, 1> question{}, answer{};
    std::unique_ptr<Registered> order_mr{}, question_mr{}, answer_mr{};
    transport::Request *ordering = nullptr, *asking = nullptr, *answering = nullptr;
  };
  // What is sent: false if the channel failed.
  bool drive(Line& line, Member peer);
  bool send(Member peer, const Registered& mr, int tag, bool& to_send, transport::Request*& request);

  Mesh& mesh_;
  const std::uint32_t ranks_;
  std::vector<Line> lines_;
};

}  // namespace clustar::paraexpress
