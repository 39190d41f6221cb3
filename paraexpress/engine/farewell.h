// The last word of each rank to each other: that it is done, or who failed and why. Without it, a rank that sees a
// channel close would blame the messenger.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "paraexpress/engine/mesh.h"
#include "paraexpress/engine/watch.h"
#include "transport/base/time.h"

namespace clustar::paraexpress {

// On the wire, big-endian: version, what it is (0 done, 1 failed, 2 stalled), length of the text (2 bytes), guilty rank
// (4), text.
inline constexpr std::size_t kFarewellBytes = 512;
using FarewellBytes = std::array<std::byte, kFarewellBytes>;
FarewellBytes encode_farewell(const std::optional<Blame>& blame);
struct Farewell {
  std::optional<Blame> blame{};  // nothing: it is done
};
// Nothing: this is no farewell. `ranks`: the guilty one is one of them.
std::optional<Farewell> parse_farewell(const FarewellBytes& bytes, std::uint32_t ranks);

// Thread rule: that of the mesh's channels.
class Farewells final : public Watch {
 public:
  static constexpr int kTag = 0;

  Farewells(Mesh& mesh, Member rank, std::uint32_t ranks) : mesh_(mesh), rank_(rank), ranks_(ranks) {}
  Result<void> open();

  std::optional<Blame> look() override;
  bool silent(Member peer) const override { return states_[peer].request != nullptr; }
  // It said that it is done.
  bool has_left(Member peer) const { return states_[peer].left; }
  // Says it to all who are there, and waits until each has said its last word or is gone, so that nobody loses this
  // one. The first failure that is heard meanwhile.
  std::optional<Blame> part(const std::optional<Blame>& blame, Duration limit);
  // part(), and what is known then of who is to blame: of a stall who was named by another, or has not answered, for
  // one that lives does. Nothing where `why` is nothing.
  std::optional<Blame> last_word(const std::optional<Blame>& why, Duration limit);

 private:
  struct State {
    transport::Request* request = nullptr;  // to receive; null: heard, gone, or the own rank
    transport::Request* sending = nullptr;
    bool to_send = false;
    bool left = false;
  };
  std::optional<Blame> hear(Member peer);
  Blame resolve(const Blame& what) const;

  Mesh& mesh_;
  const Member rank_;
  const std::uint32_t ranks_;
  std::vector<FarewellBytes> heard_{};  // by peer
  FarewellBytes said_{};
  std::unique_ptr<Registered> heard_mr_{}, said_mr_{};
  std::vector<State> states_{};
};

}  // namespace clustar::paraexpress
