// Who asks whom, how often, and about what: too few questions hide a loss, too many fill the line.
#include <gtest/gtest.h>

#include <optional>
#include <variant>
#include <vector>

#include "tests/sim/direct.h"
#include "tests/sim/lone_sender.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// As mlt/driver has them.
Options for_a_kernel() {
  Options options = as_for_a_kernel();
  options.segment = 1368;
  options.gap_floor = microseconds(200);
  options.ack_delay = milliseconds(1);
  return options;
}

TEST(MltQuestions, AProbeNamesTheWindowWhosePacketsAreInDoubt) {
  constexpr std::uint32_t kWindows = 30;
  Options options;
  options.segment = 64;
  options.line_rate = 1'000'000'000'000;
  FixedRate::Options wide;
  wide.window = 1u << 30;
  wide.rate = 1'000'000'000'000;
  options.congestion = FixedRate(wide);
  options.max_in_flight = 1u << 16;
  LoneSender alone(options, 1);
  constexpr std::uint32_t kBytes = kWindows * State::kWindow * 64;
  alone.sender.on_posted({1, 7, 0, kBytes, units(kBytes)}, alone.now);
  ASSERT_TRUE(alone.sender.send(kBytes, 7, {}, alone.now));
  alone.wait(milliseconds(1));
  State all;  // of these windows all has come
  all.matched = true;
  all.count = State::kWindow;
  all.credit_units = units(kBytes);
  for (std::uint32_t window = 0; window < kWindows; ++window) {
    all.base = window * State::kWindow;
    if (window != 11 && window != 23) alone.sender.on_state(all, alone.now);
  }
  std::vector<std::uint16_t> named;
  for (const Transmit& transmit : alone.wait(milliseconds(50))) {
    if (const auto* probe = std::get_if<Probe>(&transmit.header)) named.push_back(probe->window);
  }
  ASSERT_GE(named.size(), 3u);
  EXPECT_EQ(named[0], 11) << "from there an answer tells eight";
  EXPECT_EQ(named[1], 23);
  EXPECT_EQ(named[2], 11) << "and around";
}

// The receiver knows that credit is there for what is left, however short the last packet.
TEST(MltQuestions, AShortLostEndIsAskedForSoon) {
  for (const std::uint32_t tail : {10u, 700u, 1368u}) {
    Direct direct(for_a_kernel());
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(direct.post(30 * 1368) && direct.send(30 * 1368));
      direct.run(milliseconds(3));
    }
    direct.loses = [](const DataHeader& header) {
      return header.message == 20 && header.index == 30 && !header.retransmission;
    };
    ASSERT_TRUE(direct.post(30 * 1368 + tail) && direct.send(30 * 1368 + tail));
    EXPECT_LT(direct.run_until_received(21), microseconds(400)) << tail;
  }
}

// A question about a long message comes in several states, and the one with the end asks, too.
TEST(MltQuestions, TheLostEndOfAMessageOfManyWindowsGoesAgainSoon) {
  Direct direct;
  const auto small = [&](int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_TRUE(direct.post(20 * 1408) && direct.send(20 * 1408));
      direct.run(microseconds(300));
    }
  };
  small(40);
  const TimePoint until = direct.now + milliseconds(3);  // one long round trip, that patience remembers
  direct.holds = [&](const DataHeader&) { return direct.now < until; };
  small(1);
  direct.run(milliseconds(8));
  small(60);
  constexpr std::uint32_t kPackets = 767;
  direct.loses = [](const DataHeader& header) { return header.index == kPackets - 1 && !header.retransmission; };
  ASSERT_TRUE(direct.post(kPackets * 1408) && direct.send(kPackets * 1408));
  EXPECT_LT(direct.run_until_received(102), microseconds(400));
}

TEST(MltQuestions, OneProbeAnswersAQuestionOfManyStates) {
  LoneSender alone(Options{}, 1);
  alone.sender.on_posted({1, 7, 0, 40 * 512 * 1408, units(4 * 1408)}, alone.now);
  ASSERT_TRUE(alone.sender.send(40 * 512 * 1408, 7, {}, alone.now));
  alone.poll();
  alone.now += microseconds(10);
  int probes = 0;
  for (std::uint32_t window = 0; window < 8; ++window) {
    State state;
    state.matched = state.asks = true;
    state.base = window * State::kWindow;
    state.count = State::kWindow;
    state.missing.fill(std::byte{0xff});
    state.credit_units = units(4 * 1408);
    alone.sender.on_state(state, alone.now);
    alone.now += std::chrono::nanoseconds(100);
    for (const Transmit& transmit : alone.poll()) probes += std::holds_alternative<Probe>(transmit.header) ? 1 : 0;
  }
  EXPECT_EQ(probes, 1);
}

