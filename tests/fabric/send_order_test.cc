// Who goes first, read on the wire: eight connections of three classes over a slow line, by TCP and by MLT over UDP.
#include <dirent.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "mlt/driver/mlt_transport.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/dscp_sniffer.h"
#include "tests/fabric/two_hosts.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/io/udp/udp_backend.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::tests {
namespace {

using namespace transport;
using namespace transport::conformance;

constexpr std::size_t kConnections = 8;
constexpr std::array<int, kConnections> kClasses{0, 0, 0, 0, 0, 96, 96, 160};
constexpr std::size_t kBulk = 4 << 20;
constexpr std::size_t kUrgent = 16 * 1024;
constexpr std::size_t kTop = kConnections - 1;
constexpr std::chrono::microseconds kOneChunkOnTheLine{16 * 1024 * 8 / 1000};  // 1 Gbit/s
constexpr std::size_t bytes_of(std::size_t connection) { return connection == kTop ? kUrgent : kBulk; }

// Of all sockets that this process has when it is made: what the kernel holds that can be overtaken by nothing. Of UDP
// all that has not left the host, with the kernel's bookkeeping; of TCP what was never sent.
class HeldByKernel {
 public:
  HeldByKernel() {
    DIR* const folder = opendir("/proc/self/fd");
    while (const dirent* entry = readdir(folder)) {
      const int fd = std::atoi(entry->d_name);
      int type = 0;
      socklen_t length = sizeof type;
      if (fd == 0 || getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0) continue;
      sockets_.emplace_back(fd, type == SOCK_STREAM ? SIOCOUTQNSD : SIOCOUTQ);
    }
    closedir(folder);
  }
  // The sockets are asked one after the other, and what moves meanwhile may be counted twice: a look that took longer
  // than the line takes for a chunk is none.
  std::optional<std::uint64_t> bytes() const {
    const auto begin = std::chrono::steady_clock::now();
    std::uint64_t sum = 0;
    for (const auto& [fd, request] : sockets_) {
      int bytes = 0;
      if (ioctl(fd, request, &bytes) == 0) sum += static_cast<std::uint64_t>(bytes);
    }
    if (std::chrono::steady_clock::now() - begin > kOneChunkOnTheLine) return std::nullopt;
    return sum;
  }

 private:
  std::vector<std::pair<int, unsigned long>> sockets_;
};

using Make = Result<std::unique_ptr<Transport>> (*)(const Config&, const Clock&);
struct Case {
  const char* name;
  Make make;
  // What the line of a virtual cable, as the transport takes it, carries in so many microseconds is 25,000 bytes.
  int ahead_us;
  std::uint64_t bookkeeping;  // the kernel's, in percent of the bytes that it holds
};
Result<std::unique_ptr<Transport>> make_tcp(const Config& config, const Clock& clock) {
  return tcp::TcpTransport::create({config, clock});
}
Result<std::unique_ptr<Transport>> make_mlt(const Config& config, const Clock& clock) {
  auto backend = io::udp::UdpBackend::create(config);
  if (!backend) return tl::unexpected(backend.error());
  return mlt::driver::MltTransport::create({config, clock}, std::move(*backend));
}

struct Trial {
  std::vector<std::size_t> order;     // of connections, by when their messages had arrived
  std::uint64_t most_held = 0;        // by the kernel, at any time that was looked
  std::uint64_t looks = 0;            // that count
  std::uint64_t bulk_before_top = 0;  // bytes of others on the wire between the top message's send and its end
  std::uint64_t top_dscp = 0;         // bytes that went with its class in the IP header
  double top_ms = 0;
};

// Bulk of seven connections fills the line; the top message is sent when a part of it has passed.
class Line {
 public:
  Line(const TwoHosts& hosts, const Case& which, const Config& config) : hosts_(hosts) {
    hosts.run_on(1, [&] { sniffer_.emplace(DscpSniffer::open("wire"), kClasses[kTop], kUrgent); });
    hosts.run_on(0,
                 [] { ASSERT_EQ(std::system("tc qdisc add dev wire root tbf rate 1gbit burst 64kb limit 8mb"), 0); });
    hosts.run_on(1, [&] { right_ = std::move(which.make(config, clock_).value()); });
    hosts.run_on(0, [&] { left_ = std::move(which.make(config, clock_).value()); });
    for (std::size_t i = 0; i < kConnections; ++i) {
      ChannelOptions options;
      options.traffic_class = kClasses[i];
      std::unique_ptr<Listener> listener;
      std::unique_ptr<PendingConnect> pending;
      hosts.run_on(1, [&] { listener = std::move(right_->listen(0, options).value()); });
      hosts.run_on(0, [&] {
        pending = std::move(left_->connect(0, listener->handle(), options).value());
        ASSERT_TRUE(poll_until([&] {
          if (!ends_[i].send) ends_[i].send = std::move(pending->poll().value());
          if (!ends_[i].recv) ends_[i].recv = std::move(listener->poll_accept().value());
          return ends_[i].send && ends_[i].recv;
        }));
      });
      from_.push_back(std::make_unique<SendBuffer>(*ends_[i].send, bytes_of(i), static_cast<unsigned>(i)));
      to_.push_back(std::make_unique<RecvBuffer>(*ends_[i].recv, bytes_of(i)));
      receives_[i] = must_recv(*ends_[i].recv, {{to_[i]->mr.get(), 0, bytes_of(i), 0}});
    }
  }

