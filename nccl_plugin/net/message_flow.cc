#include "nccl_plugin/net/message_flow.h"

#include <fmt/format.h>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/profiler/profiler.h"

namespace clustar::nccl_plugin {
namespace {

// SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::uint64_t coflow_of(const transport::MessageIdentity& identity) {
  if (!identity.known) return 0;
  const std::uint64_t kind = std::uint64_t{identity.function} << 1 | (identity.local_number ? 1 : 0);
  const std::uint64_t id = mix(mix(mix(identity.communicator) + kind) + identity.number);
  return id == 0 ? 1 : id;
}

std::uint64_t edge_bytes(int function, std::uint64_t bytes, std::uint32_t ranks) {
  if (ranks < 2) return bytes;
  const std::uint64_t part = bytes / ranks + (bytes % ranks != 0 ? 1 : 0);
  const std::uint64_t hops = ranks - 1;
  switch (function) {
    case nccl_abi::kAllReduce: return 2 * hops * part;
    case nccl_abi::kReduceScatter: return hops * part;
    case nccl_abi::kAllGather: return hops * bytes;
    default: return bytes;
  }
}

MessageQuery ask(nccl_abi::ProfilerCallback callback, void* phandle) {
  MessageQuery query;
  if (callback == nullptr || phandle == nullptr) return query;
  void* event = nullptr;
  const int asked = callback(&event, nccl_abi::kProfilerStart, phandle, kNetEventId, &query);
  // Ours keeps nothing; another profiler's event must not stay open.
  if (asked == nccl_abi::kSuccess && event != nullptr) {
    callback(&event, nccl_abi::kProfilerStop, phandle, kNetEventId, &query);
  }
  return query;
}

MessageFlow flow_of(const LossPolicy& policy, nccl_abi::ProfilerCallback callback, void* phandle,
                    const ChannelFacts& channel, const NetGuard& guard, std::size_t size, std::uint8_t traffic_class) {
  MessageQuery query = ask(callback, phandle);
  query.facts.size = size;
  const Decision decision = decide(policy, query.facts, channel, guard);
  MessageFlow flow;
  flow.reason = decision.reason;
  flow.tag.traffic_class = traffic_class;
  flow.tag.loss = decision.loss;
  flow.tag.identity = query.identity;
  if (query.identity.known) {
    flow.tag.coflow = coflow_of(query.identity);
    if (query.facts.receiver >= 0) flow.tag.receiver = static_cast<std::uint16_t>(query.facts.receiver);
    flow.tag.bytes = edge_bytes(query.identity.function, query.identity.total_bytes, query.facts.ranks);
  }
  return flow;
}

std::uint64_t SendCounters::add(const MessageFlow& flow) {
  if (flow.tag.identity.known) identified_.fetch_add(1, std::memory_order_relaxed);
  reasons_[static_cast<std::size_t>(flow.reason)].fetch_add(1, std::memory_order_relaxed);
  return sent_.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::string SendCounters::summary() const {
  std::string text = fmt::format("{} of {} messages identified; {} may lose", identified(), sent(), of(Reason::kLossy));
  const char* before = "; reliable: ";
  for (std::size_t i = 0; i < kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (reason == Reason::kLossy || of(reason) == 0) continue;
    text += fmt::format("{}{} {}", before, name_of(reason), of(reason));
    before = ", ";
  }
  return text;
}

}  // namespace clustar::nccl_plugin