// Messages that come and go say nothing of one that is stalled.
TEST(MltQuestions, SmallMessagesDoNotHurryThem) {
  const auto questions = [](bool others) {
    Options options = opted_in();
    options.max_messages = 2048;
    Direct direct(options);
    int count = 0;
    direct.loses_control = [&](const Packet& packet) {
      const auto* state = std::get_if<State>(&packet);
      if (state != nullptr && state->asks) ++count;
      return state != nullptr || std::holds_alternative<Probe>(packet);
    };
    direct.loses = [](const DataHeader& header) { return header.message == 0 && header.index >= 20; };
    EXPECT_TRUE(direct.post(40 * 1408) && direct.send(40 * 1408));
    for (int i = 0; i < 1000; ++i) {
      if (others) {
        EXPECT_TRUE(direct.post(64, 9) && direct.send(64, 9));
      }
      direct.run(microseconds(50));
    }
    direct.loses = {};
    direct.loses_control = {};
    direct.run(milliseconds(300));
    return count;
  };
  const int alone = questions(false);
  EXPECT_GT(alone, 5);
  EXPECT_LE(questions(true), alone + 2);
}

TEST(MltQuestions, WhoWaitsForCreditLetsItsTimerRest) {
  for (const std::uint32_t messages : {1u, 2u, 100u}) {
    LoneSender alone(for_a_kernel(), 1);
    int probes = 0, timeouts = 0;
    const auto count = [&] {
      for (const Transmit& transmit : alone.poll()) probes += std::holds_alternative<Probe>(transmit.header) ? 1 : 0;
    };
    for (std::uint32_t i = 0; i < messages; ++i) {
      alone.sender.on_posted({1, 7, i, 1 << 20, 0}, alone.now);
      ASSERT_TRUE(alone.sender.send(1 << 20, 7, {}, alone.now));
      count();
    }
    EXPECT_EQ(probes, 1) << "one speaks for all";
    for (const TimePoint end = alone.now + seconds(1); alone.sender.next_timeout() <= end; ++timeouts) {
      alone.now = std::max(alone.now, alone.sender.next_timeout());
      alone.sender.on_timeout(alone.questions, alone.now);
      count();
    }
    EXPECT_LE(timeouts, 30) << messages;
    EXPECT_LE(probes, 30) << messages;
    EXPECT_GE(probes, 10) << messages;
  }
}

TEST(MltQuestions, CreditThatDidNotGrowIsNotTold) {
  const Options options = opted_in();
  Endpoint endpoint(options, 1);
  TimePoint now{seconds(1)};
  int acks = 0;
  for (std::uint32_t peer = 0; peer < 200; ++peer) {
    const auto receiver = endpoint.open_receiver(peer, 100 + peer, now);
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(endpoint.post(receiver, 7, 1 << 20, now));
      now += microseconds(1);
      while (const auto out = endpoint.poll_transmit(now)) acks += std::holds_alternative<Ack>(out->transmit.header);
    }
  }
  EXPECT_LE(acks, 200) << "of 800 receives";
}

// As far away as its packets are apart, it would begin again with each.
TEST(MltQuestions, WhoIsAloneKeepsItsCreditThoughTheRoundTripIsLong) {
  Options options = opted_in();
  options.base_rtt = microseconds(1);
  options.probe_floor = microseconds(2);  // the round trip is ten
  Direct direct(options);
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  EXPECT_LT(direct.run_until_received(1), milliseconds(1)) << "two packets in each round trip would take 3.7 ms";
}

// A receiver of a message of four windows that has credit and of which nothing comes any more.
class Stalled {
 public:
  explicit Stalled(Options&&) = delete;  // the receiver keeps a reference
  explicit Stalled(const Options& options) : receiver(options, 1) {
    DataHeader data;
    data.secret = 1;
    data.segment = options.segment;
    data.message_bytes = 4 * State::kWindow * options.segment;
    data.open.emplace();
    EXPECT_TRUE(receiver.post(0, data.message_bytes, ledgers, now));
    receiver.grant(1 << 20);
    for (; data.index < 4 * State::kWindow - 10; ++data.index) {
      data.path_seq = data.index;
      data.sent_units += units(options.segment);
      receiver.on_data(data, {options.segment}, ledgers, now);
      receiver.grant(1 << 20);
    }
    while (receiver.poll_control(now)) {
    }
  }
  // The states that are due next.
  std::vector<State> step() {
    now = std::max(now, receiver.next_timeout());
    receiver.on_timeout(ledgers, questions, now);
    std::vector<State> states;
    while (const auto packet = receiver.poll_control(now)) {
      if (const auto* state = std::get_if<State>(&*packet)) states.push_back(*state);
    }
    return states;
  }

