// What a transport counts against what a switch counted that knows nothing of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mlt/driver/mlt_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/fabric/switch_under_test.h"
#include "transport/base/system_clock.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::bench::fabric {
namespace {

using namespace transport;
using namespace transport::conformance;

constexpr std::size_t kSize = 64 << 10;
constexpr int kMessages = 300;
constexpr std::size_t kSegmentBytes = 1448;  // of TCP with timestamps

class CountersOnTheFabric : public SwitchTest {
 protected:
  using Make = std::unique_ptr<Transport> (*)(const TransportContext&);

  // Host 1 sends to host 0 by way of the port with these rules.
  void run(Make make, const PortRules& rules, const ChannelOptions& options) {
    for (auto& transport : transports_) transport.reset();
    fabric_.reset();
    fabric_ = std::make_unique<Fabric>(must_switch(200'000'000, 1 << 20, rules));
    // The switch is to see packets, not what stands for many.
    for (const int host : {0, 1}) {
      shell("ip -n " + fabric_->namespace_of(host) + " link set dev eth0 gso_max_segs 1");
    }
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=eth0";
    for (const int host : {0, 1}) {
      on_host(*fabric_, host, [&] { transports_[host] = make({config, clock_}); });
      ASSERT_NE(transports_[host], nullptr);
    }
    std::unique_ptr<Listener> listener;
    std::unique_ptr<PendingConnect> pending;
    Connection made;
    on_host(*fabric_, 0, [&] { listener = std::move(transports_[0]->listen(0, options).value()); });
    on_host(*fabric_, 1, [&] { pending = std::move(transports_[1]->connect(0, listener->handle(), options).value()); });
    ASSERT_TRUE(poll_until([&] {
      if (!made.send) on_host(*fabric_, 1, [&] { made.send = std::move(pending->poll().value()); });
      if (!made.recv) on_host(*fabric_, 0, [&] { made.recv = std::move(listener->poll_accept().value()); });
      return made.send && made.recv;
    }));
    on_host(*fabric_, 0, [&] { exchange(made); });
    made = {};
    listener.reset();
    settle();
  }

  static void exchange(Connection& connection) {
    SendBuffer from(*connection.send, kSize, 5);
    RecvBuffer to(*connection.recv, kSize);
    for (int i = 0; i < kMessages; ++i) {
      Request* sent = must_send(*connection.send, *from.mr, 0, kSize);
      Request* received = must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}});
      bool sending = true, receiving = true;
      ASSERT_TRUE(poll_until([&] {
        if (sending) sending = !sent->test().value().done;
        if (receiving) receiving = !received->test().value().done;
        return !sending && !receiving;
      })) << "message "
          << i;
    }
  }

  // Until nothing passes any more.
  void settle() {
    std::uint64_t before = 0;
    EXPECT_TRUE(poll_until([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const std::uint64_t now = counters(*fabric_).to_host().packets + counters(*fabric_, 1).to_host().packets;
      return std::exchange(before, now) == now;
    }));
  }

  DeviceCounters counted(int host) const {
    const Counters all = transports_[host]->counters();
    EXPECT_EQ(all.devices.size(), 1u);
    return all.devices.at(0);
  }

  SystemClock clock_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Transport> transports_[2];
};

PortRules losses_and_marks() {
  PortRules rules;
  rules.to_host.random = 0.01;
  for (ClassRules& one : rules.classes) {
    one.mark_min_bytes = one.mark_max_bytes = 2'000;
    one.mark_probability = 1;
  }
  return rules;
}

std::unique_ptr<Transport> mlt(const TransportContext& context) {
  return mlt::driver::MltTransport::create(context, io::udp::UdpBackend::create(context.config).value()).value();
}

std::unique_ptr<Transport> tcp(const TransportContext& context) { return tcp::TcpTransport::create(context).value(); }

TEST_F(CountersOnTheFabric, MltsAgreeWithTheSwitch) {
  run(mlt, losses_and_marks(), {});
  const DeviceCounters sender = counted(1), receiver = counted(0);
  EXPECT_EQ(sender.total.sent, (transport::Traffic{kMessages, kMessages * kSize}));
  EXPECT_EQ(receiver.total.received, sender.total.sent);
  // Its classes are those above 0; what the control connection sends once it is one is in the highest.
  constexpr std::uint64_t kControl = 8;
  ClassCounters data;
  const PortCounters port = counters(*fabric_);
  for (int i = 1; i < kClasses; ++i) data += port.classes[static_cast<std::size_t>(i)];
  const std::uint64_t control = data.packets + data.dropped() - sender.packets_sent;
  EXPECT_LE(control, kControl);
  EXPECT_LE(data.packets - receiver.packets_received, control);
  EXPECT_EQ(data.marked, receiver.marked);
  EXPECT_GT(data.marked, 0u);
  EXPECT_GT(data.dropped(), 50u);
  // What was lost went again, but probes.
  EXPECT_GE(sender.retransmitted + 10, data.dropped());
  EXPECT_EQ(sender.total.missing_bytes, 0u);
}

// On a machine that others use what only comes late goes again, too: one run in which nobody stood still is enough.
TEST_F(CountersOnTheFabric, MltSendsAgainAboutWhatTheSwitchDropped) {
  std::uint64_t resent = 0, most = 0;
  for (int attempt = 0; attempt < 8 && (attempt == 0 || resent > most); ++attempt) {
    run(mlt, losses_and_marks(), {});
    ClassCounters data;
    const PortCounters port = counters(*fabric_);
    for (int i = 1; i < kClasses; ++i) data += port.classes[static_cast<std::size_t>(i)];
    resent = counted(1).retransmitted;
    most = 2 * data.dropped() + 50;
  }
  EXPECT_LE(resent, most);
}

TEST_F(CountersOnTheFabric, TcpsAgreeWithTheSwitchByClass) {
  ChannelOptions options;
  options.traffic_class = 160;  // DSCP 40: class 5
  run(tcp, losses_and_marks(), options);
  const DeviceCounters sender = counted(1), receiver = counted(0);
  ASSERT_EQ(sender.classes.size(), 1u);
  EXPECT_EQ(sender.classes[0].traffic_class, 160);
  EXPECT_EQ(sender.classes[0].traffic.sent, (transport::Traffic{kMessages, kMessages * kSize}));
  EXPECT_EQ(receiver.total.received, sender.total.sent);
  const ClassCounters data = counters(*fabric_).classes[5];
  const std::uint64_t bytes = kMessages * kSize;
  EXPECT_GE(data.bytes, bytes);
  EXPECT_LE(data.bytes, bytes + (data.packets + 100) * 100 + sender.retransmitted * kSegmentBytes);
  EXPECT_GT(data.dropped(), 50u);
  EXPECT_GE(sender.retransmitted + 10, data.dropped());
}

// As above: the kernel, too, sends again what only comes late, and what was lost twice.
TEST_F(CountersOnTheFabric, TcpSendsAgainAboutWhatTheSwitchDropped) {
  ChannelOptions options;
  options.traffic_class = 160;
  std::uint64_t resent = 0, most = 0;
  for (int attempt = 0; attempt < 8 && (attempt == 0 || resent > most); ++attempt) {
    run(tcp, losses_and_marks(), options);
    resent = counted(1).retransmitted;
    most = 2 * counters(*fabric_).classes[5].dropped() + 50;
  }
  EXPECT_LE(resent, most);
}

}  // namespace
}  // namespace clustar::bench::fabric
