// UdpIo between two hosts: what loopback does not show.
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cstring>

#include "tests/conformance/udp_io_pair.h"
#include "tests/fabric/two_hosts.h"

namespace clustar::transport::io::udp {
namespace {

UdpOptions at(const char* local) {
  UdpOptions options;
  options.local = local;
  return options;
}

// Switches one offload of "wire" off, as ethtool -K does.
bool switch_off(std::uint32_t command) {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "wire");
  ethtool_value value{command, 0};
  request.ifr_data = reinterpret_cast<char*>(&value);
  return ::ioctl(socket.fd(), SIOCETHTOOL, &request) == 0;
}

// A UdpIo of each host: a socket stays in the namespace that it was opened in.
struct Hosts {
  explicit Hosts(const tests::TwoHosts& hosts) {
    hosts.run_on(0, [&] { a = must_open(at("wire")); });
    hosts.run_on(1, [&] { b = must_open(at("10.77.0.2")); });
    bytes.resize(9000, std::byte{0x3c});
    mr = a->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
  }
  TxPacket packet(std::size_t length) const {
    TxPacket packet;
    packet.peer = peer;
    packet.header = Header(40);
    packet.payload = {mr.get(), 0, length - 40};
    return packet;
  }

  std::unique_ptr<UdpIo> a;
  std::unique_ptr<UdpIo> b;
  std::vector<std::byte> bytes;
  std::unique_ptr<Mr> mr;
  PeerId peer = 0;
};

TEST(UdpBetweenHosts, FullPacketsCrossACableOfEveryMtuAndAShrunkOneIsNoticed) {
  const tests::TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  Hosts ends(hosts);
  EXPECT_EQ(ends.a->capabilities().max_packet, 1500u - 28 - 1);
  EXPECT_GT(ends.a->link().line_rate_bps, 0u);
  // Routes are looked up in the namespace of the thread, so the calls that ask for them run there.
  hosts.run_on(0, [&] { ends.peer = ends.a->add_peer(ends.b->local()).value(); });
  hosts.run_on(1, [&] { ASSERT_TRUE(ends.b->add_peer(ends.a->local())); });
  EXPECT_EQ(ends.a->capabilities().max_packet, 1500u - 28 - 1);

  std::size_t sent = 0;
  const auto send_burst = [&] {
    std::vector<TxPacket> burst(100, ends.packet(ends.a->capabilities().max_packet));
    std::size_t taken = 0;
    while (taken < burst.size()) {
      const auto accepted = ends.a->send(std::span(burst).subspan(taken));
      if (!accepted) return accepted.error().code;
      taken += *accepted;
      sent += *accepted;
      if (taken < burst.size()) ends.a->wait(std::chrono::milliseconds(10));
    }
    return ErrorCode::kInternal;  // none
  };
  hosts.run_on(0, [&] {
    EXPECT_EQ(send_burst(), ErrorCode::kInternal);
    ASSERT_TRUE(shell("ip link set wire mtu 1280"));
    EXPECT_EQ(send_burst(), ErrorCode::kInvalidArgument);  // once, and the limit is known
    EXPECT_EQ(ends.a->capabilities().max_packet, 1280u - 28 - 1);
    EXPECT_EQ(send_burst(), ErrorCode::kInternal);
  });
  const auto taken = take(*ends.b, sent, kNeighbourWait);
  EXPECT_EQ(taken.size(), sent);
  EXPECT_EQ(sent, 200u);
  for (const Taken& one : taken) {
    ASSERT_EQ(one.header.size(), 40u);
    EXPECT_TRUE(std::ranges::all_of(one.payload, [](std::byte byte) { return byte == std::byte{0x3c}; }));
  }
}

// For senders that cut their messages for the former MTU.
TEST(UdpBetweenHosts, LongPacketsPassInFragmentsOnceAllowedAndShortOnesAreStillJoined) {
  const tests::TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  ASSERT_TRUE(hosts.set_mtu(9000));
  Hosts ends(hosts);
  const std::size_t once = ends.a->capabilities().max_packet;
  ASSERT_EQ(once, 9000u - 28 - 1);
  hosts.run_on(1, [&] { ASSERT_TRUE(ends.b->add_peer(ends.a->local())); });
  const auto send = [&](std::vector<TxPacket> burst) {
    std::size_t taken = 0;
    for (int tries = 0; tries < 1000 && taken < burst.size(); ++tries) {
      const auto accepted = ends.a->send(std::span(burst).subspan(taken));
      if (!accepted) return accepted.error().message;
      taken += *accepted;
      if (taken < burst.size()) ends.a->wait(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(taken, burst.size());
    return std::string();
  };
  const auto come = [&](std::size_t count, std::size_t length) {
    for (const Taken& one : take(*ends.b, count, kNeighbourWait)) {
      EXPECT_EQ(one.header.size() + one.payload.size(), length);
      EXPECT_TRUE(std::ranges::all_of(one.payload, [](std::byte byte) { return byte == std::byte{0x3c}; }));
      --count;
    }
    EXPECT_EQ(count, 0u);
  };
  hosts.run_on(0, [&] {
    ends.peer = ends.a->add_peer(ends.b->local()).value();
    EXPECT_FALSE(ends.a->allow_fragments()) << "nothing became smaller";
    ASSERT_TRUE(hosts.set_mtu(1500));
    EXPECT_NE(send({ends.packet(once)}), "");
    EXPECT_NE(send({ends.packet(once)}), "") << "not before it is allowed";
    EXPECT_TRUE(ends.a->allow_fragments());
    EXPECT_FALSE(ends.a->allow_fragments()) << "once";
    EXPECT_EQ(send(std::vector<TxPacket>(20, ends.packet(once))), "");
    EXPECT_NE(send({ends.packet(once + 1)}), "");
  });
  come(20, once);
  EXPECT_EQ(ends.a->counters().fragmented, 20u);

  const std::size_t fits = ends.a->capabilities().max_packet;
  ASSERT_EQ(fits, 1500u - 28 - 1);
  const std::uint64_t messages = ends.a->counters().messages_sent;
  std::vector<TxPacket> mixed(10, ends.packet(fits));
  mixed.insert(mixed.begin(), ends.packet(once));
  hosts.run_on(0, [&] { EXPECT_EQ(send(mixed), ""); });
  EXPECT_EQ(take(*ends.b, mixed.size(), kNeighbourWait).size(), mixed.size());
  EXPECT_LE(ends.a->counters().messages_sent - messages, ends.a->offloads().gso ? 3u : mixed.size());

  // A second time it shows only where packets are joined, and joining goes on with shorter ones.
  const bool joins = ends.a->offloads().gso;
  hosts.run_on(0, [&] {
    ASSERT_TRUE(hosts.set_mtu(1300));
    EXPECT_EQ(send(std::vector<TxPacket>(10, ends.packet(fits))), "");
  });
  come(10, fits);
  EXPECT_EQ(ends.a->offloads().gso, joins);
  EXPECT_EQ(ends.a->capabilities().max_packet, joins ? 1300u - 28 - 1 : fits);
  EXPECT_EQ(ends.a->counters().gso_fallbacks, joins ? 1u : 0u);
}

TEST(UdpBetweenHosts, ARouteWithASmallerMtuLowersTheLimitWhenItsPeerIsAdded) {
  const tests::TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  Hosts ends(hosts);
  hosts.run_on(0, [&] {
    ASSERT_TRUE(shell("ip route add 10.77.0.2/32 dev wire mtu 1400"));
    ends.peer = ends.a->add_peer(ends.b->local()).value();
  });
  EXPECT_EQ(ends.a->capabilities().max_packet, 1400u - 28 - 1);
}

// Without the device's checksums the kernel cuts joined messages itself, or, before 6.11, refuses them with EIO.
TEST(UdpBetweenHosts, ADeviceWithoutOffloadsLosesNothing) {
  const tests::TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  for (const std::uint32_t what : {ETHTOOL_SGSO, ETHTOOL_STXCSUM}) {
    Hosts ends(hosts);
    std::size_t sent = 0;
    hosts.run_on(0, [&] {
      ASSERT_TRUE(switch_off(what));
      ends.peer = ends.a->add_peer(ends.b->local()).value();
      ASSERT_TRUE(ends.b->add_peer(ends.a->local()));
      const std::vector<TxPacket> packets(200, ends.packet(1000));
      for (int tries = 0; tries < 1000 && sent < 200; ++tries) {
        sent += ends.a->send(std::span(packets).subspan(sent)).value();
        if (sent < 200) ends.a->wait(std::chrono::milliseconds(1));
      }
    });
    ASSERT_EQ(sent, 200u);
    EXPECT_EQ(take(*ends.b, 200, kNeighbourWait).size(), 200u);
    EXPECT_LE(ends.a->counters().gso_fallbacks, 1u);  // once is enough to know
    EXPECT_TRUE(ends.a->counters().gso_fallbacks == 0 || !ends.a->offloads().gso);
    RecordProperty("gso_fallbacks", static_cast<int>(ends.a->counters().gso_fallbacks));
  }
}

}  // namespace
}  // namespace clustar::transport::io::udp
