#include "bench/fabric/build.h"

#include <fmt/format.h>

#include <functional>

#include "bench/fabric/interface.h"
#include "bench/fabric/namespaces.h"

namespace clustar::bench::fabric {
namespace {

constexpr const char* kNeedsNamespaces =
    "needs network namespaces (CONFIG_NET_NS) and a writable /run/netns; in a container, start it with --privileged";
constexpr const char* kNeedsLinks =
    "needs the kernel modules veth and bridge (CONFIG_VETH, CONFIG_BRIDGE): modprobe -a veth bridge";
constexpr const char* kNeedsQueues =
    "needs the queueing disciplines htb and bfifo (CONFIG_NET_SCH_HTB, CONFIG_NET_SCH_FIFO): modprobe sch_htb; or "
    "--rate off, which needs neither";

std::string namespace_lines(const FabricSpec& spec) {
  std::string lines = fmt::format("netns add {}\n", switch_namespace(spec.name));
  for (int host = 0; host < spec.hosts; ++host) {
    lines += fmt::format("netns add {}\n", host_namespace(spec.name, host));
  }
  return lines;
}

Result<void> each_host(const FabricSpec& spec, const std::function<Result<void>(int)>& body) {
  for (int host = 0; host < spec.hosts; ++host) {
    const auto done = run_inside(host_namespace(spec.name, host), [&] { return body(host); });
    if (!done) return done;
  }
  return {};
}

Result<void> set_up_host(int host) {
  if (const auto done = set_up("lo"); !done) return done;
  if (const auto done = forbid_merging(kHostInterface, Merging::kSending); !done) return done;
  if (const auto done = set_address(kHostInterface, host_address(host), kPrefixLength); !done) return done;
  return set_up(kHostInterface);
}

Result<void> shape(const FabricSpec& spec, const Tools& tools) {
  std::string ports;
  for (int host = 0; host < spec.hosts; ++host) ports += queue_lines(port_name(host), spec, spec.buffer_bytes);
  if (const auto done = tools.tc_batch(switch_namespace(spec.name), ports, kNeedsQueues); !done) return done;
  const std::string own = queue_lines(kHostInterface, spec, kHostQueueBytes);
  for (int host = 0; host < spec.hosts; ++host) {
    if (const auto done = tools.tc_batch(host_namespace(spec.name, host), own, kNeedsQueues); !done) return done;
  }
  return {};
}

}  // namespace

std::string cable_lines(const FabricSpec& spec) {
  std::string lines = fmt::format("link add {} mtu {} type bridge mcast_snooping 0\n", kBridge, spec.mtu);
  for (int host = 0; host < spec.hosts; ++host) {
    lines += fmt::format("link add {0} mtu {1} type veth peer name {2} mtu {1} address {3} netns {4}\n",
                         port_name(host), spec.mtu, kHostInterface, host_mac(host), host_namespace(spec.name, host));
    lines += fmt::format("link set {} master {} up\n", port_name(host), kBridge);
  }
  return lines + fmt::format("link set {} up\n", kBridge);
}

std::string queue_lines(const std::string& interface, const FabricSpec& spec, std::uint64_t queue_bytes) {
  const std::uint64_t burst = burst_bytes(spec.rate_bps, spec.mtu);
  return fmt::format(
      "qdisc add dev {0} root handle 1: htb default 1\n"
      "class add dev {0} parent 1: classid 1:1 htb rate {1}bit ceil {1}bit burst {2} cburst {2} "
      "quantum {3}\n"
      "qdisc add dev {0} parent 1:1 handle 10: bfifo limit {4}\n",
      interface, spec.rate_bps, burst, frame_bytes(spec.mtu), queue_bytes);
}

Result<void> build(const FabricSpec& spec, const Tools& tools) {
  const std::string middle = switch_namespace(spec.name);
  if (const auto done = tools.ip_batch("", namespace_lines(spec), kNeedsNamespaces); !done) return done;
  const auto silent = [] {
    keep_new_interfaces_silent();
    return Result<void>();
  };
  if (const auto done = run_inside(middle, silent); !done) return done;
  if (const auto done = each_host(spec, [&](int) { return silent(); }); !done) return done;
  if (const auto done = tools.ip_batch(middle, cable_lines(spec), kNeedsLinks); !done) return done;
  const auto ports = run_inside(middle, [&] {
    Result<void> done;
    for (int host = 0; host < spec.hosts && done; ++host) done = forbid_merging(port_name(host), Merging::kReceiving);
    return done;
  });
  if (!ports) return ports;
  if (const auto done = each_host(spec, set_up_host); !done) return done;
  return spec.rate_bps == 0 ? Result<void>() : shape(spec, tools);
}

}  // namespace clustar::bench::fabric
