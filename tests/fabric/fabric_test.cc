// The emulated fabric as a library: what it makes is what was asked for, and the kernel behaves like it.
#include "bench/fabric/fabric.h"

#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "bench/fabric/netlink.h"
#include "bench/fabric/state.h"
#include "tests/fabric/fabric_under_test.h"

namespace clustar::bench::fabric {
namespace {

using Clock = std::chrono::steady_clock;

int make_socket(int type) {
  const int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
  const timeval bound{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
  return fd;
}

// A bound socket on that host, listening if it is a stream; `address` is where it is.
int open_on(const Fabric& fabric, int host, int type, sockaddr_in& address) {
  int fd = -1;
  on_host(fabric, host, [&] {
    fd = make_socket(type);
    address = {};
    address.sin_family = AF_INET;
    inet_pton(AF_INET, fabric.address(host).c_str(), &address.sin_addr);
    socklen_t length = sizeof(address);
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
    ASSERT_TRUE(type != SOCK_STREAM || listen(fd, 1) == 0);
    ASSERT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  });
  return fd;
}

int connect_from(const Fabric& fabric, int host, int type, const sockaddr_in& to) {
  int fd = -1;
  on_host(fabric, host, [&] {
    fd = make_socket(type);
    ASSERT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0) << std::strerror(errno);
  });
  return fd;
}

// Bits of TCP payload per second that arrive on host 1 from host 0, after a settling time.
double tcp_rate(const Fabric& fabric) {
  sockaddr_in address{};
  const int listener = open_on(fabric, 1, SOCK_STREAM, address);
  const int sender = connect_from(fabric, 0, SOCK_STREAM, address);
  const int receiver = accept(listener, nullptr, nullptr);
  std::thread sending([&] {
    const std::vector<char> block(64 * 1024);
    while (send(sender, block.data(), block.size(), MSG_NOSIGNAL) > 0) {
    }
  });
  std::vector<char> into(256 * 1024);
  const auto count_for = [&](std::chrono::milliseconds time) {
    const auto begin = Clock::now();
    std::uint64_t bytes = 0;
    while (Clock::now() < begin + time)
      bytes += static_cast<std::uint64_t>(std::max<ssize_t>(0, recv(receiver, into.data(), into.size(), 0)));
    return static_cast<double>(bytes) * 8 / std::chrono::duration<double>(Clock::now() - begin).count();
  };
  count_for(std::chrono::milliseconds(400));
  const double rate = count_for(std::chrono::milliseconds(1500));
  shutdown(receiver, SHUT_RDWR);
  close(receiver);
  sending.join();
  close(sender);
  close(listener);
  return rate;
}

void switch_segmentation_on(const Fabric& fabric, int host) {
  on_host(fabric, host, [] {
    const int fd = make_socket(SOCK_DGRAM);
    for (const std::uint32_t command : {ETHTOOL_SGSO, ETHTOOL_STSO}) {
      ethtool_value value{command, 1};
      ifreq request{};
      std::strcpy(request.ifr_name, kHostInterface);
      request.ifr_data = reinterpret_cast<char*>(&value);
      EXPECT_EQ(ioctl(fd, SIOCETHTOOL, &request), 0);
    }
    close(fd);
  });
}

// What waits in eth0's queue of this host: packets, bytes. By tc, which tells packets apart from what they were cut
// from.
std::pair<int, int> waiting_at(const std::string& net_namespace) {
  const std::string command = "tc -n " + net_namespace + " -s qdisc show dev eth0 root";
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return {-1, -1};
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), pipe));
  pclose(pipe);
  int bytes = -1, packets = -1;
  const auto at = text.find("backlog ");
  if (at != std::string::npos) std::sscanf(text.c_str() + at, "backlog %db %dp", &bytes, &packets);
  return {packets, bytes};
}