  Trial run() {
    Trial trial;
    const HeldByKernel held;
    // What of the top class had to be said to connect.
    const std::uint64_t dscp_before = sniffer_->seen(kClasses[kTop]);
    std::thread receiver([&] { receive(trial); });
    for (std::size_t i = 0; i < kTop; ++i) send(i);
    std::uint64_t bulk_at_send = 0;
    bool sent = false;
    std::chrono::steady_clock::time_point sent_at;
    poll_until([&] {
      if (const auto bytes = held.bytes()) {
        trial.most_held = std::max(trial.most_held, *bytes);
        ++trial.looks;
      }
      if (!sent && sniffer_->others() > kBulk / 4) {
        sent = true;
        bulk_at_send = sniffer_->others();
        sent_at = std::chrono::steady_clock::now();
        send(kTop);
      }
      if (top_done_ && trial.top_ms == 0) {
        trial.top_ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - sent_at).count();
      }
      return test_sends() == 0 && top_done_;
    });
    receiver.join();
    // Not as they come: to compare 4 MiB takes milliseconds, in which a receiver's window shuts.
    for (std::size_t i = 0; i < kConnections; ++i) EXPECT_EQ(to_[i]->bytes, from_[i]->bytes);
    EXPECT_TRUE(poll_until([&] { return sniffer_->others_when_top_had_passed() > 0; }));  // it may be behind
    trial.bulk_before_top = sniffer_->others_when_top_had_passed() - bulk_at_send;
    trial.top_dscp = sniffer_->seen(kClasses[kTop]) - dscp_before;
    return trial;
  }

 private:
  void send(std::size_t i) {
    FlowTag flow;
    flow.traffic_class = static_cast<std::uint8_t>(kClasses[i]);
    flow.coflow = 1 + i;
    Request* request = nullptr;
    poll_until([&] {
      request = ends_[i].send->send(*from_[i]->mr, 0, bytes_of(i), 0, flow).value();
      return request != nullptr;
    });
    sends_[i] = request;
  }
  std::size_t test_sends() {
    std::size_t open = 0;
    for (Request*& request : sends_) {
      if (request != nullptr && request->test().value().done) request = nullptr;
      if (request != nullptr) ++open;
    }
    return open;
  }
  void receive(Trial& trial) {
    poll_until([&] {
      for (std::size_t i = 0; i < kConnections; ++i) {
        if (receives_[i] == nullptr || !receives_[i]->test().value().done) continue;
        receives_[i] = nullptr;
        trial.order.push_back(i);
        if (i == kTop) top_done_ = true;
      }
      return trial.order.size() == kConnections;
    });
  }

