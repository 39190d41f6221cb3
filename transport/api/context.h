// The parameters that every transport, and every module that offers one, is made with.
#pragma once

#include <memory>

#include "transport/api/send_policy.h"
#include "transport/base/config.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::transport {

struct TransportContext {
  const Config& config;  // used only while the transport is made
  const Clock& clock;    // outlives the transport
  Log log{};
  std::shared_ptr<SendPolicies> policies{};  // null: by Config::send_order
};

// Never null.
std::shared_ptr<SendPolicies> policies_of(const TransportContext& context);

// How many bytes a NIC hands on before it asks the policy again, if the policy orders; a message of the top class may
// have to wait for them. The largest number: no bound (`ahead` is 0, or nothing is ordered). An unknown speed counts as
// 10 Gbit/s.
std::uint64_t send_ahead_bytes(Duration ahead, std::uint64_t bytes_per_second, bool orders);
// The longest chunk that is then sent without interruption.
inline constexpr std::uint64_t kOrderedChunk = 16 * 1024;

}  // namespace clustar::transport
