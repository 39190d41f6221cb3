#include "tests/fabric/fabric_under_test.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "bench/fabric/state.h"

namespace clustar::bench::fabric {
namespace {

// Asks the machine without the code under test.
std::string why_not() {
  if (geteuid() != 0) return "needs root, to make network namespaces";
  const std::string name = "clustar-test-" + std::to_string(getpid()) + "-probe";
  const std::string in = " -n " + name + " ";
  const std::string script =
      "{ ip netns add " + name + " && ip" + in + "link add bridge0 type bridge && ip" + in +
      "link add left type veth peer name right && tc" + in + "qdisc add dev left root handle 1: htb default 1 && tc" +
      in + "class add dev left parent 1: classid 1:1 htb rate 1mbit && tc" + in +
      "qdisc add dev left parent 1:1 bfifo limit 10000 && tc" + in +
      "qdisc add dev right root tbf rate 1mbit burst 10000 limit 10000; } >/dev/null 2>&1; r=$?; ip netns del " + name +
      " 2>/dev/null; exit $r";
  if (std::system(script.c_str()) == 0) return "";
  return "needs iproute2 and a kernel that lets root make namespaces, veth, bridge, htb, tbf and bfifo";
}

}  // namespace

void FabricTest::SetUp() {
  static const std::string reason = why_not();
  if (!reason.empty()) GTEST_SKIP() << reason;
  // Of a test that was killed and had this process id.
  const auto removed = Fabric::remove(name_);
  EXPECT_TRUE(removed) << removed.error().message;
}

void FabricTest::TearDown() {
  if (geteuid() != 0) return;
  const auto removed = Fabric::remove(name_);
  EXPECT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(nothing_left());
}

FabricSpec FabricTest::spec(int hosts, std::uint64_t rate_bps) const {
  FabricSpec wanted;
  wanted.name = name_;
  wanted.hosts = hosts;
  wanted.rate_bps = rate_bps;
  return wanted;
}

Fabric FabricTest::must_up(const FabricSpec& wanted, UpReport* report) const {
  auto fabric = Fabric::up(wanted, report);
  if (!fabric) throw std::runtime_error(fabric.error().message);
  return *fabric;
}

bool FabricTest::nothing_left() const {
  return namespaces_of(name_).empty() && !std::filesystem::exists(state_path(name_));
}

sockaddr_in address_of_host(int host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, host_address(host).c_str(), &address.sin_addr);
  return address;
}

int udp_receiver(const Fabric& fabric, int host, std::uint16_t port) {
  int fd = -1;
  on_host(fabric, host, [&] {
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval bound{2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
    const sockaddr_in own = address_of_host(host, port);
    EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&own), sizeof(own)), 0);
  });
  return fd;
}

bool eventually(const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool has_ended(int pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(in, stat);
  const std::size_t name_end = stat.rfind(')');  // proc(5): the state follows the name
  return name_end == std::string::npos || stat.compare(name_end, 3, ") Z") == 0;
}

void shell(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

void on_host(const Fabric& fabric, int host, const std::function<void()>& body) {
  std::thread thread([&] {
    const auto entered = fabric.enter(host);
    ASSERT_TRUE(entered) << entered.error().message;
    body();
  });
  thread.join();
}

}  // namespace clustar::bench::fabric
