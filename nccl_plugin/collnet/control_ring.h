// One control connection from each rank to the next: how the ranks of a collective network meet, and how each tells the
// next what it starts.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::nccl_plugin {

// What a rank starts, compared between neighbours.
struct Started {
  std::uint64_t number = 0;  // from 0
  std::uint32_t kind = 0;    // below
  std::uint16_t type = 0, reduction = 0;
  std::uint64_t bytes = 0, window_offset = 0, bytes_per_rank = 0;

  bool operator==(const Started&) const = default;

  enum Kind : std::uint32_t { kAllReduce, kAllGather, kReduceScatter, kLeaves };
};
std::string to_string(const Started& started);
// Of all but the number.
std::uint64_t fingerprint_of(const Started& started);

// Thread rule: one thread at a time.
class ControlRing {
 public:
  using Instant = std::chrono::steady_clock::time_point;
  struct Options {
    std::uint32_t rank = 0;
    std::uint32_t ranks = 2;
    int device = 0;
    transport::ChannelOptions channel{};
    Instant until{};  // of connecting and of each all_gather
  };

  // Blocks. `handles`: those of all ranks' listeners, in their order.
  static Result<std::unique_ptr<ControlRing>> connect(transport::Transport& transport, transport::Listener& listener,
                                                      std::span<const transport::Handle> handles,
                                                      const Options& options);
  ~ControlRing();
  ControlRing(const ControlRing&) = delete;
  ControlRing& operator=(const ControlRing&) = delete;

  // Blocks. All ranks give equally many bytes, and have all of them afterwards, in the order of ranks.
  Result<std::vector<std::byte>> all_gather(std::span<const std::byte> mine);

  // From here on what each starts is compared.
  Result<void> open();
  // Tells the next rank, as soon as there is room.
  void tell(const Started& started);
  // A moment's work. Errors, once: kInvalidUsage, the rank before started something else, and what both started is
  // named; kRemote, it left. A ring that failed is silent: who died is found out elsewhere.
  Result<void> poll();
  // Until the next rank has what it was told, for `limit` at most.
  void flush(std::chrono::milliseconds limit);

 private:
  static constexpr std::size_t kPlaces = 16;  // messages each way at once
  struct Place {
    transport::Request* request = nullptr;
    Started message{};
  };
  explicit ControlRing(const Options& options) : options_(options) {}

  std::uint32_t before() const { return (options_.rank + options_.ranks - 1) % options_.ranks; }
  Result<void> exchange(const transport::Mr& to_send, const transport::Mr& to_receive, std::size_t send_at,
                        std::size_t receive_at, std::size_t bytes);
  bool send_what_waits();
  bool hear();
  void post(std::size_t place);
  Result<void> compare();

  const Options options_;
  std::unique_ptr<transport::SendChannel> to_next_;
  std::unique_ptr<transport::RecvChannel> from_before_;
  std::array<Place, kPlaces> sent_{}, heard_{};
  std::unique_ptr<transport::Mr> sent_mr_, heard_mr_;
  std::size_t next_heard_ = 0;
  bool silent_ = true;
  std::deque<Started> to_send_{}, own_{}, theirs_{};
};

}  // namespace clustar::nccl_plugin
