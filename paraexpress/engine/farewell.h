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
#include "transport/base/time.h"

namespace clustar::paraexpress {

// Why an operation failed, and whose fault it is. kNobody: nothing moved, and it is not known yet who holds it up.
struct Blame {
  Member guilty = kNobody;
  Error error{};
};
// "rank 3: ..."
Blame blame(Member guilty, const Error& error);

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
class Farewells {
 public:
  static constexpr int kTag = 0;

  Farewells(Mesh& mesh, Member rank, std::uint32_t ranks) : mesh_(mesh), rank_(rank), ranks_(ranks) {}
  Result<void> open();

  // What the others have said since. The first failure, if one told of one or is gone without a word.
  std::optional<Blame> look();
  // Nothing was heard from the peer, and it is not known to be gone.
  bool silent(Member peer) const { return states_[peer].request != nullptr; }
  // Says it to all who are there, and waits until each has said its last word or is gone, so that nobody loses this
  // one. The first failure that is heard meanwhile.
  std::optional<Blame> part(const std::optional<Blame>& blame, Duration limit);
  // After part(): of a stall, a rank that has not answered, for one that lives does. Otherwise `what`.
  Blame resolve(const Blame& what) const;

 private:
  struct State {
    transport::Request* request = nullptr;  // to receive; null: heard, gone, or the own rank
    transport::Request* sending = nullptr;
    bool to_send = false;
  };
  std::optional<Blame> hear(Member peer);

  Mesh& mesh_;
  const Member rank_;
  const std::uint32_t ranks_;
  std::vector<FarewellBytes> heard_{};  // by peer
  FarewellBytes said_{};
  std::unique_ptr<Registered> heard_mr_{}, said_mr_{};
  std::vector<State> states_{};
};

}  // namespace clustar::paraexpress
