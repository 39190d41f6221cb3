// What only packets over DPDK promise: peers over the kernel's UDP, answers to ARP, what is damaged, and what DPDK may
// not do to this process.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <rte_ethdev.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/dpdk_packets_under_test.h"
#include "tests/conformance/own_network.h"
#include "tests/own_process.h"
#include "tests/temp_path.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/kernel_side.h"
#include "transport/io/udp/udp_io.h"

namespace clustar::transport::conformance {
namespace {

using io::dpdk::DpdkIo;
using std::chrono::milliseconds;

constexpr net::Endpoint kFirst{false, 0, {std::byte{10}, std::byte{8}, {}, std::byte{1}}};
constexpr net::Endpoint kSecond{false, 0, {std::byte{10}, std::byte{8}, {}, std::byte{2}}};

// A pair of virtual interfaces: DPDK has k0 by net_af_packet, with 10.8.0.1; the kernel has k1, with 10.8.0.2.
Result<std::unique_ptr<DpdkIo>> beside_the_kernel() {
  if (const auto begun = begin_dpdk(); !begun) return tl::unexpected(begun.error());
  if (const auto own = enter_own_network(); !own) return tl::unexpected(own.error());
  const auto made = shell(
      "ip link del k0 2>/dev/null; ip link add k0 type veth peer name k1 && ip link set k0 up && ip link set k1 up && "
      "ip addr add 10.8.0.2/24 dev k1");
  if (!made) return tl::unexpected(made.error());
  return open_dpdk("net_af_packet9,iface=k0", "10.8.0.1/24");
}

bool happens(const std::function<bool()>& what) {
  for (int round = 0; round < 2000; ++round) {
    if (what()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

std::vector<io::TxPacket> packets_for(io::PeerId peer, const PayloadBuffer& buffer, std::size_t count,
                                      std::size_t bytes) {
  std::vector<io::TxPacket> packets(count);
  for (std::size_t i = 0; i < count; ++i) {
    packets[i].peer = peer;
    packets[i].path = static_cast<std::uint8_t>(i % 8);
    packets[i].ect = true;
    packets[i].traffic_class = 5;
    packets[i].header = header_of(20, static_cast<unsigned>(i));
    packets[i].payload = {buffer.mr.get(), 0, bytes};
  }
  return packets;
}

// `to` has as many whole packets as were sent, with class and ECN.
void expect_passage(io::PacketIo& from, io::PeerId peer, io::PacketIo& to, std::size_t bytes) {
  constexpr std::size_t kCount = 400;
  PayloadBuffer buffer(from, bytes, 3);
  const auto packets = packets_for(peer, buffer, kCount, bytes);
  std::size_t sent = 0;
  std::size_t arrived = 0;
  io::RxPacket burst[32];
  ASSERT_TRUE(happens([&] {
    if (sent < kCount) {
      const auto taken = from.send(std::span(packets).subspan(sent, std::min<std::size_t>(32, kCount - sent)));
      EXPECT_TRUE(taken) << taken.error().message;
      sent += taken.value_or(0);
    }
    static_cast<void>(from.receive({}));
    const auto got = to.receive(burst);
    EXPECT_TRUE(got) << got.error().message;
    for (const io::RxPacket& packet : std::span(burst, got.value_or(0))) {
      EXPECT_TRUE(std::ranges::equal(packet.payload, std::span(buffer.bytes).first(bytes)));
      EXPECT_EQ(packet.traffic_class, 5);
      EXPECT_EQ(packet.ecn, io::Ecn::kEct0);
    }
    arrived += got.value_or(0);
    to.release(std::span(burst, got.value_or(0)));
    return arrived == kCount;
  })) << arrived
      << " of " << kCount;
}

TEST(DpdkIo, ASocketOfTheKernelIsAPeer) {
  auto opened = beside_the_kernel();
  if (!opened) GTEST_SKIP() << opened.error().message;
  DpdkIo& dpdk = **opened;
  // Segments are for a device that cuts them, as a real one does; this one shows DPDK what is not cut yet.
  auto kernel = io::udp::UdpIo::open({.local = "10.8.0.2", .allow_gso = false});
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto there = dpdk.add_peer((*kernel)->local_address(), kSecond);
  const auto here = (*kernel)->add_peer(dpdk.local_address(), kFirst);
  ASSERT_TRUE(there && here);
  EXPECT_EQ(dpdk.capabilities().max_packet, (*kernel)->capabilities().max_packet);
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{300}, dpdk.capabilities().max_packet - 20}) {
    expect_passage(dpdk, *there, **kernel, bytes);
    expect_passage(**kernel, *here, dpdk, bytes);
    // It has to ask again.
    ASSERT_TRUE(shell("ip neigh flush dev k1"));
  }
  EXPECT_GT(dpdk.host().counters().answered, 0u) << "the kernel asked for the MAC of 10.8.0.1, and DPDK's host answers";
  EXPECT_EQ(dpdk.host().counters().damaged, 0u);
}

bool is_readable(std::span<const int> fds) {
  std::vector<pollfd> watched;
  for (const int fd : fds) watched.push_back({fd, POLLIN, 0});
  return ::poll(watched.data(), watched.size(), 0) > 0;
}

TEST(DpdkIo, AnEndThatSleepsIsWokenByTheOneThatReadItsPacket) {
  auto first = beside_the_kernel();
  if (!first) GTEST_SKIP() << first.error().message;
  auto second = open_dpdk("net_af_packet9,iface=k0", "10.8.0.1/24");
  ASSERT_TRUE(second) << second.error().message;
  DpdkIo& sleeper = **second;
  ASSERT_FALSE(sleeper.ready_fds().empty());
  auto kernel = io::udp::UdpIo::open({.local = "10.8.0.2", .allow_gso = false});
  ASSERT_TRUE(kernel) << kernel.error().message;
  const auto here = (*kernel)->add_peer(sleeper.local_address(), kFirst);
  ASSERT_TRUE(here && sleeper.add_peer((*kernel)->local_address(), kSecond));
  expect_passage(**kernel, *here, sleeper, 100);
  ASSERT_TRUE(happens([&] { return sleeper.before_sleep() > Duration(0) && !is_readable(sleeper.ready_fds()); }));

  PayloadBuffer buffer(**kernel, 100, 3);
  ASSERT_EQ((*kernel)->send(packets_for(*here, buffer, 1, 100)).value(), 1u);
  io::RxPacket one;
  ASSERT_TRUE(happens([&] { return is_readable((*first)->ready_fds().first(1)); }));
  EXPECT_EQ((*first)->receive(std::span(&one, 1)).value(), 0u) << "it is not for this end, which has read it";
  EXPECT_FALSE(is_readable(sleeper.ready_fds().first(1)));
  EXPECT_TRUE(is_readable(sleeper.ready_fds()));
  ASSERT_EQ(sleeper.receive(std::span(&one, 1)).value(), 1u);
  sleeper.release(std::span(&one, 1));
  EXPECT_TRUE(happens([&] { return sleeper.before_sleep() > Duration(0) && !is_readable(sleeper.ready_fds()); }));
}

TEST(DpdkIo, WhatGoesToNobodyIsLostAndCounted) {
  auto opened = beside_the_kernel();
  if (!opened) GTEST_SKIP() << opened.error().message;
  DpdkIo& dpdk = **opened;
  net::Endpoint nobody = kSecond;
  nobody.address[3] = std::byte{77};
  const auto peer = dpdk.add_peer(dpdk.local_address(), nobody);
  ASSERT_TRUE(peer) << peer.error().message;
  PayloadBuffer buffer(dpdk, 100, 1);
  const auto packets = packets_for(*peer, buffer, 200, 100);
  EXPECT_EQ(dpdk.send(packets).value(), packets.size());
  EXPECT_GE(dpdk.host().counters().unreachable, 136u);  // 64 wait
  EXPECT_TRUE(happens([&] {
    static_cast<void>(dpdk.receive({}));
    return dpdk.host().counters().unreachable == 200;
  }));
  EXPECT_GE(dpdk.host().counters().asked, 5u);
  net::Endpoint elsewhere = kSecond;
  elsewhere.address[2] = std::byte{1};
  const auto refused = dpdk.add_peer(dpdk.local_address(), elsewhere);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("gateway"), std::string::npos) << refused.error().message;
}

// Sends a frame out of k1 as it is.
class Wire {
 public:
  Wire() : socket_(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)) {}
  bool send(std::span<const std::byte> frame) {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(::if_nametoindex("k1"));
    return ::sendto(socket_.fd(), frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to) ==
           static_cast<ssize_t>(frame.size());
  }

