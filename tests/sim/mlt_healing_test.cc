// What happens when a network that lost much loses nothing any more, and when a peer says what cannot be.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/sim/direct.h"
#include "tests/sim/lone_sender.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// As mlt/driver has them.
Options long_messages() {
  Options options = as_for_a_kernel();
  options.segment = 64;
  options.max_in_flight = 4096;
  return options;
}

bool tells_what_came(const Packet& packet) {
  return std::holds_alternative<Ack>(packet) || std::holds_alternative<State>(packet);
}

// An answer tells eight windows of 512 packets, and what is all there the receiver does not ask about: who never heard
// of a whole window has to ask for it by its number, or its packets would count as on their way forever.
TEST(MltHealing, WhoNeverHeardOfAWholeWindowGoesOn) {
  for (const std::uint32_t windows : {9u, 40u}) {
    for (const bool tolerant : {false, true}) {
      Direct direct(long_messages());
      const std::uint32_t bytes = windows * State::kWindow * 64;
      const TimePoint healed = direct.now + milliseconds(20);
      direct.loses_control = [&](const Packet& packet) { return tells_what_came(packet) && direct.now < healed; };
      ASSERT_TRUE(direct.post(bytes) && direct.send(bytes, 7, tolerant ? tolerant_terms() : SendTerms{}));
      direct.run(milliseconds(200));
      EXPECT_EQ(direct.received, 1) << windows;
      EXPECT_EQ(direct.sent, 1) << windows;
      EXPECT_EQ(direct.missing, 0u) << "only acknowledgements were lost";
    }
  }
}

// The last packet waits in a class that others pass, longer than any round trip was: nothing is lost, and nothing may
// be missing.
TEST(MltHealing, WhatOnlyWaitsIsNeverGivenUp) {
  for (const Duration wait : {microseconds(50), microseconds(500), microseconds(5000)}) {
    Options options = opted_in();
    options.gap_floor = options.ask_cap = milliseconds(20);  // the sender is left to itself
    Direct direct(options);
    TimePoint until{};
    direct.holds = [&](const DataHeader& header) {
      const bool last =
          header.message % 2 == 0 && (header.index + 1) % 3 == first_index(Direct::kSecret, header.message, 3);
      return last && !header.retransmission && direct.now < until;
    };
    for (int i = 1; i <= 20; ++i) {
      if (i % 10 == 0) until = direct.now + wait;  // by then it knows the round trip
      ASSERT_TRUE(direct.post(3 * 1408) && direct.send(3 * 1408, 7, tolerant_terms()));
      direct.run(microseconds(1));
      ASSERT_TRUE(direct.post(40 * 1408, 8) && direct.send(40 * 1408, 8));  // it leaves later, and comes by other lanes
      direct.run(wait + milliseconds(2));
      ASSERT_EQ(direct.received, 2 * i);
    }
    EXPECT_EQ(direct.missing, 0u);
  }
}

// All wait for the same credit, and none has begun: questions must not take the line from data.
TEST(MltHealing, OneOfManyAsksForCredit) {
  LoneSender alone(Options{}, 1);
  constexpr std::uint32_t kMessages = 100;
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    alone.sender.on_posted({1, 7, i, 1 << 20, 0}, alone.now);
    ASSERT_TRUE(alone.sender.send(1 << 20, 7, {}, alone.now));
  }
  alone.poll();
  std::size_t probes = 0;
  for (const Transmit& transmit : alone.wait(seconds(1))) {
    probes += std::holds_alternative<Probe>(transmit.header) ? 1 : 0;
  }
  EXPECT_GE(probes, 5u);
  EXPECT_LE(probes, 30u) << "twice in probe_cap, at most";
}

class Liar : public testing::Test {
 protected:
  static constexpr std::uint32_t kPackets = 11;
  Liar() {
    alone.sender.on_posted({1, 7, 0, kPackets * 1408, 1u << 20}, alone.now);
    EXPECT_TRUE(alone.sender.send(kPackets * 1408, 7, {}, alone.now));
    sent = alone.poll();
    EXPECT_EQ(sent.size(), kPackets);
  }
  void acknowledge(std::uint32_t largest, std::uint64_t before) {
    Ack ack;
    ack.count = 1;
    ack.blocks[0].path = sent.front().path;
    ack.blocks[0].traffic_class = sent.front().traffic_class;
    ack.blocks[0].largest = largest;
    ack.blocks[0].before = before;
    alone.sender.on_ack(ack, alone.now);
  }
  LoneSender alone{Options{}, 1};
  std::vector<Transmit> sent;
};

TEST_F(Liar, AnAcknowledgementOfWhatWasNeverSentIsIgnored) {
  std::uint64_t ignored = 0;
  for (const std::uint32_t largest : {kPackets, kPackets + 1, 0x7fffffffu, 0x80000000u, 0x8000000au, 0xffffffffu}) {
    acknowledge(largest, ~0ull);
    EXPECT_EQ(alone.sender.counters().ignored, ++ignored) << largest;
  }
  acknowledge(kPackets - 1, (1u << (kPackets - 1)) - 1);
  EXPECT_EQ(alone.sender.counters().ignored, ignored);
  alone.wait(milliseconds(1));
  EXPECT_EQ(alone.sender.counters().retransmitted, 0u) << "and does no harm";
}

