// MLT between two hosts: what loopback does not show. An MTU that becomes smaller while connections are up, and a
// transport with two networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <random>
#include <thread>

#include "tests/conformance/mlt_bed.h"
#include "tests/conformance/udp_io_pair.h"
#include "tests/fabric/two_hosts.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/io/udp/udp_io.h"
#include "transport/net/interfaces.h"
#include "transport/net/settings.h"

namespace clustar::tests {
namespace {

using namespace transport;
using namespace transport::conformance;
using ::testing::HasSubstr;

constexpr std::size_t kSize = 4 << 20;

class MltHosts : public MltBed {
 protected:
  // Each end belongs to a thread in its host: devices ask the routes of the thread's network. The thread of the engine
  // is there, too, since it starts there.
  void start(const TwoHosts& hosts, std::uint32_t engines_of_first = 1) {
    for (int host : {0, 1}) {
      hosts.run_on(host, [&] {
        transports_[host] = create({.interfaces = "=wire", .engines = host == 0 ? engines_of_first : 1});
      });
    }
  }
  Connection join(const TwoHosts& hosts, int from, std::uint64_t communicator = 0) {
    const ChannelOptions options{.comm_id = communicator};
    Connection made;
    std::unique_ptr<Listener> listener;
    hosts.run_on(1 - from, [&] { listener = std::move(transports_[1 - from]->listen(0, options).value()); });
    std::unique_ptr<PendingConnect> pending;
    hosts.run_on(from,
                 [&] { pending = std::move(transports_[from]->connect(0, listener->handle(), options).value()); });
    EXPECT_TRUE(poll_until([&] {
      if (!made.send) hosts.run_on(from, [&] { made.send = std::move(pending->poll().value()); });
      if (!made.recv) hosts.run_on(1 - from, [&] { made.recv = std::move(listener->poll_accept().value()); });
      return made.send && made.recv;
    }));
    return made;
  }
  // `messages` of kSize, and as many more after `between`, which runs while they are under way.
  static void stream(const TwoHosts& hosts, int from_host, Connection& connection, int messages,
                     const std::function<void()>& between = {}) {
    std::atomic<int> arrived{0};
    std::atomic<int> goal{between ? std::numeric_limits<int>::max() : messages};
    std::vector<std::byte> expected(kSize);  // what SendBuffer holds
    std::mt19937 random(5);
    for (std::byte& byte : expected) byte = static_cast<std::byte>(random());
    std::thread sender([&] {
      hosts.run_on(from_host, [&] {
        SendBuffer from(*connection.send, kSize, 5);
        for (int i = 0; i < goal && !HasFailure(); ++i) finish({must_send(*connection.send, *from.mr, 0, kSize)});
      });
    });
    std::thread receiver([&] {
      hosts.run_on(1 - from_host, [&] {
        for (int i = 0; i < goal && !HasFailure(); ++i) {
          RecvBuffer to(*connection.recv, kSize);
          finish({must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}})});
          ASSERT_TRUE(to.bytes == expected) << "message " << i;
          arrived = i + 1;
        }
      });
    });
    if (between) {
      EXPECT_TRUE(poll_until([&] { return arrived >= messages || HasFailure(); }));
      between();
      goal = arrived + messages;  // neither end is more than one message ahead of the other
    }
    sender.join();
    receiver.join();
  }

  std::unique_ptr<Transport> transports_[2];
};

TEST_F(MltHosts, AnMtuThatBecomesSmallerInMidTransferCostsFragmentsAndNewConnectionsSendShorterPackets) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  ASSERT_TRUE(hosts.set_mtu(9000));
  start(hosts);
  Connection old = join(hosts, 0);
  stream(hosts, 0, old, 3);
  EXPECT_EQ(transports_[0]->summary().find("fragments"), std::string::npos) << transports_[0]->summary();
  stream(hosts, 0, old, 15, [&] { ASSERT_TRUE(hosts.set_mtu(1500)); });
  const std::uint64_t fragmented = count(transports_[0]->summary(), " sent in fragments");
  EXPECT_GT(fragmented, kSize / 9000) << transports_[0]->summary();
  const std::string warnings = take_warnings();
  EXPECT_THAT(warnings, HasSubstr("now 1471"));
  EXPECT_EQ(warnings.find("IP fragments"), warnings.rfind("IP fragments")) << "once: " << warnings;

  Connection again = join(hosts, 0);
  stream(hosts, 0, again, 3);
  EXPECT_EQ(count(transports_[0]->summary(), " sent in fragments"), fragmented) << "a new connection needs none";
  stream(hosts, 0, old, 3);
  EXPECT_GT(count(transports_[0]->summary(), " sent in fragments"), fragmented);
  EXPECT_EQ(take_warnings(), "");
}

// The MTU is lowered where no data is sent from: that end only acknowledges, so it never learns of it.
TEST_F(MltHosts, ConnectionsAgreeThoughOnlyOneEndHasNoticedTheSmallerMtu) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  ASSERT_TRUE(hosts.set_mtu(9000));
  start(hosts);
  Connection old = join(hosts, 0);
  stream(hosts, 0, old, 2);
  ASSERT_TRUE(hosts.set_mtu(1500));
  stream(hosts, 0, old, 2);
  Connection back = join(hosts, 1);
  stream(hosts, 1, back, 2);
  stream(hosts, 0, old, 2);
}