 private:
  FileDescriptor socket_;
};

TEST(DpdkIo, WhatIsDamagedForeignOrAStrangersIsCountedByCause) {
  auto opened = beside_the_kernel();
  if (!opened) GTEST_SKIP() << opened.error().message;
  DpdkIo& dpdk = **opened;
  const io::AddressBlob blob = dpdk.local_address();
  const auto bytes = blob.bytes();
  const auto first =
      static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[2]) << 8 | std::to_integer<unsigned>(bytes[3]));
  const io::dpdk::Mac other{2, 0, 0, 0, 0, 9};
  const auto frame = [&](std::uint16_t to_port) {
    std::vector<std::byte> made(io::dpdk::kUdpHeaderBytes + 40, std::byte{1});
    io::dpdk::write_udp(made, {other, dpdk.host().device().mac(), 0x0a080002, 0x0a080001, 5000, to_port}, 40, 0);
    io::dpdk::finish_udp(made);
    return made;
  };
  Wire wire;
  auto damaged = frame(first);
  damaged.back() ^= std::byte{1};
  auto cut = frame(first);
  cut.resize(50);
  auto for_another = frame(first);
  for_another[5] ^= std::byte{1};
  for (const auto& each : {frame(first), frame(static_cast<std::uint16_t>(first + 8)), damaged, cut, for_another}) {
    ASSERT_TRUE(wire.send(each));
  }
  const auto& host = dpdk.host().counters();
  io::RxPacket one;
  EXPECT_TRUE(happens([&] {
    EXPECT_EQ(dpdk.receive(std::span(&one, 1)).value(), 0u);
    return dpdk.counters().strangers == 1 && host.unbound == 1 && host.damaged == 2;
  })) << dpdk.describe();
}

