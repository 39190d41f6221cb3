// From an isend to its FlowTag: which collective the message belongs to, and what may be lost of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/profiler/profiler.h"
#include "transport/api/flow_tag.h"

namespace clustar::nccl_plugin {

struct MessageFlow {
  transport::FlowTag tag;
  Reason reason = Reason::kUnidentified;
};

// Asks NCCL's `callback` whose transfer `phandle` stands for. Identity not known: either is null, or no event of ours
// leads from it to a collective; MessageFacts::unidentified says why.
MessageQuery ask(nccl_abi::ProfilerCallback callback, void* phandle);

// Asks NCCL's `callback` about `phandle` (either may be null: unidentified). Nothing of what NCCL hands over is looked
// into: the callback calls our own profiler, which fills the answer before this returns (profiler.h).
MessageFlow flow_of(const LossPolicy& policy, nccl_abi::ProfilerCallback callback, void* phandle,
                    const ChannelFacts& channel, const NetGuard& guard, std::size_t size, std::uint8_t traffic_class);

// The coflow that the scheduler sees: one collective of one communicator, alike on all ranks outside captured graphs
// and p2p. Never 0, which means unidentified.
std::uint64_t coflow_of(const transport::MessageIdentity& identity);
// Bytes of the whole collective on one ring edge, this rank's sends; `bytes` is one rank's input (p2p: the message).
std::uint64_t edge_bytes(int function, std::uint64_t bytes, std::uint32_t ranks);

// What this process sent, by the reason why it was reliable. Any thread.
class SendCounters {
 public:
  // How many messages there are now.
  std::uint64_t add(const MessageFlow& flow);
  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t identified() const { return identified_.load(std::memory_order_relaxed); }
  std::uint64_t of(Reason reason) const {
    return reasons_[static_cast<std::size_t>(reason)].load(std::memory_order_relaxed);
  }
  // "9,000 of 9,000 messages identified; 4,000 may lose; reliable: gather-phase 5000"
  std::string summary() const;

 private:
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> identified_{0};
  std::array<std::atomic<std::uint64_t>, kReasons> reasons_{};
};

}  // namespace clustar::nccl_plugin
