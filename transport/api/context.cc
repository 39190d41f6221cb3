#include "transport/api/context.h"

#include <chrono>
#include <limits>

#include "transport/api/settings.h"

namespace clustar::transport {
namespace {

template <class Policy>
class PoliciesOfOneKind final : public SendPolicies {
 public:
  std::unique_ptr<SendPolicy> make(const Nic&) override { return std::make_unique<Policy>(); }
};

}  // namespace

std::shared_ptr<SendPolicies> policies_of(const TransportContext& context) {
  if (context.policies != nullptr) return context.policies;
  if (context.config.get<SendOrderSettings>().order == "class")
    return std::make_shared<PoliciesOfOneKind<ClassPolicy>>();
  return std::make_shared<PoliciesOfOneKind<FifoPolicy>>();
}

std::uint64_t send_ahead_bytes(Duration ahead, std::uint64_t bytes_per_second, bool orders, std::uint64_t chunk) {
  constexpr std::uint64_t kUnknown = 1'250'000'000;
  if (!orders || ahead <= Duration::zero()) return std::numeric_limits<std::uint64_t>::max();
  const auto speed = static_cast<double>(bytes_per_second == 0 ? kUnknown : bytes_per_second);
  return chunk + static_cast<std::uint64_t>(speed * std::chrono::duration<double>(ahead).count());
}

}  // namespace clustar::transport