TEST(DpdkIo, LongFrames) {
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  if (const auto own = enter_own_network(); !own) GTEST_SKIP() << own.error().message;
  ASSERT_TRUE(shell(
      "ip link del j0 2>/dev/null; ip link add j0 mtu 9000 type veth peer name j1 mtu 9000 && ip link set j0 up && "
      "ip link set j1 up"));
  auto one = open_dpdk("net_af_packet7,iface=j0", "10.8.0.1/24");
  auto two = open_dpdk("net_af_packet8,iface=j1", "10.8.0.2/24");
  ASSERT_TRUE(one && two) << (one ? two : one).error().message;
  const std::size_t most = (*one)->capabilities().max_packet;
  EXPECT_EQ(most, 9000u - 20 - 8 - 1);
  const auto there = (*one)->add_peer((*two)->local_address(), kSecond);
  const auto here = (*two)->add_peer((*one)->local_address(), kFirst);
  ASSERT_TRUE(there && here);
  ASSERT_TRUE(happens([&] {
    static_cast<void>((*one)->receive({}));
    static_cast<void>((*two)->receive({}));
    return (*one)->knows_ways() && (*two)->knows_ways();
  }));
  expect_passage(**one, *there, **two, most - 20);
  expect_passage(**two, *here, **one, most - 20);
}

// Of all queues of a port: frames that came, frames that left.
std::vector<std::pair<std::uint64_t, std::uint64_t>> frames_by_queue(const char* device, std::size_t queues) {
  std::uint16_t port = 0;
  rte_eth_stats stats{};
  EXPECT_EQ(rte_eth_dev_get_port_by_name(device, &port), 0);
  EXPECT_EQ(rte_eth_stats_get(port, &stats), 0);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> frames;
  for (std::size_t i = 0; i < queues; ++i) frames.emplace_back(stats.q_ipackets[i], stats.q_opackets[i]);
  return frames;
}

