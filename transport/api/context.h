// The parameters that every transport, and every module that offers one, is made with.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "transport/api/gpu_driver.h"
#include "transport/api/importance_table.h"
#include "transport/api/send_policy.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::transport {

struct TransportContext {
  const Config& config;  // used only while the transport is made
  const Clock& clock;    // outlives the transport
  Log log{};
  std::shared_ptr<SendPolicies> policies{};       // null: by Config::send_order
  std::shared_ptr<ImportanceTable> importance{};  // null: programs mark nothing
  // Opens it, for transports that ask it of GPU memory. Null: there is none. Error: why there is none.
  std::function<Result<std::shared_ptr<GpuDriver>>()> gpu_driver{};
};

// Never null.
std::shared_ptr<SendPolicies> policies_of(const TransportContext& context);

// The longest chunk that is sent without interruption where the policy orders.
inline constexpr std::uint64_t kOrderedChunk = 16 * 1024;
// Below about 800 Mbit/s what a line carries in a sixth of a millisecond, 4 KiB at least: a mouse may have to wait for
// it. For transports that cut a message as they send it.
constexpr std::uint64_t ordered_chunk(std::uint64_t bytes_per_second) {
  constexpr std::uint64_t kLeast = 4 * 1024;
  if (bytes_per_second == 0) return kOrderedChunk;
  return std::clamp<std::uint64_t>(bytes_per_second / 6000 / 1024 * 1024, kLeast, kOrderedChunk);
}
// How many bytes a NIC hands on before it asks the policy again, if the policy orders; a message of the top class may
// have to wait for them. The largest number: no bound (`ahead` is 0, or nothing is ordered). An unknown speed counts as
// 10 Gbit/s.
std::uint64_t send_ahead_bytes(Duration ahead, std::uint64_t bytes_per_second, bool orders,
                               std::uint64_t chunk = kOrderedChunk);

}  // namespace clustar::transport
