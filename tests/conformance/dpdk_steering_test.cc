// net_af_xdp on an interface that the kernel goes on using: what each of the two gets of the packets that arrive.
#include <gtest/gtest.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/dpdk_packets_under_test.h"
#include "tests/conformance/own_network.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/dpdk/core/ethernet.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/host.h"
#include "transport/io/dpdk/kernel_interface.h"
#include "transport/io/dpdk/steering/steering_program.h"

namespace clustar::transport::conformance {
namespace {

using io::dpdk::DpdkIo;

constexpr std::uint32_t kOurs = 0x0a070001, kTheirs = 0x0a070002;  // 10.7.0.1 and 2
constexpr io::dpdk::Mac kTheirMac{2, 0, 0, 0, 0, 9};

bool within_seconds(const std::function<bool()>& what) {
  for (int round = 0; round < 2000; ++round) {
    if (what()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// s0 is DPDK's and the kernel's, both as 10.7.0.1; what leaves s1 arrives there.
class DpdkSteering : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto begun = begin_dpdk(); !begun) GTEST_SKIP() << begun.error().message;
    if (const auto own = enter_own_network(); !own) GTEST_SKIP() << own.error().message;
    const auto made = shell(
        "ip link del s0 2>/dev/null; ip link add s0 type veth peer name s1 && ip link set s0 up && ip link set s1 up "
        "&& ip addr add 10.7.0.1/24 dev s0");
    ASSERT_TRUE(made) << made.error().message;
    if (const auto program = io::dpdk::SteeringProgram::make(); !program) GTEST_SKIP() << program.error().message;
    wire_ = FileDescriptor(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
    prepare();
    if (HasFatalFailure() || IsSkipped()) return;
    auto opened = open_dpdk("net_af_xdp9,iface=s0", "10.7.0.1/24");
    ASSERT_TRUE(opened) << opened.error().message;
    dpdk_ = std::move(*opened);
  }

  // Before the port is opened.
  virtual void prepare() {}

  const io::dpdk::HostCounters& host() const { return dpdk_->host().counters(); }
  io::dpdk::Mac our_mac() const { return dpdk_->host().device().mac(); }
  std::uint16_t our_port() const {
    const io::AddressBlob blob = dpdk_->local_address();
    const auto bytes = blob.bytes();
    return static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[2]) << 8 | std::to_integer<unsigned>(bytes[3]));
  }
  void arrives(std::span<const std::byte> frame) {
    sockaddr_ll to{};
    to.sll_family = AF_PACKET;
    to.sll_ifindex = static_cast<int>(::if_nametoindex("s1"));
    ASSERT_EQ(::sendto(wire_.fd(), frame.data(), frame.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to),
              static_cast<ssize_t>(frame.size()));
  }
  std::vector<std::byte> datagram(std::uint16_t to_port) const {
    std::vector<std::byte> made(io::dpdk::kUdpHeaderBytes + 40, std::byte{1});
    io::dpdk::write_udp(made, {kTheirMac, our_mac(), kTheirs, kOurs, 5000, to_port}, 40, 0);
    io::dpdk::finish_udp(made);
    return made;
  }
  // Of a stranger, so that it goes no further than the end.
  bool end_gets(std::uint64_t datagrams) {
    io::RxPacket none;
    return within_seconds([&] {
      EXPECT_EQ(dpdk_->receive(std::span(&none, 1)).value(), 0u);
      return dpdk_->counters().strangers == datagrams;
    });
  }

  std::unique_ptr<DpdkIo> dpdk_;
  FileDescriptor wire_;
};

// On 10.7.0.1.
struct KernelSocket {
  KernelSocket() : socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in local{};
    local.sin_family = AF_INET;
    local.sin_addr.s_addr = htonl(kOurs);
    socklen_t length = sizeof local;
    EXPECT_EQ(::bind(socket.fd(), reinterpret_cast<const sockaddr*>(&local), sizeof local), 0);
    EXPECT_EQ(::getsockname(socket.fd(), reinterpret_cast<sockaddr*>(&local), &length), 0);
    port = ntohs(local.sin_port);
  }
  bool gets_one() {
    std::byte bytes[100];
    return within_seconds([&] { return ::recv(socket.fd(), bytes, sizeof bytes, 0) == 40; });
  }
  FileDescriptor socket;
  std::uint16_t port = 0;
};

