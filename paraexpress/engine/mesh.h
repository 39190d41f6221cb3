// Channels from one member to all others over waist 1, and the memory that is registered on them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "paraexpress/engine/engine.h"
#include "paraexpress/engine/waits.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

class Mesh;

// Memory on every channel: the Mr of each peer's, null at the own number and where there is no channel.
struct Registered {
  Registered() = default;
  ~Registered();
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

  Mesh* mesh = nullptr;
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::vector<std::unique_ptr<transport::Mr>> to_send{}, to_receive{};  // by peer

  bool holds(const std::byte* at, std::size_t length) const {
    return at >= begin && length <= bytes && static_cast<std::size_t>(at - begin) <= bytes - length;
  }
};

struct MeshOptions {
  Member self = 0;
  std::uint32_t ranks = 1;
  std::uint32_t helpers = 0;
  int device = 0;
  Waits waits{};
  transport::ChannelOptions channel{};
  std::uint64_t epoch = 0;
};
// "rank 3", "helper 0": how people count members.
std::string name_of(Member member, std::uint32_t ranks);

// Thread rule: that of the channels; reg_mr() and ~Registered from any thread, at any time.
class Mesh {
 public:
  // Blocks until all members have connected to each other, at most as long as `waits` says. Two helpers have no
  // channel. Ranks go on without a helper that is gone, or does not connect within kHelperPatience: has() is false for
  // it then. `all_gather` is of all members.
  static Result<std::unique_ptr<Mesh>> connect(transport::Transport& transport, const AllGather& all_gather,
                                               const MeshOptions& options);

  static constexpr Duration kHelperPatience = std::chrono::seconds(5);
  bool has(Member peer) const { return to_[peer] != nullptr && from_[peer] != nullptr; }
  transport::SendChannel& to(Member peer) { return *to_[peer]; }
  transport::RecvChannel& from(Member peer) { return *from_[peer]; }
  // It goes before the mesh.
  Result<std::unique_ptr<Registered>> reg_mr(void* memory, std::size_t bytes);
  // Closes the channels to and from the peer: nothing is read or written for it any more, and it learns of that.
  void drop(Member peer);
  // All of them: what was registered may go in any order afterwards, with its memory.
  void close();

 private:
  friend struct Registered;

  std::uint32_t ranks_ = 0;
  std::vector<std::unique_ptr<transport::SendChannel>> to_;    // by peer, null where there is none
  std::vector<std::unique_ptr<transport::RecvChannel>> from_;  // by peer
  std::mutex mutex_{};                                         // of what is registered, and of drop()
  std::vector<Registered*> registered_{};
};

}  // namespace clustar::paraexpress
