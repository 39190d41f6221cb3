#include "tests/fabric/udp_cable.h"

#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "bench/fabric/interface.h"

namespace clustar::tests {
namespace {

bool ip(const std::string& line) { return std::system(("ip " + line).c_str()) == 0; }

// As `ethtool -K wire gro on`; on a veth this also makes its receiving side poll, without which nothing is joined.
bool join_received() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "wire");
  ethtool_value value{ETHTOOL_SGRO, 1};
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0;
}

Result<void> set_carriage(int host, Carriage carriage) {
  using bench::fabric::Merging;
  if (carriage == Carriage::kWhole) return {};
  if (auto done = bench::fabric::forbid_merging("wire", Merging::kSending); !done) return done;
  if (carriage == Carriage::kPackets) return bench::fabric::forbid_merging("wire", Merging::kReceiving);
  if (host == 1 && !join_received()) return fail(ErrorCode::kUnavailable, "wire: GRO cannot be turned on");
  return {};
}

}  // namespace

const char* to_string(Carriage carriage) {
  switch (carriage) {
    case Carriage::kWhole: return "whole";
    case Carriage::kRejoined: return "rejoined";
    case Carriage::kPackets: return "packets";
  }
  return "?";
}

namespace {

// The kernel connects a queue to an interface a while after its link is up; until then what is sent is dropped.
// Until a neighbour's address is known the kernel keeps 208 KiB of packets for it and drops the rest: three of 65 KB.
void keep_for_unknown_neighbours() {
  for (const char* family : {"ipv4", "ipv6"}) {
    std::ofstream(std::string("/proc/sys/net/") + family + "/neigh/wire/unres_qlen_bytes") << (16 << 20);
  }
}

Result<void> await_carrier() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  for (int looks = 0; looks < 500; ++looks) {
    ifreq request{};
    std::strcpy(request.ifr_name, "wire");
    const bool known = ::ioctl(socket.fd(), SIOCGIFFLAGS, &request) == 0;
    if (known && (request.ifr_flags & IFF_RUNNING) != 0) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fail(ErrorCode::kUnavailable, "wire: the veth pair has no carrier after 5 s");
}

}  // namespace

Result<Wire> Wire::make(int mtu, Carriage carriage) {
  if (::geteuid() != 0) return fail(ErrorCode::kUnavailable, "wire: network namespaces need root: run it with sudo");
  Wire wire;
  for (FileDescriptor& host : wire.hosts_) {
    std::thread([&host] {
      bench::fabric::keep_new_interfaces_silent();
      if (::unshare(CLONE_NEWNET) == 0) host = FileDescriptor(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
    }).join();
    if (!host) return fail(ErrorCode::kUnavailable, "wire: this kernel or container does not let root make namespaces");
  }
  Result<void> done;
  for (int host = 0; host < 2 && done; ++host) {
    wire.run_on(host, [&] {
      const std::string far = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(wire.hosts_[1].fd());
      const std::string size = "mtu " + std::to_string(mtu) + " ";
      const bool made = host == 1 || ip("link add wire " + size + "type veth peer name wire " + size + "netns " + far);
      if (!made || !ip(std::string("addr add ") + address(host) + "/24 dev wire") || !ip("link set wire up")) {
        done = fail(ErrorCode::kUnavailable, "wire: a veth pair cannot be made; it needs the package iproute2");
        return;
      }
      keep_for_unknown_neighbours();
      // Known to be nobody else's, so it needs no second of asking.
      static_cast<void>(ip(std::string("addr add ") + address6(host) + "/64 dev wire nodad 2>/dev/null"));
      done = set_carriage(host, carriage);
    });
  }
  if (!done) return tl::unexpected(done.error());
  for (int host = 0; host < 2 && done; ++host) {
    wire.run_on(host, [&] { done = await_carrier(); });
  }
  if (!done) return tl::unexpected(done.error());
  return wire;
}

void Wire::run_on(int host, const std::function<void()>& body) const {
  std::thread([&] {
    if (::setns(hosts_[host].fd(), CLONE_NEWNET) != 0) std::abort();
    body();
  }).join();
}

}  // namespace clustar::tests