TEST_F(DpdkSteering, DatagramsGoToWhoHasThePort) {
  KernelSocket kernel;
  arrives(datagram(our_port()));
  arrives(datagram(kernel.port));
  arrives(datagram(static_cast<std::uint16_t>(our_port() + 7)));  // of another path
  EXPECT_TRUE(end_gets(2)) << dpdk_->describe();
  EXPECT_TRUE(kernel.gets_one());
  EXPECT_EQ(host().frames_received, 2u) << "what is the kernel's is not ours as well";
}

TEST_F(DpdkSteering, WhatHasNoPortOfOursIsTheKernels) {
  auto fragment = datagram(our_port());
  fragment[io::dpdk::kEthernetBytes + 6] = std::byte{0x20};  // more follow
  auto with_options = datagram(our_port());
  with_options[io::dpdk::kEthernetBytes] = std::byte{0x46};
  auto of_tcp = datagram(our_port());
  of_tcp[io::dpdk::kEthernetBytes + 9] = std::byte{6};
  auto for_another = datagram(our_port());
  for_another[io::dpdk::kEthernetBytes + 19] = std::byte{3};
  for (auto frame : {fragment, with_options, of_tcp, for_another}) {
    arrives(frame);
    // Whatever it is cut to, down to one that ends in the middle of Ethernet's header.
    for (const std::size_t length : {41, 37, 33, 20, 15, 14}) arrives(std::span(frame).first(length));
  }
  arrives(datagram(our_port()));
  EXPECT_TRUE(end_gets(1)) << dpdk_->describe();
  EXPECT_EQ(host().frames_received, 1u);
}

TEST_F(DpdkSteering, BothHearOfMacs) {
  KernelSocket kernel;
  net::Endpoint there{false, 0, {std::byte{10}, std::byte{7}, {}, std::byte{2}}};
  ASSERT_TRUE(dpdk_->add_peer(dpdk_->local_address(), there));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(9);
  to.sin_addr.s_addr = htonl(kTheirs);
  EXPECT_EQ(::sendto(kernel.socket.fd(), "?", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to), 1);
  static_cast<void>(dpdk_->before_sleep());
  EXPECT_FALSE(dpdk_->knows_ways());

  std::vector<std::byte> answer(io::dpdk::kArpFrameBytes);
  io::dpdk::write_arp(answer, {true, kTheirMac, kTheirs, our_mac(), kOurs}, our_mac());
  arrives(answer);
  EXPECT_TRUE(within_seconds(
      [] { return static_cast<bool>(shell("ip neigh show 10.7.0.2 dev s0 | grep -q 02:00:00:00:00:09")); }));
  EXPECT_TRUE(within_seconds([&] {
    static_cast<void>(dpdk_->before_sleep());
    return dpdk_->knows_ways();
  }));
  EXPECT_EQ(host().frames_received, 0u) << "it is the kernel's, and we read a copy";
}

TEST_F(DpdkSteering, AnInterfaceHasOneSuchPortAndIsWholeAgainAfterIt) {
  for (const char* const address : {"10.7.0.1/24", "10.7.0.9/24"}) {
    const auto second = open_dpdk("net_af_xdp8,iface=s0", address);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("s0 has a net_af_xdp port already"), std::string::npos)
        << second.error().message;
  }
  arrives(datagram(our_port()));
  EXPECT_TRUE(end_gets(1)) << "the first one goes on";
  EXPECT_TRUE(shell("ip link show s0 | grep -q xdp"));
  dpdk_.reset();
  EXPECT_FALSE(shell("ip link show s0 | grep -q xdp"));
  const auto again = open_dpdk("net_af_xdp9,iface=s0", "10.7.0.1/24");
  ASSERT_FALSE(again);
  EXPECT_NE(again.error().message.find("this process had a net_af_xdp port on s0 before"), std::string::npos)
      << again.error().message;
}

