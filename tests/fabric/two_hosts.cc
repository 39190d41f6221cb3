#include "tests/fabric/two_hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <vector>

namespace clustar::tests {
namespace {

// Runs `ip` with the words of `line`; false when it fails.
bool ip(const std::string& line) { return std::system(("ip " + line + " 2>/dev/null").c_str()) == 0; }

// The kernel brings a link up in its own time, and until then the interface does not count as running.
bool wait_up(const std::string& host, const std::string& nic) {
  for (int tries = 0; tries < 500; ++tries) {
    if (ip("-n " + host + " link show dev " + nic + " | grep -q 'state UP'")) return true;
    usleep(10000);
  }
  return false;
}

}  // namespace

std::string TwoHosts::name(int host) const {
  return "clustar-test-" + std::to_string(getpid()) + "-" + std::to_string(host);
}

TwoHosts::TwoHosts() {
  if (geteuid() != 0) {
    reason_ = "needs root, to make network namespaces";
    return;
  }
  if (!ip("-V >/dev/null")) {
    reason_ = "needs ip, of the package iproute2";
    return;
  }
  // A middle namespace holds the switch, so that cutting the cable takes no link down at either host.
  const std::string middle = name(2);
  bool ok = ip("netns add " + middle) && ip("-n " + middle + " link add bridge0 type bridge") &&
            ip("-n " + middle + " link set bridge0 up");
  for (int host = 0; host < 2 && ok; ++host) {
    const std::string port = "port" + std::to_string(host);
    ok = ip("netns add " + name(host)) &&
         ip("-n " + middle + " link add " + port + " type veth peer name wire netns " + name(host)) &&
         ip("-n " + middle + " link set " + port + " master bridge0 up") &&
         ip("-n " + name(host) + " addr add 10.77.0." + std::to_string(host + 1) + "/24 dev wire") &&
         ip("-n " + name(host) + " link set lo up") && ip("-n " + name(host) + " link set wire up") &&
         wait_up(name(host), "wire");
    // Until a neighbour's address is known the kernel keeps 208 KiB of packets for it and drops the rest.
    if (ok) run_on(host, [] { std::ofstream("/proc/sys/net/ipv4/neigh/wire/unres_qlen_bytes") << (16 << 20); });
  }
  if (!ok) reason_ = "this kernel or container does not let root make namespaces, veth and a bridge";
}

TwoHosts::~TwoHosts() {
  for (int host = 0; host < 3; ++host) ip("netns del " + name(host));
}

void TwoHosts::run_on(int host, const std::function<void()>& body) const {
  const std::string path = "/var/run/netns/" + name(host);
  std::thread thread([&] {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, CLONE_NEWNET) != 0) std::abort();
    ::close(fd);
    body();
  });
  thread.join();
}

bool TwoHosts::add_nic(int host, const std::string& nic, const std::string& address) const {
  const std::string in_host = "-n " + name(host) + " ";
  return ip(in_host + "link add " + nic + " type veth peer name " + nic + "-far") &&
         ip(in_host + "addr add " + address + " dev " + nic) && ip(in_host + "link set " + nic + " up") &&
         ip(in_host + "link set " + nic + "-far up") && wait_up(name(host), nic);
}

bool TwoHosts::set_mtu(int bytes) const {
  const std::string middle = "-n " + name(2) + " link set ";
  const std::string mtu = " mtu " + std::to_string(bytes);
  return ip(middle + "port0" + mtu) && ip(middle + "port1" + mtu) && ip(middle + "bridge0" + mtu) &&
         set_mtu(0, bytes) && set_mtu(1, bytes);
}

bool TwoHosts::set_mtu(int host, int bytes) const {
  return ip("-n " + name(host) + " link set wire mtu " + std::to_string(bytes));
}

bool TwoHosts::cut() const { return ip("-n " + name(2) + " link set port1 nomaster"); }

}  // namespace clustar::tests