  LedgerBook ledgers{LedgerBook::Options{}};
  QuestionBudget questions;
  TimePoint now{seconds(1)};
  Receiver receiver;
};

// Its windows wait for the line, and each would be answered with one more probe: on a slow line forever.
TEST(MltQuestions, AnAnsweredQuestionIsAskedNoMore) {
  const Options options = opted_in();
  Stalled stalled(options);
  stalled.now = stalled.receiver.next_timeout();
  std::optional<Packet> packet;
  while (!packet || !std::holds_alternative<State>(*packet)) {
    stalled.now = std::max(stalled.now, stalled.receiver.next_timeout());
    stalled.receiver.on_timeout(stalled.ledgers, stalled.questions, stalled.now);
    packet = stalled.receiver.poll_control(stalled.now);
  }
  ASSERT_TRUE(std::get<State>(*packet).asks);
  Probe probe;
  probe.secret = 1;
  probe.segment = stalled.receiver.longest_packet();
  probe.message_bytes = 4 * State::kWindow * probe.segment;
  stalled.receiver.on_probe(probe, stalled.ledgers, stalled.now);
  int states = 0;
  while ((packet = stalled.receiver.poll_control(stalled.now))) {
    const auto* state = std::get_if<State>(&*packet);
    if (state == nullptr) continue;
    ++states;
    EXPECT_FALSE(state->asks) << states;
  }
  EXPECT_EQ(states, 4) << "the answer: every window";
}

TEST(MltQuestions, TheyTakeAQuarterOfTheLineAtMost) {
  for (const std::uint64_t line : {1'000'000u, 12'500'000u}) {  // bytes/s
    Options options = opted_in();
    options.line_rate = line;
    Stalled stalled(options);
    stalled.step();
    const TimePoint begin = stalled.now;
    double bytes = 0;
    for (int i = 0; i < 10; ++i) {
      for (const State& state : stalled.step()) bytes += State::kFixed + static_cast<double>(state.bitmap_bytes());
    }
    ASSERT_GT(bytes, 0);
    EXPECT_LE(bytes, 0.25 * static_cast<double>(line) * std::chrono::duration<double>(stalled.now - begin).count())
        << line;
  }
}

TEST(MltQuestions, AReceiverAsksAsSoonAsItMay) {
  const Options options = opted_in();
  Stalled stalled(options);
  stalled.now = std::max(stalled.now, stalled.receiver.next_timeout());
  while (!stalled.questions.take(stalled.now)) {
  }
  EXPECT_TRUE(stalled.step().empty()) << "others asked all that may be asked";
  const TimePoint refused = stalled.now;
  std::vector<State> states;
  for (int i = 0; i < 1000 && states.empty(); ++i) states = stalled.step();
  ASSERT_FALSE(states.empty());
  EXPECT_TRUE(states.front().asks);
  EXPECT_LE(stalled.now, refused + milliseconds(2));
}

// Thousands of messages for a host that reads nothing for 100 ms: nothing was lost, but each takes the silence for a
// loss.
TEST(MltQuestions, ThousandsOfConnectionsDoNotFillTheLineWithThem) {
  constexpr int kConnections = 4096;
  const Options options = for_a_kernel();
  Endpoint endpoint(options, 1);
  TimePoint now{seconds(1)};
  int probes = 0;
  const auto transmit = [&] {
    while (const auto out = endpoint.poll_transmit(now)) {
      probes += std::holds_alternative<Probe>(out->transmit.header) ? 1 : 0;
    }
  };
  for (std::uint64_t secret = 1; secret <= kConnections; ++secret) {
    ASSERT_TRUE(endpoint.send(endpoint.open_sender(0, secret, now), 4096, 7, {}, now));
  }
  transmit();
  for (const TimePoint end = now + milliseconds(100); endpoint.next_timeout() <= end;) {
    now = std::max(now, endpoint.next_timeout());
    endpoint.on_timeout(now);
    transmit();
  }
  EXPECT_GE(probes, 64);
  EXPECT_LE(probes, 64 + 500 + 1);
}

}  // namespace
}  // namespace clustar::mlt::test