class DpdkSteeringAfterAKill : public DpdkSteering {
 protected:
  void prepare() override {
    const auto program = io::dpdk::SteeringProgram::make();
    ASSERT_TRUE(program);
    const std::string file = "/proc/" + std::to_string(::getpid()) + program->path().substr(std::strlen("/proc/self"));
    const auto left = shell("ip link set s0 xdp obj " + file + " sec xdp");
    if (!left) GTEST_SKIP() << left.error().message;
    ASSERT_TRUE(shell("ip link show s0 | grep -q xdp"));
  }
};

TEST_F(DpdkSteeringAfterAKill, WhatWasLeftIsRemoved) {
  arrives(datagram(our_port()));
  EXPECT_TRUE(end_gets(1));
}

TEST_F(DpdkSteering, MoreReceiveQueuesThanItReadsAreRefused) {
  ASSERT_TRUE(
      shell("ip link del m0 2>/dev/null; ip link add m0 numrxqueues 2 numtxqueues 2 type veth peer name m1 && "
            "ip link set m0 up && ip addr add 10.6.0.1/24 dev m0"));
  const auto opened = open_dpdk("net_af_xdp7,iface=m0", "10.6.0.1/24");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("ethtool -L m0 combined 1"), std::string::npos) << opened.error().message;
  EXPECT_FALSE(shell("ip link show m0 | grep -q xdp"));
}

TEST_F(DpdkSteering, APortThatDidNotOpenMayBeTriedAgain) {
  ASSERT_TRUE(shell(
      "ip link del m0 2>/dev/null; ip link add m0 mtu 9000 type veth peer name m1 mtu 9000 && ip link set m0 up && "
      "ip addr add 10.6.0.1/24 dev m0"));
  const auto refused = open_dpdk("net_af_xdp7,iface=m0", "10.6.0.1/24");
  ASSERT_FALSE(refused);
  ASSERT_TRUE(shell("ip link set m0 mtu 1500 && ip link set m1 mtu 1500"));
  const auto opened = open_dpdk("net_af_xdp7,iface=m0", "10.6.0.1/24");
  EXPECT_TRUE(opened) << opened.error().message;
}

// The kernel's rings have powers of two, and the driver fills them however few are asked for.
TEST_F(DpdkSteering, AnyNumberOfDescriptorsWillDo) {
  for (const std::uint32_t count : {64u, 300u}) {
    ASSERT_TRUE(
        shell("ip link del m0 2>/dev/null; ip link add m0 type veth peer name m1 && ip link set m0 up && "
              "ip addr add 10.6.0.1/24 dev m0"));
    const auto opened = open_dpdk("net_af_xdp7,iface=m0", "10.6.0.1/24", {.descriptors = count, .held = count});
    EXPECT_TRUE(opened) << opened.error().message;
  }
}

TEST_F(DpdkSteering, TheKernelTellsWhoHasTheInterface) {
  const auto ours = io::dpdk::kernel_interface("s0");
  ASSERT_TRUE(ours);
  EXPECT_TRUE(ours->is_up && ours->has_port && ours->is_steered());
  EXPECT_EQ(ours->mtu, 1500u);
  EXPECT_EQ(ours->receive_queues, 1u);
  const auto others = io::dpdk::kernel_interface("s1");
  ASSERT_TRUE(others);
  EXPECT_FALSE(others->has_port || others->has_xdp);
  EXPECT_FALSE(io::dpdk::kernel_interface("s2"));
}

TEST_F(DpdkSteering, ItTellsOfWhatCameByDescriptors) { EXPECT_FALSE(dpdk_->ready_fds().empty()); }

}  // namespace
}  // namespace clustar::transport::conformance
