#include "nccl_plugin/net/connection_class.h"

#include "coflow/enforce/host_policy.h"

namespace clustar::nccl_plugin {

int connection_class(const transport::LevelClasses& classes, const Urgencies& urgencies) {
  using coflow::enforce::HostPolicy;
  // Below it a ChannelOptions::traffic_class means a service level.
  constexpr int kLeastByte = 16;
  const int wanted = classes.traffic_class(HostPolicy::level_of(urgencies.rest(), HostPolicy::kLargest));
  return wanted >= 0 && wanted < kLeastByte ? 0 : wanted;
}

}  // namespace clustar::nccl_plugin
