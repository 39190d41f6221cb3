// Who goes first by RC, read on the wire: eight connections of three classes over a slow cable.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tests/conformance/transport_under_test.h"
#include "tests/dscp_sniffer.h"
#include "tests/rdma/cable.h"
#include "tests/rdma/link.h"

namespace clustar::transport::conformance {
namespace {

using tests::Cable;
using tests::DscpSniffer;
using tests::Netem;

constexpr std::size_t kConnections = 8;
constexpr std::array<int, kConnections> kClasses{0, 0, 0, 0, 0, 96, 96, 160};
constexpr std::size_t kTop = kConnections - 1;
constexpr std::size_t kBulk = 1 << 20;
constexpr std::size_t kUrgent = 16 * 1024;
constexpr std::size_t bytes_of(std::size_t connection) { return connection == kTop ? kUrgent : kBulk; }

struct Trial {
  std::vector<std::size_t> order;       // of connections, by when their messages had arrived
  std::uint64_t others_before_top = 0;  // bytes on the wire between the top message's send and its end
  std::uint64_t top_bytes = 0;          // that carried its class
};

Trial run(const char* send_order, std::chrono::microseconds ahead) {
  const Netem slow("rate 100mbit");
  auto made = Cable::make([&](verbs::Settings& settings) { settings.send_ahead = ahead; }, Log(), send_order);
  if (!made) throw std::runtime_error(made.error().message);
  Cable& cable = **made;
  std::array<Connection, kConnections> ends;
  std::vector<std::unique_ptr<SendBuffer>> from;
  std::vector<std::unique_ptr<RecvBuffer>> to;
  std::array<Request*, kConnections> sends{}, receives{};
  for (std::size_t i = 0; i < kConnections; ++i) {
    ChannelOptions options;
    options.traffic_class = kClasses[i];
    ends[i] = connect(cable, cable, options);
    from.push_back(std::make_unique<SendBuffer>(*ends[i].send, bytes_of(i), static_cast<unsigned>(i)));
    to.push_back(std::make_unique<RecvBuffer>(*ends[i].recv, bytes_of(i)));
    receives[i] = must_recv(*ends[i].recv, {{to[i]->mr.get(), 0, bytes_of(i), 0}});
  }
  const DscpSniffer wire(DscpSniffer::open("vb"), kClasses[kTop], kUrgent);
  const auto send = [&](std::size_t i) {
    FlowTag flow;
    flow.traffic_class = static_cast<std::uint8_t>(kClasses[i]);
    flow.coflow = 1 + i;
    sends[i] = must_send(*ends[i].send, *from[i]->mr, 0, bytes_of(i), 0, flow);
  };
  for (std::size_t i = 0; i < kTop; ++i) send(i);
  Trial trial;
  std::optional<std::uint64_t> at_send;
  const bool finished = poll_until(
      [&] {
        if (!at_send && wire.others() > kBulk) {
          at_send = wire.others();
          send(kTop);
        }
        for (Request*& one : sends) {
          if (one != nullptr && one->test().value().done) one = nullptr;
        }
        // The top class first: of those that ended since the last look nobody knows the order. The wire does, below.
        for (std::size_t i = kConnections; i-- > 0;) {
          if (receives[i] == nullptr || !receives[i]->test().value().done) continue;
          receives[i] = nullptr;
          trial.order.push_back(i);
          EXPECT_EQ(to[i]->bytes, from[i]->bytes);
        }
        return trial.order.size() == kConnections;
      },
      std::chrono::seconds(60));
  EXPECT_TRUE(finished);
  EXPECT_TRUE(poll_until([&] { return wire.others_when_top_had_passed() > 0; }));  // it may be behind
  trial.others_before_top = wire.others_when_top_had_passed() - at_send.value_or(0);
  trial.top_bytes = wire.seen(kClasses[kTop]);
  std::printf("verbs, %s, %lld us ahead: %llu bytes of others passed before 16 KiB\n", send_order,
              static_cast<long long>(ahead.count()), static_cast<unsigned long long>(trial.others_before_top));
  return trial;
}

TEST(RcSendOrder, TheTopClassOvertakesWhatWasPostedBefore) {
  ASSERT_EQ(tests::why_no_devices(), "");
  using std::chrono::microseconds;
  const Trial fifo = run("fifo", microseconds(20));
  const Trial unbounded = run("class", microseconds(0));
  // What the sniffer is behind by counts as what passed: one run in which it is not is enough.
  Trial ordered;
  for (int attempt = 0; attempt < 4; ++attempt) {
    ordered = run("class", microseconds(20));
    ASSERT_EQ(ordered.order.size(), kConnections);
    EXPECT_EQ(ordered.order.front(), kTop);
    EXPECT_EQ(kClasses[ordered.order[1]], 96);
    EXPECT_EQ(kClasses[ordered.order[2]], 96);
    if (ordered.others_before_top < std::min(fifo.others_before_top / 2, unbounded.others_before_top)) break;
  }
  EXPECT_LT(ordered.others_before_top, fifo.others_before_top / 2);
  EXPECT_LT(ordered.others_before_top, unbounded.others_before_top) << "or the bound bounds nothing";
  EXPECT_GE(ordered.top_bytes, kUrgent) << "the communicator's class is in the IP headers";
}

}  // namespace
}  // namespace clustar::transport::conformance