// UDP_SEGMENT, and TCP alike, hand packets of 64 KB to the queue of the host, whatever its offloads are. A line that is
// shaped by those sends each at once.
TEST_F(FabricTest, AHostsLineCarriesPacketsNotWhatTheKernelCutsThemFrom) {
  const Fabric fabric = must_up(spec(2, 1'000'000));
  on_host(fabric, 1, [&] {
    const int fd = make_socket(SOCK_DGRAM);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    inet_pton(AF_INET, fabric.address(0).c_str(), &to.sin_addr);
    const int segment = 1472, buffer = 1 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof(buffer));
    ASSERT_EQ(setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)), 0);
    const std::vector<std::byte> bytes(40 * 1472);
    for (int i = 0; i < 6; ++i) {  // 2.8 s of the line
      ASSERT_EQ(sendto(fd, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)),
                static_cast<ssize_t>(bytes.size()))
          << std::strerror(errno);
    }
    close(fd);
  });
  const auto [packets, waiting] = waiting_at(fabric.namespace_of(1));
  ASSERT_GE(packets, 0) << "tc has not said what waits";
  if (packets == 0) GTEST_SKIP() << "the machine was too slow to look: nothing waits any more";
  EXPECT_LE(waiting, packets * 1514) << packets << " packets";
}

TEST_F(FabricTest, MakesWhatWasAskedFor) {
  UpReport report;
  FabricSpec wanted = spec(4, 200'000'000);
  wanted.buffer_bytes = 50'000;
  wanted.mtu = 9000;
  const Fabric fabric = must_up(wanted, &report);
  std::printf("4 hosts in %.3f s\n", report.seconds);
  EXPECT_EQ(report.change, Change::kMade);
  const auto status = fabric.status();
  ASSERT_TRUE(status) << status.error().message;
  EXPECT_EQ(status->spec, wanted);
  EXPECT_TRUE(status->problems.empty()) << status->problems.front();
  ASSERT_EQ(status->ports.size(), 4U);
  EXPECT_EQ(status->ports[3].address, "10.88.0.4");
  EXPECT_EQ(status->ports[3].host_namespace, "clustar-" + name_ + "-h3");
  EXPECT_EQ(status->ports[3].host_rate_bps, 200'000'000U);
  on_host(fabric, 2, [] {
    std::vector<std::string> names;
    const auto links = read_links();
    ASSERT_TRUE(links) << links.error().message;
    for (const Link& link : *links) {
      names.push_back(link.name);
      EXPECT_TRUE(link.up) << link.name;
    }
    EXPECT_EQ(names, (std::vector<std::string>{"lo", "eth0"}));
  });
}

// A host that sends at once must not lose what it sends to a link that is still waking up.
TEST_F(FabricTest, EveryLinkRunsWhenUpReturns) {
  for (const int spines : {0, 2}) {
    FabricSpec wanted = spec(8, 200'000'000);
    wanted.spines = spines;
    wanted.delay_ns = spines == 0 ? 0 : 10'000;
    must_up(wanted);
    for (const std::string& name : namespaces_of(name_)) {
      const auto looked = run_inside(name, [&]() -> Result<void> {
        const auto links = read_links();
        if (!links) return tl::unexpected(links.error());
        for (const Link& link : *links) EXPECT_TRUE(link.running || !link.up) << name << " " << link.name;
        return {};
      });
      EXPECT_TRUE(looked) << looked.error().message;
    }
  }
}

// The rate is a ceiling on any machine; whether this one reaches it is for the selftest, which knows how busy it was.
TEST_F(FabricTest, KeepsTheRate) {
  const double rate = tcp_rate(must_up(spec(2, 200'000'000)));
  std::printf("TCP at 200 Mbit/s: %.1f Mbit/s of payload\n", rate / 1e6);
  EXPECT_GT(rate, 0);
  EXPECT_LT(rate, 205e6);
}

