// A queue pair (RC) that is connected to itself: reads and writes by the NIC of memory that the CPU must not touch, and
// the reads that flush. A request is done when the NIC has done it; the memory named by its address and rkey may be any
// that the domain registered, a GPU's above all.
//
// Order: requests are carried out and complete as they were posted, so a read that is done says that all writes posted
// before it, and all that the same port wrote before for others, are where they belong.
// Thread rule: one thread at a time.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "transport/base/result.h"
#include "transport/io/verbs/completion.h"
#include "transport/io/verbs/completion_queue.h"
#include "transport/io/verbs/device.h"
#include "transport/io/verbs/memory.h"
#include "transport/io/verbs/path.h"
#include "transport/io/verbs/queue_pair.h"

namespace clustar::transport::io::verbs {

struct LoopOptions {
  Path path{};  // from the port to itself; its `port` is the one used
  std::uint16_t pkey_index = 0;
  ibv_mtu mtu = IBV_MTU_1024;  // at most the port's active_mtu
  RetryOptions retry{};
  std::uint32_t depth = 64;  // requests outstanding at most
};

class Loop {
 public:
  // Both outlive the loop. May block as QueuePair::to_rtr does, though a port's own address needs no answer of others.
  // Error: the device refuses, as text for a person.
  static Result<Loop> make(const Device& device, const ProtectionDomain& domain, const LoopOptions& options);
  Loop(Loop&&) = default;
  Loop& operator=(Loop&&) = delete;

  // Local memory `from` (a slice of a region with any access) is written to `address` of the region with `rkey`, which
  // allows remote writing. False: `depth` are outstanding, poll() first. At most the port's largest message (2 GiB by
  // the specification) at a time. `id` is what poll() answers.
  Result<bool> post_write(const ibv_sge& from, std::uint64_t address, std::uint32_t rkey, std::uint64_t id);
  // The same for reading `address` into local memory: its region allows local writing, the other remote reading.
  Result<bool> post_read(const ibv_sge& into, std::uint64_t address, std::uint32_t rkey, std::uint64_t id);

  // Ids of requests that are done, at most done.size(), in the order in which they were posted. The first that fails
  // ends the loop: from then on every call answers its error.
  Result<std::size_t> poll(std::span<std::uint64_t> done);

  std::uint32_t room() const { return depth_ - outstanding_; }
  std::uint32_t outstanding() const { return outstanding_; }
  std::uint32_t queue_pair() const { return number_; }
  // Nothing moves any more, whatever is outstanding; every later call answers an error. For callers that take memory
  // back before its requests are done: the queue pair is destroyed, which the driver ends only after its work.
  void stop();

 private:
  Loop(CompletionQueue queue, QueuePair pair, std::uint32_t depth)
      : queue_(std::move(queue)), pair_(std::move(pair)), number_(pair_->number()), depth_(depth) {}
  Result<bool> post(ibv_wr_opcode opcode, ibv_sge local, std::uint64_t address, std::uint32_t rkey, std::uint64_t id);

  CompletionQueue queue_;          // before pair_, which is destroyed first
  std::optional<QueuePair> pair_;  // until stop(); null only with failed_
  std::uint32_t number_;
  std::uint32_t depth_;
  std::uint32_t outstanding_ = 0;
  std::optional<Error> failed_;
};

}  // namespace clustar::transport::io::verbs
