#include "bench/doctor/dpdk_virtual.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace clustar::bench::doctor {
namespace {

using transport::io::dpdk::DeviceSpec;
using transport::io::dpdk::KernelInterface;

// A page of 4,096 bytes, less what the kernel and DPDK keep in it.
constexpr std::size_t kMostXdpMtu = 3500;
// Of net_af_packet: less than what DPDK's buffers hold.
constexpr std::size_t kMostMtu = 32000;
constexpr std::array<std::string_view, 5> kKnown{"net_af_packet", "net_af_xdp", "net_tap", "net_memif", "net_ring"};

bool is_xdp(const DeviceSpec& spec) { return spec.driver() == "net_af_xdp"; }

Check check_rights(const DpdkFacts& facts, const DeviceSpec& spec) {
  std::vector<std::string> lacks;
  std::string rights = "cap_net_raw,cap_net_admin";
  if (!facts.rights.packets) lacks.push_back("open packet sockets");
  if (!facts.rights.admin) lacks.push_back("set up interfaces");
  if (is_xdp(spec)) {
    rights += ",cap_bpf,cap_ipc_lock";
    if (!facts.rights.load_xdp) lacks.push_back("load XDP programs");
    if (!facts.rights.lock) lacks.push_back(fmt::format("lock {} MiB of memory", facts.xdp_memory >> 20));
  }
  if (lacks.empty()) return ok(spec.name, "this user has the rights");
  const bool only_memory = lacks.size() == 1 && is_xdp(spec) && !facts.rights.lock;
  return failed(spec.name, fmt::format("this user may not {}", fmt::join(lacks, ", nor ")),
                only_memory
                    ? fmt::format("ulimit -l {}, or setcap {}+ep on the program", facts.xdp_memory >> 10, rights)
                    : fmt::format("root, outside of user namespaces, or setcap {}+ep on the program", rights));
}

// A program of the user's own is the user's affair, and so are queues and what is there.
Check check_xdp(const DpdkFacts& facts, const DeviceSpec& spec, const std::string& interface,
                const KernelInterface& there) {
  const auto refused = [&](const std::string& why, const std::string& fix) { return failed(spec.name, why, fix); };
  const std::uint32_t queues = spec.queues(facts.queues);
  if (there.receive_queues != 0 && queues > there.receive_queues) {
    return refused(
        fmt::format("{} has {} receive queues, and {} are asked for", interface, there.receive_queues, queues),
        fmt::format("CLUSTAR_DPDK_QUEUES={}, and queue_count= likewise", there.receive_queues));
  }
  if (!spec.argument("xdp_prog")) {
    if (there.has_port) {
      return refused(fmt::format("another process has a net_af_xdp port on {}", interface),
                     "one process on each interface, or net_af_packet");
    }
    if (there.receive_queues > queues) {
      return refused(fmt::format("{} spreads packets over {} receive queues, and {} is read", interface,
                                 there.receive_queues, queues),
                     fmt::format("ethtool -L {0} combined {1} || ethtool -L {0} rx {1}", interface, queues));
    }
    const bool is_steered = !spec.subnet || facts.kernel_has.contains(spec.subnet->address);
    const bool is_replaced = !is_steered && there.has_plain_program();
    if (there.has_xdp && !there.is_steered() && !is_replaced) {
      return refused(fmt::format("{} has an XDP program already ({})", interface, there.program()),
                     fmt::format("ip link set {} xdp off, where nobody needs it; or net_af_packet", interface));
    }
  }
  if (there.mtu > kMostXdpMtu) {
    return warning(
        spec.name,
        fmt::format("{} has an MTU of {}; most drivers want XDP's frames to fit into a page", interface, there.mtu),
        fmt::format("if it is refused: ip link set {} mtu {}, on all hosts; or net_af_packet", interface, kMostXdpMtu));
  }
  return ok(spec.name,
            interface + (there.is_steered() ? " is up; what a rank left there that was killed is removed" : " is up"));
}

Check check_interface(const DpdkFacts& facts, const DeviceSpec& spec) {
  const auto interface = spec.argument("iface");
  if (!interface || interface->empty()) {
    return failed(spec.name, "names no interface", fmt::format("{},iface=eth1", spec.name));
  }
  const auto found = facts.interfaces.find(*interface);
  if (found == facts.interfaces.end()) {
    return failed(spec.name, fmt::format("the kernel has no interface {}", *interface), "ip -br link lists them");
  }
  const KernelInterface& there = found->second;
  if (!there.is_up) {
    return failed(spec.name, *interface + " is down", fmt::format("ip link set {} up", *interface));
  }
  if (!spec.subnet && !there.has_ipv4) {
    return failed(spec.name, *interface + " has no IPv4 address",
                  fmt::format("ip addr add ADDRESS/PREFIX dev {}, or @ADDRESS/PREFIX behind the device", *interface));
  }
  if (is_xdp(spec)) return check_xdp(facts, spec, *interface, there);
  if (there.mtu > kMostMtu) {
    return failed(spec.name, fmt::format("{} has an MTU of {}; allowed is at most {}", *interface, there.mtu, kMostMtu),
                  fmt::format("ip link set {} mtu 9000, on all hosts", *interface));
  }
  return ok(spec.name, *interface + " is up");
}

}  // namespace

Check check_virtual(const DpdkFacts& facts, const DeviceSpec& spec) {
  if (std::ranges::find(kKnown, spec.driver()) == kKnown.end()) {
    return warning(spec.name, fmt::format("{} is a driver that is not looked at here", spec.driver()),
                   fmt::format("looked at are {}, and places on the PCI bus", fmt::join(kKnown, ", ")));
  }
  const bool shares_interface = spec.driver() == "net_af_packet" || is_xdp(spec);
  if (!shares_interface && spec.driver() != "net_tap") return ok(spec.name, "a virtual device");
  const Check rights = check_rights(facts, spec);
  if (rights.outcome != Outcome::kOk || !shares_interface) return rights;
  return check_interface(facts, spec);
}

}  // namespace clustar::bench::doctor