  const TwoHosts& hosts_;
  std::optional<DscpSniffer> sniffer_;
  SystemClock clock_;
  std::unique_ptr<Transport> left_, right_;
  std::array<Connection, kConnections> ends_;
  std::vector<std::unique_ptr<SendBuffer>> from_;
  std::vector<std::unique_ptr<RecvBuffer>> to_;
  std::array<Request*, kConnections> sends_{}, receives_{};
  std::atomic<bool> top_done_{false};
};

class SendOrder : public testing::TestWithParam<Case> {};

Config config_of(const char* order, int ahead_us) {
  Config config;
  config.edit<NetworkSettings>()->interfaces = "=wire";
  config.edit<SendOrderSettings>()->order = order;
  config.edit<SendOrderSettings>()->ahead_us = ahead_us;
  return config;
}

TEST_P(SendOrder, TheTopClassOvertakesAndTheKernelHoldsLittle) {
  const auto trial = [&](const char* order, int ahead_us, Trial& result) {
    const TwoHosts hosts;
    if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
    Line line(hosts, GetParam(), config_of(order, ahead_us));
    result = line.run();
    std::printf("%s, %s, %d us ahead: kernel held %llu bytes at most, %llu of others passed before 16 KiB, %.2f ms\n",
                GetParam().name, order, ahead_us, static_cast<unsigned long long>(result.most_held),
                static_cast<unsigned long long>(result.bulk_before_top), result.top_ms);
  };
  Trial fifo, ordered, unbounded;
  trial("fifo", GetParam().ahead_us, fifo);
  if (IsSkipped()) return;
  // What the line carries in the time, 16 KiB, and two chunks: the one that was begun, and what moves between two
  // sockets that are asked one after the other.
  const std::uint64_t bound = (16 * 1024 + 25'000 + 2 * 16 * 1024) * (100 + GetParam().bookkeeping) / 100;
  const auto second_class_is_second = [](const Trial& one) {
    return one.order.size() == kConnections &&
           std::ranges::all_of(one.order.begin() + 1, one.order.begin() + 3, [](auto i) { return kClasses[i] == 96; });
  };
  // On a busy machine a process may not run for some milliseconds, and then takes all connections for stuck, or looks
  // too seldom: it has some runs to show what it can.
  constexpr int kRuns = 8;
  constexpr std::uint64_t kLooks = 200;  // a run takes a quarter of a second
  const auto shown = [&] {
    return ordered.looks >= kLooks && ordered.most_held <= bound && second_class_is_second(ordered) &&
           ordered.order.front() == kTop && ordered.bulk_before_top < fifo.bulk_before_top / 2;
  };
  for (int runs = 0; runs < kRuns && !shown(); ++runs) {
    ordered = {};
    trial("class", GetParam().ahead_us, ordered);
  }
  for (int runs = 0; runs < kRuns && unbounded.most_held <= bound; ++runs) {
    unbounded = {};
    trial("class", 0, unbounded);
  }
  ASSERT_EQ(ordered.order.size(), kConnections);
  EXPECT_EQ(ordered.order.front(), kTop) << "ahead of all that was posted before";
  EXPECT_TRUE(second_class_is_second(ordered));
  EXPECT_GE(ordered.looks, kLooks);
  EXPECT_LE(ordered.most_held, bound);
  EXPECT_GT(unbounded.most_held, bound) << "or the bound bounds nothing";
  EXPECT_LT(ordered.bulk_before_top, fifo.bulk_before_top / 2) << "on the wire";
  EXPECT_GE(ordered.top_dscp, kUrgent) << "the communicator's class is in the IP headers";
}

INSTANTIATE_TEST_SUITE_P(Over, SendOrder, testing::Values(Case{"tcp", make_tcp, 20, 0}, Case{"mlt", make_mlt, 2, 100}),
                         [](const auto& which) { return which.param.name; });

}  // namespace
}  // namespace clustar::tests
