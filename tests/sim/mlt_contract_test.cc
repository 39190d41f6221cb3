// The loss contract on a simulated edge, and errors that the sweep found, each by itself.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <tuple>

#include "tests/sim/mlt_world.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint32_t kPpm = 10'000;
constexpr std::uint32_t kMessageBytes = 256 * 1024;

struct TwoHosts {
  explicit TwoHosts(Options given = {}, std::uint64_t seed = 1) : simulation({seed, 66}), options(given) {
    sim::StarOptions star;
    star.link.delay = Duration(2500);
    star.switches.mark_above = sim::every_class<std::uint64_t>(65 * 1500);
    star.host.tx_queue_packets = 4;
    network = sim::Network::star(simulation, star);
    options.base_rtt = microseconds(10);
    world = std::make_unique<World>(simulation, *network, options, seed);
  }
  ~TwoHosts() {
    for (const std::string& what : world->violations()) ADD_FAILURE() << what;
  }
  std::uint64_t missing() const {
    std::uint64_t sum = 0;
    for (const Finished& done : world->finished()) sum += done.missing;
    return sum;
  }

  sim::Simulation simulation;
  Options options;
  std::unique_ptr<sim::Network> network;
  std::unique_ptr<World> world;
};

SendTerms terms_of(std::uint16_t ranks, std::uint16_t stage, std::uint32_t ppm = kPpm) {
  SendTerms terms;
  terms.tolerant = true;
  terms.stage = stage;
  terms.communicator = 1;
  terms.collective = 1;
  terms.ranks = terms.edges = ranks;
  terms.collective_bytes = std::uint64_t{ranks} * 2 * kMessageBytes;
  terms.tolerance_ppm = ppm;
  return terms;
}

class LossOnRings : public testing::TestWithParam<std::tuple<int, int>> {};

// All stages of a ring ReduceScatter over one edge; two messages a stage.
TEST_P(LossOnRings, SomeLossIsToleratedWhenTheNetworkLosesTwiceAsMuch) {
  const auto ranks = static_cast<std::uint16_t>(std::get<0>(GetParam()));
  Options options;
  options.segment = static_cast<std::uint16_t>(std::get<1>(GetParam()));
  TwoHosts hosts(options);
  hosts.network->down(1).faults().add(sim::RandomLoss{2.0 * kPpm / 1e6});
  for (std::uint16_t stage = 0; stage + 1 < ranks; ++stage) {
    hosts.world->transfer(0, 1, kMessageBytes, terms_of(ranks, stage));
    hosts.world->transfer(0, 1, kMessageBytes, terms_of(ranks, stage));
    ASSERT_TRUE(hosts.world->finish());
  }
  EXPECT_GT(hosts.missing(), 0u);
  const Ledger* ledger = hosts.world->host(1).core().ledgers().find({1, 1});
  ASSERT_NE(ledger, nullptr);
  EXPECT_LE(ledger->counters().charged, ledger->bound());
  EXPECT_EQ(ledger->counters().missing_bytes, hosts.missing());
  EXPECT_LE(hosts.missing() * 1'000'000, ledger->counters().eligible_bytes * kPpm);
}

INSTANTIATE_TEST_SUITE_P(Rings, LossOnRings,
                         testing::Combine(testing::Values(4, 8, 16, 64), testing::Values(1408, 8900)));