TEST_F(Liar, MessagesThatWereNeverSentAreNotFinished) {
  const std::uint64_t none = alone.sender.counters().ignored;
  std::uint64_t ignored = none;
  for (const std::uint32_t below : {2u, 0x7fffffffu}) {
    Ack ack;
    ack.finished_below = below;
    alone.sender.on_ack(ack, alone.now);
    EXPECT_EQ(alone.sender.counters().ignored, ++ignored) << below;
  }
  LoneSender idle{Options{}, 1};
  Ack ack;
  ack.finished_below = 0x80000000u;  // as old as new
  idle.sender.on_ack(ack, idle.now);
  EXPECT_FALSE(idle.sender.poll_done());
}

TEST_F(Liar, CreditThatNoReceiverHasIsIgnored) {
  for (const std::uint32_t credit : {(1u << 25), 0x7fffffffu}) {
    Ack ack;
    ack.credit_units = credit;
    const std::uint64_t ignored = alone.sender.counters().ignored;
    alone.sender.on_ack(ack, alone.now);
    EXPECT_EQ(alone.sender.counters().ignored, ignored + 1) << credit;
  }
}

// Saying that packets arrived which were never sent does not make them so.
TEST(MltHealing, WhatWasNotSentCannotHaveArrived) {
  LoneSender alone(Options{}, 1);
  alone.sender.on_posted({1, 7, 0, 100 * 1408, units(4 * 1408)}, alone.now);
  ASSERT_TRUE(alone.sender.send(100 * 1408, 7, {}, alone.now));
  const std::size_t first = alone.poll().size();
  ASSERT_LT(first, 20u);
  State state;  // nothing is missing of the window
  state.matched = true;
  state.count = 100;
  state.credit_units = units(1 << 20);
  alone.sender.on_state(state, alone.now);
  EXPECT_EQ(alone.sender.delivered(0).count(), first);
  const std::vector<Transmit> then = alone.poll();
  ASSERT_FALSE(then.empty());
  EXPECT_EQ(std::get<DataHeader>(then.front().header).index, first) << "the others still go";
}

// The segment is the sender's: credit below one of its packets would move nothing.
TEST(MltHealing, EndsMayHaveDifferentSegments) {
  for (const std::uint16_t small : {64, 700}) {
    for (const bool sender_large : {false, true}) {
      Options tight = opted_in();
      tight.segment = small;
      tight.line_rate = 1'000'000;
      tight.credit_slack = 0;
      Options large = tight;
      large.segment = 8896;
      Direct direct(tight);
      const auto& own = sender_large ? large : tight;
      const auto id = direct.from.open_sender(2, 5, direct.now, own);
      const auto other = direct.to.open_receiver(1, 5, direct.now, sender_large ? tight : large);
      direct.sender = id;
      direct.receiver = other;
      ASSERT_TRUE(direct.post(300'000) && direct.send(300'000));
      direct.run(seconds(1));
      EXPECT_EQ(direct.received, 1) << small
                                    << (sender_large ? ", the sender's is large" : ", the receiver's is large");
    }
  }
}

// A copy that the network kept for seconds acknowledges a packet from before an outage. A window over that round trip
// is next to nothing; what is alone on its way waits for its acknowledgement only.
TEST(MltHealing, OneRoundTripOfSecondsHoldsNothingBack) {
  Options options;
  options.pace_bytes = options.segment;
  options.paths = 1;
  LoneSender alone(options, 1);
  const auto acknowledge = [&](std::uint32_t largest) {
    Ack ack;
    ack.secret = 1;
    ack.count = 1;
    ack.blocks[0].traffic_class = options.classes.traffic_class(PacketKind::kReliable);
    ack.blocks[0].largest = largest;
    ack.blocks[0].before = ~std::uint64_t{0};
    ack.credit_units = units(1 << 20);
    ack.finished_below = largest + 1;
    alone.sender.on_ack(ack, alone.now);
    while (alone.sender.poll_done()) {
    }
  };
  Duration waited{0};
  for (std::uint32_t message = 0; message < 50; ++message) {
    alone.sender.on_posted({1, 7, message, 1408, units(1 << 20)}, alone.now);
    ASSERT_TRUE(alone.sender.send(1408, 7, {}, alone.now));
    const TimePoint begin = alone.now;
    std::vector<Transmit> left = alone.poll();
    while (left.empty()) {
      ASSERT_LT(alone.now - begin, seconds(10));
      left = alone.wait(milliseconds(1));
    }
    if (message > 0) waited += alone.now - begin;
    const auto* data = std::get_if<DataHeader>(&left.front().header);
    ASSERT_NE(data, nullptr);
    alone.now += message == 0 ? Duration(seconds(9)) : Duration(microseconds(10));
    acknowledge(data->path_seq);
  }
  EXPECT_LT(waited, milliseconds(1));
}

}  // namespace
}  // namespace clustar::mlt::test