TEST(DpdkIo, SeveralQueuesAreAllReadAndAPathStaysInOrder) {
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  if (const auto own = enter_own_network(); !own) GTEST_SKIP() << own.error().message;
  ASSERT_TRUE(
      shell("ip link del q0 2>/dev/null; ip link add q0 type veth peer "
            "name q1 && ip link set q0 up && ip link set q1 up"));
  constexpr std::size_t kQueues = 3;
  constexpr std::uint8_t kPaths = 32;
  const io::dpdk::PortOptions port{.queues = kQueues};
  auto one = open_dpdk("net_af_packet5,iface=q0", "10.8.0.1/24", port, {.paths = kPaths});
  auto two = open_dpdk("net_af_packet6,iface=q1", "10.8.0.2/24", port, {.paths = kPaths});
  ASSERT_TRUE(one && two) << (one ? two : one).error().message;
  EXPECT_NE((*one)->describe().find("3 queues"), std::string::npos) << (*one)->describe();
  const auto there = (*one)->add_peer((*two)->local_address(), kSecond);
  ASSERT_TRUE(there && (*two)->add_peer((*one)->local_address(), kFirst));
  // The first of them wait for the neighbour's answer.
  PayloadBuffer buffer(**one, 600, 3);
  auto packets = packets_for(*there, buffer, kPaths * 40, 600);
  for (std::uint32_t i = 0; i < packets.size(); ++i) {
    packets[i].path = static_cast<std::uint8_t>(i / 2 % kPaths);
    std::memcpy(packets[i].header.bytes().data(), &i, sizeof i);
  }
  std::vector<std::vector<std::uint32_t>> numbers(kPaths);
  std::size_t sent = 0;
  std::size_t arrived = 0;
  io::RxPacket burst[64];
  EXPECT_TRUE(happens([&] {
    // Not more than the rings hold, or the kernel goes on with another queue.
    const std::size_t most = std::min<std::size_t>({60, packets.size() - sent, arrived + 60 - sent});
    sent += (*one)->send(std::span(packets).subspan(sent, most)).value();
    static_cast<void>((*one)->receive({}));
    const std::size_t got = (*two)->receive(burst).value();
    for (const io::RxPacket& packet : std::span(burst, got)) {
      EXPECT_TRUE(std::ranges::equal(packet.payload, buffer.bytes));
      std::uint32_t number = 0;
      std::memcpy(&number, packet.header.data(), sizeof number);
      numbers[packet.path].push_back(number);
    }
    (*two)->release(std::span(burst, got));
    arrived += got;
    return arrived == packets.size();
  })) << arrived
      << " of " << packets.size();
  for (const auto& path : numbers) {
    EXPECT_EQ(path.size(), packets.size() / kPaths);
    EXPECT_TRUE(std::ranges::is_sorted(path));
  }
  for (const auto& queue : frames_by_queue("net_af_packet5", kQueues)) EXPECT_GT(queue.second, 0u);
  for (const auto& queue : frames_by_queue("net_af_packet6", kQueues)) EXPECT_GT(queue.first, 0u);
}

TEST(DpdkIo, TwoPortsOfMemif) {
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  const std::string socket = tests::temp_path("memif") + ".sock";
  const std::string shared = ",socket-abstract=no,socket=" + socket;
  auto one = open_dpdk("net_memif0,role=server" + shared, "10.8.0.1/24");
  if (!one) GTEST_SKIP() << one.error().message;
  auto two = open_dpdk("net_memif1,role=client" + shared, "10.8.0.2/24");
  ASSERT_TRUE(two) << two.error().message;
  const auto there = (*one)->add_peer((*two)->local_address(), kSecond);
  const auto here = (*two)->add_peer((*one)->local_address(), kFirst);
  ASSERT_TRUE(there && here);
  ASSERT_TRUE(happens([&] {
    static_cast<void>((*one)->receive({}));
    static_cast<void>((*two)->receive({}));
    return (*one)->knows_ways() && (*two)->knows_ways();
  }));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1400}}) {
    expect_passage(**one, *there, **two, bytes);
    expect_passage(**two, *here, **one, bytes);
  }
  // Nobody reads any more: what the ring has no room for waits in our queue, and shows the payload where it lies. It is
  // given up with the memory.
  ASSERT_FALSE((*two)->capabilities().copies);
  auto buffer = std::make_optional<PayloadBuffer>(**two, 1400, 4);
  const auto packets = packets_for(*here, *buffer, 64, 1400);
  ASSERT_TRUE(happens([&] {
    EXPECT_TRUE((*two)->send(packets));
    return (*two)->unsent_bytes() > 1400;
  }));
  buffer.reset();
  EXPECT_EQ((*two)->unsent_bytes(), 0u);
  std::filesystem::remove(socket);
}

