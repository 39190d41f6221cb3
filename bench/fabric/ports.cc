#include "bench/fabric/ports.h"

#include <fmt/format.h>

#include <vector>

#include "bench/fabric/namespaces.h"
#include "bench/fabric/places.h"
#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric {
namespace {

// One instance for each switch. All or none: a fabric of both kinds would be neither.
Result<void> attach_programs(const FabricSpec& spec, const Topology& topology) {
  const std::vector<SwitchPort> ports = switch_ports(topology);
  for (std::size_t first = 0, next = 0; first < ports.size(); first = next) {
    std::vector<PortPlan> plans;
    for (; next < ports.size() && ports[next].switch_namespace == ports[first].switch_namespace; ++next) {
      const SwitchPort& port = ports[next];
      const std::string place = port_place(port);
      plans.push_back({port.interface, {port.rate_bps, port.buffer_bytes}, spec.rules.of(place), place});
    }
    const auto done = run_inside(ports[first].switch_namespace, [&] { return attach_switch(plans); });
    if (done) continue;
    // What one switch could do the next cannot: no reason to go without.
    return first == 0 ? done : fail(ErrorCode::kInternal, done.error().message);
  }
  return {};
}

// 64 KB are a millisecond of it.
constexpr std::uint64_t kCutBelow = 500'000'000;

}  // namespace

std::string queue_lines(const LinkEnd& end, int mtu) {
  if (end.rate_bps == 0) return "";
  const std::uint64_t burst = burst_bytes(end.rate_bps, mtu);
  if (end.rate_bps > kCutBelow) {
    return fmt::format(
        "qdisc add dev {0} root handle 1: htb default 1\n"
        "class add dev {0} parent 1: classid 1:1 htb rate {1}bit ceil {1}bit burst {2} cburst {2} "
        "quantum {3}\n"
        "qdisc add dev {0} parent 1:1 handle 10: bfifo limit {4}\n",
        end.interface, end.rate_bps, burst, frame_bytes(mtu), end.queue_bytes);
  }
  return fmt::format(
      "qdisc add dev {0} root handle 1: tbf rate {1}bit burst {2} limit {3}\n"
      "qdisc add dev {0} parent 1:1 handle 10: bfifo limit {3}\n",
      end.interface, end.rate_bps, burst, end.queue_bytes);
}

std::string class_queue_lines(const LinkEnd& end, int mtu) {
  if (end.rate_bps == 0) return "";
  const std::uint64_t burst = burst_bytes(end.rate_bps, mtu);
  std::string lines = fmt::format(
      "qdisc add dev {0} root handle 1: htb default 10\n"
      "class add dev {0} parent 1: classid 1:1 htb rate {1}bit ceil {1}bit burst {2} cburst {2} quantum {3}\n",
      end.interface, end.rate_bps, burst, frame_bytes(mtu));
  // HTB's prio orders only what is borrowed: with next to no rate of their own the classes are strict.
  for (int i = 0; i < kClasses; ++i) {
    lines += fmt::format(
        "class add dev {0} parent 1:1 classid 1:1{1} htb rate 8kbit ceil {2}bit burst {7} cburst {3} prio {4} quantum "
        "{5}\n"
        "qdisc add dev {0} parent 1:1{1} handle 1{1}: bfifo limit {6}\n",
        end.interface, i, end.rate_bps, burst, kClasses - 1 - i, frame_bytes(mtu), backstop_bytes(end.queue_bytes),
        kLeafBurstBytes);
  }
  return lines;
}

Result<void> equip_ports(const FabricSpec& spec, const Topology& topology, const Tools& tools, std::string& note) {
  const auto attached = attach_programs(spec, topology);
  if (!attached) {
    if (attached.error().code != ErrorCode::kUnavailable || spec.rules != SwitchRules()) return attached;
    note = attached.error().message;
  }
  std::vector<std::string> lines(topology.nodes.size());
  for (const TopologyLink& link : topology.links) {
    for (const LinkEnd& end : link.ends) {
      const bool classes = attached && end.node >= topology.hosts;
      lines[static_cast<std::size_t>(end.node)] +=
          classes ? class_queue_lines(end, link.mtu) : queue_lines(end, link.mtu);
    }
  }
  // From the core to the hosts, so that a switch's ports come before the hosts around it.
  for (std::size_t node = lines.size(); node-- > 0;) {
    if (lines[node].empty()) continue;
    const auto done = tools.tc_batch(topology.nodes[node].net_namespace, lines[node], kNeedsQueues);
    if (!done) return done;
  }
  return {};
}

}  // namespace clustar::bench::fabric
