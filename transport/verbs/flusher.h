// Makes received bytes visible to the memory's owner: each port reads a few of them by its loop. The read is answered
// only after all that the port wrote before is where it belongs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/transport.h"
#include "transport/io/verbs/loop.h"
#include "transport/verbs/memory.h"
#include "transport/verbs/nic.h"

namespace clustar::transport::verbs {

class Flusher {
 public:
  // Host memory is coherent: only memory of GPUs needs it, and callers that ask for it.
  static bool needed(const Nic& nic);
  // Connects to the port itself, for which the kernel needs no answer of others.
  static Result<std::unique_ptr<Flusher>> make(Nic& nic);
  Flusher(const Flusher&) = delete;

  // Parts of a request that is done; their memory allows remote reading. Null: nothing to read. Errors: a loop's, and
  // kInvalidUsage with kMaxRequests under way, since null would pass for flushed.
  Result<Request*> flush(std::span<const RecvPart> parts);

 private:
  static constexpr std::uint32_t kReadsPerFlush = kMaxRecvParts;

  struct FlushRequest final : Request {
    Result<Progress> test() override { return flusher->test(*this); }

    Flusher* flusher = nullptr;
    std::uint32_t open = 0;  // reads
    bool used = false;
  };

  explicit Flusher(Nic& nic) : nic_(nic) {}

  Result<void> read(std::size_t port, std::uint32_t request, std::span<const RecvPart> parts);
  Result<void> progress();
  Result<Progress> test(FlushRequest& request);

  Nic& nic_;
  OwnMemory scratch_{};
  std::vector<io::verbs::Loop> loops_;  // one per port
  std::array<FlushRequest, kMaxRequests> requests_{};
  std::optional<Error> failed_;
};

}  // namespace clustar::transport::verbs