std::vector<struct sigaction> handlers() {
  std::vector<struct sigaction> all(32);
  for (int i = 1; i < 32; ++i) ::sigaction(i, nullptr, &all[static_cast<std::size_t>(i)]);
  return all;
}

// Runs before DPDK begins only in a process of its own, as CTest makes them.
TEST(DpdkProcess, KeepsItsSignalsItsCoresAndItsThreads) {
  cpu_set_t before{};
  cpu_set_t after{};
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const auto signals = handlers();
  const std::size_t threads = tests::running_threads();
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  const auto now = handlers();
  for (std::size_t i = 1; i < signals.size(); ++i) EXPECT_EQ(signals[i].sa_handler, now[i].sa_handler) << i;
  EXPECT_LE(tests::running_threads(), threads + 2);
  // DPDK's threads take none of this process's signals.
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (std::stol(task.path().filename().string()) == static_cast<long>(::getpid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) {
        constexpr auto kBit = [](int signal) { return 1ull << (signal - 1); };
        const auto wanted = kBit(SIGINT) | kBit(SIGTERM) | kBit(SIGHUP) | kBit(SIGUSR1) | kBit(SIGALRM) | kBit(SIGCHLD);
        EXPECT_EQ(std::stoull(line.substr(8), nullptr, 16) & wanted, wanted) << line;
      }
    }
  }
  EXPECT_TRUE(begin_dpdk()) << "again is the same";
}

TEST(DpdkProcess, OpenedAndClosedAgainAndAgainNothingStays) {
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  const auto cycle = [] {
    auto one = open_dpdk("net_ring0", "10.8.0.1/24");
    ASSERT_TRUE(one) << one.error().message;
  };
  for (int i = 0; i < 5; ++i) cycle();
  const std::size_t descriptors = tests::open_descriptors();
  const std::size_t threads = tests::running_threads();
  const std::size_t memory = tests::resident_kib();
  for (int i = 0; i < 50; ++i) cycle();
  EXPECT_EQ(tests::open_descriptors(), descriptors);
  EXPECT_LE(tests::threads_left(threads), threads);
  if (tests::kGivesMemoryBack) {
    EXPECT_LE(tests::resident_kib(), memory + 2048);
  }
}

TEST(DpdkProcess, WhatCannotBeOpenedSaysWhy) {
  if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
  const auto none = open_dpdk("net_af_packet3,iface=not_there", "10.8.0.1/24");
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("net_af_packet3"), std::string::npos);
  EXPECT_NE(none.error().message.find("doctor dpdk"), std::string::npos) << none.error().message;
  const auto no_driver = open_dpdk("net_nothing0", "10.8.0.1/24");
  ASSERT_FALSE(no_driver);
  auto one = open_dpdk("net_ring0", "10.8.0.1/24");
  ASSERT_TRUE(one) << one.error().message;
  const auto other_address = open_dpdk("net_ring0", "10.8.0.2/24");
  ASSERT_FALSE(other_address);
  EXPECT_NE(other_address.error().message.find("10.8.0.1"), std::string::npos);
}

TEST(DpdkKernelSide, TheGatewayIsTheDefaultRoutesOfTheInterface) {
  const std::string table =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\n"
      "eth0\t00000000\tFE00000A\t0003\t0\t0\t0\t00000000\n"
      "eth1\t0000010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\n";
  EXPECT_EQ(io::dpdk::default_gateway(table, "eth0"), 0x0a0000feu);
  EXPECT_FALSE(io::dpdk::default_gateway(table, "eth1"));
  EXPECT_FALSE(io::dpdk::default_gateway("", "eth0"));
}

}  // namespace
}  // namespace clustar::transport::conformance