TEST_F(FabricTest, WithoutARateNothingQueues) {
  const Fabric fabric = must_up(spec(2, 0));
  EXPECT_EQ(fabric.status()->buffer_kind, BufferKind::kNone);
  for (const std::string& name : namespaces_of(name_)) {
    const auto looked = run_inside(name, []() -> Result<void> {
      const auto queues = read_queues();
      if (!queues) return tl::unexpected(queues.error());
      for (const Queue& one : *queues) EXPECT_TRUE(one.kind != "htb" && one.kind != "bfifo") << one.kind;
      return {};
    });
    EXPECT_TRUE(looked) << looked.error().message;
  }
}

TEST_F(FabricTest, ProvesThatPacketsPassAndNoticesWhenTheyDoNot) {
  const FabricSpec wanted = spec(3, 200'000'000);
  const Fabric fabric = must_up(wanted);
  const auto proof = fabric.prove();
  ASSERT_TRUE(proof) << proof.error().message;
  EXPECT_TRUE(proof->per_packet());
  EXPECT_EQ(proof->largest_bytes, 1514U);
  EXPECT_EQ(proof->arrived_bytes, 3 * proof->burst_bytes);
  EXPECT_GT(proof->seen_packets, 3 * proof->burst_bytes / 1514);

  switch_segmentation_on(fabric, 1);
  const auto spoilt = fabric.prove();
  ASSERT_TRUE(spoilt) << spoilt.error().message;
  EXPECT_FALSE(spoilt->per_packet());
  EXPECT_GT(spoilt->oversized_packets, 0U);
  EXPECT_GT(spoilt->largest_bytes, 1518U);
  const auto status = fabric.status();
  ASSERT_TRUE(status && !status->problems.empty());
  EXPECT_NE(status->problems.front().find("host 1: tx-"), std::string::npos) << status->problems.front();

  UpReport report;
  const auto repaired = must_up(wanted, &report).prove();
  ASSERT_TRUE(repaired) << repaired.error().message;
  EXPECT_TRUE(repaired->per_packet());
  EXPECT_EQ(report.change, Change::kRepaired);
}

TEST_F(FabricTest, CountsWhatABufferCannotHold) {
  FabricSpec wanted = spec(3, 100'000'000);
  wanted.buffer_bytes = 20'000;
  const Fabric fabric = must_up(wanted);
  sockaddr_in address{};
  const int receiver = open_on(fabric, 0, SOCK_DGRAM, address);
  std::vector<std::thread> senders;
  for (int host = 1; host < 3; ++host) {
    senders.emplace_back([&, fd = connect_from(fabric, host, SOCK_DGRAM, address)] {
      const std::array<char, 1400> packet{};
      for (int i = 0; i < 1000; ++i) EXPECT_EQ(send(fd, packet.data(), packet.size(), 0), 1400);
      close(fd);
    });
  }
  for (std::thread& sender : senders) sender.join();
  const auto until = Clock::now() + std::chrono::seconds(5);
  FabricStatus status;
  do {
    status = fabric.status().value();
  } while (Clock::now() < until &&
           (status.ports[1].from_host.packets < 1000 || status.ports[2].from_host.packets < 1000 ||
            status.ports[0].to_host.waiting_bytes > 0));
  close(receiver);
  const Traffic& port = status.ports[0].to_host;
  EXPECT_GT(port.drops, 200U);
  // Nothing is lost anywhere else: what the two sent either came out of the port or was dropped there.
  EXPECT_EQ(status.ports[1].from_host.packets + status.ports[2].from_host.packets, port.packets + port.drops);
  EXPECT_EQ(status.ports[1].from_host.drops + status.ports[2].from_host.drops, 0U);
}