TEST(LossContract, ASenderThatFreezesLosesNothing) {
  for (const std::uint16_t segment : {1408, 8900}) {
    for (int at = 1; at < 120; at += 7) {
      Options options;
      options.segment = segment;
      TwoHosts hosts(options);
      hosts.network->host(0).freeze(TimePoint(microseconds(at)), TimePoint(microseconds(at) + milliseconds(50)));
      for (int i = 0; i < 4; ++i) hosts.world->transfer(0, 1, kMessageBytes, terms_of(4, 0, 100'000));
      EXPECT_TRUE(hosts.world->finish());
      EXPECT_EQ(hosts.missing(), 0u) << "frozen at " << at << " us";
    }
  }
}

TEST(MltPaths, APathThatIsDeadFromTheBeginningCostsNoMoreThanProbes) {
  for (const std::uint8_t paths : {2, 8, 32}) {
    for (int dead = 0; dead < paths; dead += 5) {
      Options options;
      options.paths = paths;
      TwoHosts hosts(options);
      for (std::uint32_t host = 0; host < 2; ++host) {
        hosts.network->up(host).faults().add(sim::LinkDown{}, {dead, -1, {}});
      }
      for (int i = 0; i < 20; ++i) {
        hosts.world->transfer(0, 1, 20'000);
        ASSERT_TRUE(hosts.world->finish(milliseconds(100))) << "path " << dead << " of " << +paths << ", message " << i;
      }
    }
  }
}

// Two endpoints with nothing between them.
class Direct {
 public:
  explicit Direct(const Options& given) : options(given), from(options, 1), to(options, 2) {
    sender = from.open_sender(2, kSecret, now);
    receiver = to.open_receiver(1, kSecret, now);
  }
  // For so long, and until nothing is left to say.
  void run(Duration time) {
    const TimePoint until = now + time;
    while (true) {
      while (pass(from, to) + pass(to, from) > 0) {
      }
      const TimePoint next = std::min(from.next_timeout(), to.next_timeout());
      if (next > until) break;
      now = std::max(next, now + Duration(1));
      from.on_timeout(now);
      to.on_timeout(now);
    }
    now = until;
  }
  std::size_t pass(Endpoint& a, Endpoint& b) {
    std::size_t passed = 0;
    while (const auto out = a.poll_transmit(now)) {
      std::array<std::byte, kMaxHeader> bytes{};
      const std::size_t size = serialize(out->transmit.header, bytes);
      b.on_packet(std::span(bytes).first(size), out->transmit.length, false, now);
      ++passed;
      events();
    }
    return passed;
  }
  void events() {
    while (const auto event = to.poll_event()) {
      if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event->what)) {
        to.receiver(receiver).unstaged(unstage->receive);
      } else if (const auto* done = std::get_if<ReceiveDone>(&event->what)) {
        ++received;
        truncated += done->truncated ? 1 : 0;
        to.release(receiver, done->receive);
      }
    }
    while (const auto event = from.poll_event()) {
      if (std::holds_alternative<SendDone>(event->what)) ++sent;
    }
  }
  bool send(std::uint32_t bytes) { return from.send(sender, bytes, 7, {}, now).has_value(); }
  bool post(std::uint32_t bytes) {
    const bool posted = to.post(receiver, 7, bytes, now).has_value();
    events();
    return posted;
  }

  static constexpr std::uint64_t kSecret = 99;
  Options options;
  TimePoint now{seconds(1)};
  Endpoint from;
  Endpoint to;
  Endpoint::ConnectionId sender = 0;
  Endpoint::ConnectionId receiver = 0;
  int sent = 0;
  int received = 0;
  int truncated = 0;
};

TEST(MltEndpoint, AMessageTooLongForItsReceiveGivesItsStagingBack) {
  Options options;
  options.max_staged = 1;
  Direct direct(options);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(direct.send(100));
    direct.run(milliseconds(1));
    ASSERT_TRUE(direct.post(10));
    direct.run(milliseconds(1));
    EXPECT_EQ(direct.truncated, i + 1);
  }
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().refused, 0u);
}

TEST(MltEndpoint, AFullWindowOfMessagesMakesRoomForTheNext) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(direct.post(1000) && direct.send(1000));
    direct.run(milliseconds(5));
    ASSERT_EQ(direct.received, 4 * (round + 1));
    ASSERT_EQ(direct.sent, 4 * (round + 1));
  }
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().ignored, 0u);
}

TEST(MltEndpoint, ReceivesAreBoundedUntilTheyAreReleased) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  Endpoint& to = direct.to;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(to.post(direct.receiver, 7, 0, direct.now));
  EXPECT_FALSE(to.post(direct.receiver, 7, 0, direct.now));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(direct.send(0));
  while (const auto out = direct.from.poll_transmit(direct.now)) {
    std::array<std::byte, kMaxHeader> bytes{};
    const std::size_t size = serialize(out->transmit.header, bytes);
    to.on_packet(std::span(bytes).first(size), 0, false, direct.now);
  }
  EXPECT_FALSE(to.post(direct.receiver, 7, 0, direct.now)) << "done, and not released";
  direct.events();
  EXPECT_TRUE(to.post(direct.receiver, 7, 0, direct.now));
}

TEST(MltEndpoint, ALongMessageFollowsATinyOneThatCameUnposted) {
  for (const std::uint32_t unscheduled : {0u, 4096u}) {
    Options options;
    options.unscheduled_bytes = unscheduled;
    Direct direct(options);
    ASSERT_TRUE(direct.send(1));
    direct.run(milliseconds(2));
    ASSERT_TRUE(direct.post(1));
    direct.run(milliseconds(2));
    ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
    direct.run(milliseconds(20));
    EXPECT_EQ(direct.received, 2) << unscheduled;
    EXPECT_EQ(direct.sent, 2) << unscheduled;
  }
}

TEST(MltEndpoint, AMapOfImportantPacketsOfAnotherSizeIsRefused) {
  Direct direct(Options{});
  PacketBitmap important;
  ASSERT_TRUE(important.reset(3));
  SendTerms terms;
  terms.tolerant = true;
  terms.important = &important;
  EXPECT_FALSE(direct.from.send(direct.sender, 1408, 7, terms, direct.now));
  EXPECT_TRUE(direct.from.send(direct.sender, 3 * 1408, 7, terms, direct.now));
}

// A probe of a message for which the receiver has no room is no silence.
TEST(MltEndpoint, AReceiveThatWaitsForMinutesIsNoLostPeer) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  ASSERT_TRUE(direct.send(100'000));
  direct.run(std::chrono::minutes(2));
  EXPECT_FALSE(direct.from.sender(direct.sender).peer_lost());
  ASSERT_TRUE(direct.post(100'000));
  direct.run(seconds(1));
  EXPECT_EQ(direct.received, 1);
}

}  // namespace
}  // namespace clustar::mlt::test
