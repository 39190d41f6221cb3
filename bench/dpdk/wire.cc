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

PortPair veth(int number, int subnet) {
  const auto port = [&](int at) {
    return fmt::format("net_af_packet{0},iface=port{0}@10.{1}.0.{2}/24", number + at, subnet, at + 1);
  };
  return {port(0), port(1)};
}

Result<void> make_interfaces() {
  if (::unshare(CLONE_NEWNET) != 0) {
    return fail(ErrorCode::kUnavailable, "no network namespace can be made: " + describe_errno(errno));
  }
  const char* const command =
      "ip link set lo up && ip link add port0 type veth peer name port1 && ip link add port2 type veth peer name port3 "
      "&& for i in 0 1 2 3; do ip link set port$i up || exit 1; done";
  if (std::system(command) != 0) {
    return fail(ErrorCode::kUnavailable, "no virtual interfaces can be made: ip (iproute2) failed");
  }
  return {};
}

}  // namespace

Result<Wires> make_wires(const std::string& kind) {
  if (kind == "memif") return Wires{memif(0, 8), memif(2, 9)};
  if (kind != "veth") {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--wire {}: allowed is memif or veth", kind));
  }
  if (const auto made = make_interfaces(); !made) return tl::unexpected(made.error());
  return Wires{veth(0, 8), veth(2, 9)};
}

}  // namespace clustar::bench::dpdk
