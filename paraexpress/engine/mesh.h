// Channels from one rank to all others over waist 1, and the memory that is registered on them.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "paraexpress/engine/engine.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::paraexpress {

// Memory on every channel: the Mr of each peer's, null at the own rank.
struct Registered {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::vector<std::unique_ptr<transport::Mr>> to_send{}, to_receive{};  // by peer

  bool holds(const std::byte* at, std::size_t length) const {
    return at >= begin && length <= bytes && static_cast<std::size_t>(at - begin) <= bytes - length;
  }
};

// Thread rule: that of the channels; reg_mr() from any thread.
class Mesh {
 public:
  // Blocks until all ranks have connected to each other, at most for `stall`.
  static Result<std::unique_ptr<Mesh>> connect(transport::Transport& transport, const AllGather& all_gather,
                                               const EngineOptions& options);

  transport::SendChannel& to(Member peer) { return *to_[peer]; }
  transport::RecvChannel& from(Member peer) { return *from_[peer]; }
  // It goes before the mesh.
  Result<std::unique_ptr<Registered>> reg_mr(void* memory, std::size_t bytes);

 private:
  std::vector<std::unique_ptr<transport::SendChannel>> to_;    // by peer, null at the own rank
  std::vector<std::unique_ptr<transport::RecvChannel>> from_;  // by peer
};

}  // namespace clustar::paraexpress