// A NIC tells its peers one length of packets, whichever of its engines a connection gets, and when that was opened.
TEST_F(MltHosts, AnEngineThatIsOpenedAfterTheMtuChangedAgreesWithThePeersOlderOne) {
  for (const auto& [before, after] : {std::pair(9000, 1500), std::pair(1500, 9000)}) {
    const TwoHosts hosts;
    if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
    ASSERT_TRUE(hosts.set_mtu(before));
    start(hosts, 2);
    {
      Connection old = join(hosts, 0, 1);
      stream(hosts, 0, old, 2);
      ASSERT_TRUE(hosts.set_mtu(after));
      Connection later = join(hosts, 0, 2);
      stream(hosts, 0, later, 2);
      Connection back = join(hosts, 1, 2);
      stream(hosts, 1, back, 2);
    }
    for (auto& transport : transports_) transport.reset();
  }
}

class CountedIo final : public io::ForwardingIo {
 public:
  explicit CountedIo(std::unique_ptr<io::udp::UdpIo> udp)
      : ForwardingIo(std::move(udp)), udp_(static_cast<io::udp::UdpIo&>(inner())) {}
  std::string describe() const override { return std::to_string(udp_.counters().back_pressure) + " times full"; }

 private:
  io::udp::UdpIo& udp_;
};

// UDP with options of the test.
class TinyBackend final : public io::PacketBackend {
 public:
  TinyBackend(std::unique_ptr<io::PacketBackend> usual, io::udp::UdpOptions options)
      : usual_(std::move(usual)), options_(std::move(options)) {}
  const char* name() const override { return usual_->name(); }
  Result<std::vector<io::DeviceInfo>> devices() override { return usual_->devices(); }
  Result<std::unique_ptr<io::PacketIo>> open(std::size_t) override {
    auto opened = io::udp::UdpIo::open(options_);
    if (!opened) return tl::unexpected(opened.error());
    return std::make_unique<CountedIo>(std::move(*opened));
  }

 private:
  const std::unique_ptr<io::PacketBackend> usual_;
  const io::udp::UdpOptions options_;
};

// A socket's buffer of a few packets in front of a slow line: the driver waits for room, and what it waits with is
// neither lost nor overtaken.
TEST_F(MltHosts, AFullSocketIsBackPressureAndNotLoss) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  const auto tiny = [](const Config& config) -> Result<std::unique_ptr<io::PacketBackend>> {
    const net::Address local =
        net::find_interfaces(config.get<NetworkSettings>().interfaces, net::Family::kIpv4)->front().addresses.front();
    io::udp::UdpOptions options;
    options.local = local.to_string().substr(0, local.to_string().find(':'));
    options.paths = 4;
    options.send_buffer_bytes = 1;  // the kernel's least
    options.allow_gso = false;
    return std::make_unique<TinyBackend>(io::udp::UdpBackend::create(config).value(), options);
  };
  bool slow = false;
  hosts.run_on(0, [&] { slow = io::udp::shell("tc qdisc add dev wire root tbf rate 200mbit burst 16kb limit 8mb"); });
  if (!slow) GTEST_SKIP() << "needs tc of iproute2, and a kernel with the qdisc tbf";
  for (int host : {0, 1}) {
    hosts.run_on(host, [&] { transports_[host] = create({.interfaces = "=wire", .backend = tiny}); });
  }
  Connection connection = join(hosts, 0);
  stream(hosts, 0, connection, 3);
  const std::string sent = transports_[0]->summary();
  EXPECT_GT(count(sent, " times full"), 0u) << "it never was: " << sent;
  EXPECT_TRUE(poll_until([&] {
    return count(transports_[0]->summary(), " packets sent") == count(transports_[1]->summary(), " received, ");
  })) << "some were lost: "
      << sent << transports_[1]->summary();
  RecordProperty("again", static_cast<int>(count(sent, " of them again")));
}

TEST_F(MltHosts, TwoNetworksOfOneTransportCarryTheirOwnConnections) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  ASSERT_TRUE(hosts.add_nic(0, "spare", "10.78.0.1/24"));
  hosts.run_on(0, [&] {
    const auto transport = create({.interfaces = "=spare,wire"});
    ASSERT_EQ(transport->devices().size(), 2u);
    std::vector<Connection> connections;
    for (int device = 0; device < 2; ++device) {
      const auto listener = std::move(transport->listen(device, {}).value());
      const auto pending = std::move(transport->connect(device, listener->handle(), {}).value());
      Connection& made = connections.emplace_back();
      ASSERT_TRUE(poll_until([&] {
        if (!made.send) made.send = std::move(pending->poll().value());
        if (!made.recv) made.recv = std::move(listener->poll_accept().value());
        return made.send && made.recv;
      }));
    }
    for (int round = 0; round < 3; ++round) {
      for (Connection& connection : connections) transfer(connection, 1 << 20);
    }
    EXPECT_EQ(count(transport->summary(), " messages / "), 3u);
    EXPECT_THAT(transport->summary(), ::testing::AllOf(HasSubstr("wire sent 3 "), HasSubstr("spare sent 3 ")));
    // Crosswise: what listens on one network is reached from the other's device as far as routes lead.
    const auto listener = std::move(transport->listen(1, {}).value());
    const auto pending = std::move(transport->connect(0, listener->handle(), {}).value());
    Connection cross;
    ASSERT_TRUE(poll_until([&] {
      if (!cross.send) cross.send = std::move(pending->poll().value());
      if (!cross.recv) cross.recv = std::move(listener->poll_accept().value());
      return cross.send && cross.recv;
    }));
    transfer(cross, 1 << 20);
    connections.clear();
  });
}

}  // namespace
}  // namespace clustar::tests