TEST_F(FabricTest, UpTwiceChangesNothingAndOtherArgumentsMakeItAnew) {
  const FabricSpec wanted = spec(2, 200'000'000);
  const Fabric fabric = must_up(wanted);
  const auto inode = [&] {
    std::string text;
    on_host(fabric, 0, [&] { text = std::filesystem::read_symlink("/proc/thread-self/ns/net").string(); });
    return text;
  };
  const std::string inode_before = inode();
  UpReport report;
  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
  EXPECT_EQ(inode(), inode_before);

  std::filesystem::remove(state_path(name_));
  const auto found = Fabric::find(name_);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->spec(), fabric.spec()) << "the kernel knows without the file";
  must_up(wanted, &report);
  EXPECT_EQ(report.change, Change::kUnchanged);
  EXPECT_TRUE(std::filesystem::exists(state_path(name_)));

  must_up(spec(3, 300'000'000), &report);
  EXPECT_EQ(report.change, Change::kRebuilt);
  EXPECT_NE(report.before.find("200Mbit/s"), std::string::npos) << report.before;
  EXPECT_NE(inode(), inode_before);
  EXPECT_EQ(Fabric::find(name_).value().hosts(), 3);
}

TEST_F(FabricTest, DoesNotPullAFabricFromUnderAProcessButDownEndsIt) {
  const Fabric fabric = must_up(spec(2, 200'000'000));
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    signal(SIGTERM, SIG_IGN);
    if (!fabric.enter_process(1)) _exit(1);
    (void)!write(ready[1], "x", 1);
    alarm(50);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  close(ready[1]);
  const auto refused = Fabric::up(spec(2, 300'000'000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidUsage);
  EXPECT_NE(refused.error().message.find("pid " + std::to_string(child) + ", h1"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(Fabric::find(name_).value().spec().rate_bps, 200'000'000U);
  EXPECT_TRUE(Fabric::up(spec(2, 200'000'000))) << "the same arguments disturb nobody";

  const auto removed = Fabric::remove(name_);
  ASSERT_TRUE(removed) << removed.error().message;
  ASSERT_EQ(removed->ended.size(), 1U);
  EXPECT_EQ(removed->ended.front().pid, child);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  EXPECT_TRUE(nothing_left());
}

TEST_F(FabricTest, SeveralByNameDoNotTouchEachOther) {
  const Fabric one = must_up(spec(2, 200'000'000));
  FabricSpec other = spec(2, 0);
  other.name += "-b";
  ASSERT_TRUE(Fabric::up(other));
  EXPECT_EQ(Fabric::find(name_).value().spec(), one.spec());
  const auto removed = Fabric::remove(other.name);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_EQ(removed->namespaces.size(), 3U);
  EXPECT_TRUE(Fabric::find(name_));
  EXPECT_FALSE(Fabric::find(other.name));
}

TEST_F(FabricTest, SeesWhatIsHalfMadeAndPutsItRight) {
  // What a killed `ip netns add` leaves: one bare file, one real namespace.
  std::filesystem::create_directories("/run/netns");
  std::ofstream(namespace_path(host_namespace(name_, 0))).flush();
  ASSERT_EQ(std::system(("ip netns add " + switch_namespace(name_)).c_str()), 0);
  const auto found = Fabric::find(name_);
  ASSERT_FALSE(found);
  EXPECT_NE(found.error().message.find("not whole"), std::string::npos) << found.error().message;
  UpReport report;
  must_up(spec(2, 0), &report);
  EXPECT_EQ(report.change, Change::kRepaired);
  EXPECT_TRUE(Fabric::find(name_));
  ASSERT_EQ(std::system(("ip netns del " + host_namespace(name_, 1)).c_str()), 0);
  EXPECT_FALSE(Fabric::find(name_));
}

TEST_F(FabricTest, RemovingNothingIsNoError) {
  const auto removed = Fabric::remove(name_);
  ASSERT_TRUE(removed) << removed.error().message;
  EXPECT_TRUE(removed->namespaces.empty());
  EXPECT_EQ(Fabric::find(name_).error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(Fabric::remove("Not A Name").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace clustar::bench::fabric
