#include "bench/dpdk/wire.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::dpdk {
namespace {

// `subnet`: apart from the other pair's.
PortPair memif(int number, int subnet) {
  const auto port = [&](int at, const char* role) {
    return fmt::format("net_memif{},role={},socket-abstract=yes,socket=clustar-dpdk-perf-{}-{}@10.{}.0.{}/24",
                       number + at, role, ::getpid(), number, subnet, at + 1);
  };
  return {port(0, "client"), port(1, "server")};
}

// `driver`: of the kernel's interfaces.
PortPair veth(const char* driver, int number, int subnet) {
  const auto port = [&](int at) {
    return fmt::format("{0}{1},iface=port{1}@10.{2}.0.{3}/24", driver, number + at, subnet, at + 1);
  };
  return {port(0), port(1)};
}

// Each pair of ports by a virtual cable.
constexpr const char* kCables =
    "ip link set lo up && ip link add port0 type veth peer name port1 && ip link add port2 type veth peer name port3 "
    "&& for i in 0 1 2 3; do ip link set port$i up || exit 1; done";
// By a bridge: what an XDP socket sends into a virtual cable does not reach one at its other end (Linux 6.1).
constexpr const char* kBridges =
    "ip link set lo up && for b in 0 2; do ip link add sw$b type bridge forward_delay 0 && ip link set sw$b up "
    "&& for i in $b $((b + 1)); do ip link add port$i type veth peer name far$i && ip link set far$i master sw$b up "
    "&& ip link set port$i up || exit 1; done || exit 1; done";

Result<void> make_interfaces(const char* command) {
  if (::unshare(CLONE_NEWNET) != 0) {
    return fail(ErrorCode::kUnavailable, "no network namespace can be made: " + describe_errno(errno));
  }
  if (std::system(command) != 0) {
    return fail(ErrorCode::kUnavailable, "no virtual interfaces can be made: ip (iproute2) failed");
  }
  return {};
}

}  // namespace

Result<Wires> make_wires(const std::string& kind) {
  if (kind == "memif") return Wires{memif(0, 8), memif(2, 9)};
  if (kind != "veth" && kind != "xdp") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--wire {}: allowed is memif, veth or xdp", kind));
  }
  if (const auto made = make_interfaces(kind == "veth" ? kCables : kBridges); !made) {
    return tl::unexpected(made.error());
  }
  const char* const driver = kind == "veth" ? "net_af_packet" : "net_af_xdp";
  return Wires{veth(driver, 0, 8), veth(driver, 2, 9)};
}

}  // namespace clustar::bench::dpdk
