// A receiver that decides by what passed on each lane, hand-fed: no sender says a word but its packets.
#include <gtest/gtest.h>

#include <optional>
#include <variant>

#include "mlt/core/receive/receiver.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kPackets = 70;
constexpr std::uint32_t kMost = 7;  // a tenth of them, by the terms and by the cap

Options opted_in() {
  Options options;
  options.max_tolerance_ppm = 1'000'000;
  return options;
}

struct Fed {
  explicit Fed(std::uint16_t segment = 1408, std::uint32_t packets = kPackets) {
    proto.secret = 1;
    proto.segment = segment;
    proto.message_bytes = packets * segment;
    proto.open = OpenRecord{.tag = 7,
                            .tolerant = true,
                            .ranks = 4,
                            .edges = 4,
                            .collective_bytes = 100 << 20,
                            .tolerance_ppm = 100'000,
                            .identity = {}};
    EXPECT_TRUE(receiver.post(7, proto.message_bytes, ledgers, now));
  }
  void data(std::uint32_t index, std::uint8_t path, std::uint16_t passed, bool again = false, bool settled = false) {
    DataHeader header = proto;
    header.index = index;
    header.path = path;
    header.traffic_class = again ? 6 : 1;
    header.passed = passed;
    header.retransmission = again;
    header.quiet = settled;
    header.path_seq = seq++;
    receiver.on_data(header, {header.segment}, ledgers, now);
    wait(Duration{});
  }
  // The message on two lanes in turns, without the packets for which `lost` is true.
  template <class Lost>
  void all_but(Lost lost) {
    for (std::uint32_t i = 0; i < kPackets; ++i) {
      if (!lost(i)) data(i, i % 2, static_cast<std::uint16_t>(i / 2 + 1));
    }
  }
  void wait(Duration time) {
    const TimePoint until = now + time;
    for (int i = 0; i < 1000 && receiver.next_timeout() <= until; ++i) {
      now = std::max(now, receiver.next_timeout());
      receiver.on_timeout(ledgers, questions, now);
    }
    now = until;
    EXPECT_TRUE(receiver.is_consistent());
    if (const auto over = receiver.poll_done()) done = over;
  }
  // Of the next state; what it wants. nullopt: there is none. Acknowledgements must not come after it.
  std::optional<std::uint32_t> wanted() {
    bool acked = false;
    while (const auto packet = receiver.poll_control(now)) {
      acked = acked || std::holds_alternative<Ack>(*packet);
      const auto* state = std::get_if<State>(&*packet);
      if (state == nullptr) continue;
      EXPECT_TRUE(state->want == 0 || acked);
      return state->want;
    }
    return std::nullopt;
  }

  const Options options = opted_in();
  Receiver receiver{options, 1};
  LedgerBook ledgers{LedgerBook::Options{}};
  QuestionBudget questions;
  TimePoint now{std::chrono::seconds(1)};
  DataHeader proto{};
  std::uint32_t seq = 0;
  std::optional<ReceiveDone> done;
};

TEST(MltPassed, WhatTheLanesProveLostIsGivenUpAtOnce) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i == 20 || i == 31; });
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, 2 * 1408u);
  EXPECT_EQ(fed.ledgers.totals().charged, 2 * 1408u);
}

TEST(MltPassed, ALaneThatIsSilentProvesNothing) {
  for (const std::uint32_t last : {kPackets - 1, kPackets - 2}) {
    Fed fed;
    fed.all_but([&](std::uint32_t i) { return i == last; });
    fed.wait(milliseconds(50));
    EXPECT_FALSE(fed.done);
  }
}

TEST(MltPassed, AnOvertakenPacketMayComeYet) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i == kPackets - 4; });  // one behind it on its lane
  EXPECT_FALSE(fed.done);
  fed.now += microseconds(1);
  fed.data(kPackets - 4, 0, kPackets / 2 - 1);
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, 0u);
}

TEST(MltPassed, AnOvertakenPacketHasAQuarterOfTheRoundTrip) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i == kPackets - 4; });
  fed.wait(fed.options.base_rtt / 4 - Duration(1));
  EXPECT_FALSE(fed.done);
  fed.wait(Duration(1));
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, 1408u);
}

TEST(MltPassed, WhatExceedsTheBudgetIsWantedAtOnceAndOnce) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i >= 20 && i < 30; });
  EXPECT_FALSE(fed.done);
  EXPECT_EQ(fed.wanted(), 10 - kMost);
  for (std::uint32_t i = 20; i < 23; ++i) {
    EXPECT_FALSE(fed.done);
    EXPECT_FALSE(fed.wanted());
    fed.data(i, 5, 0, true);
  }
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, kMost * 1408);
}

TEST(MltPassed, WhatIsSentAgainSettlesTheEndOfALane) {
  for (const bool settled : {false, true}) {
    Fed fed;
    fed.all_but([](std::uint32_t i) { return i == 20 || i == kPackets - 1; });
    EXPECT_FALSE(fed.done);
    fed.data(kPackets - 1, 5, 0, true, settled);
    fed.wait(milliseconds(50));
    EXPECT_EQ(fed.done.has_value(), settled);
  }
}

TEST(MltPassed, ADuplicateProvesAsMuch) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i == 20 || i == kPackets - 1; });
  fed.data(kPackets - 1, 5, 0, true);
  EXPECT_FALSE(fed.done);
  fed.data(kPackets - 1, 1, kPackets / 2);  // late
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, 1408u);
}

TEST(MltPassed, WhatIsSentAgainTellsTheCountOfItsLane) {
  Fed fed;
  fed.all_but([](std::uint32_t i) { return i == 20 || i == kPackets - 2; });
  DataHeader header = fed.proto;
  header.index = 20;
  header.traffic_class = 1;
  header.passed = kPackets / 2;
  header.retransmission = true;
  header.path_seq = fed.seq++;
  fed.receiver.on_data(header, {header.segment}, fed.ledgers, fed.now);
  fed.wait(fed.options.base_rtt / 4);
  ASSERT_TRUE(fed.done);
  EXPECT_EQ(fed.done->missing, 1408u) << "the last of the lane, which it passed";
}

TEST(MltPassed, CountsWrap) {
  constexpr std::uint32_t kMany = 140'000;
  Fed fed(64, kMany);
  for (std::uint32_t i = 0; i < kMany; ++i) {
    if (i % 30'000 != 5) fed.data(i, 0, static_cast<std::uint16_t>(i + 1));
    ASSERT_EQ(fed.done.has_value(), i + 1 == kMany) << i;
  }
  EXPECT_EQ(fed.done->missing, 5 * 64u);
}

// A peer can give up what the terms allow, and no more; and it always ends by the sender's word.
TEST(MltPassed, AHostileCountGivesNothingBeyondTheBound) {
  for (const int lie : {1, 69, 70, 71, 30'000, 32'767, 32'768, 40'000, 65'535}) {
    for (const bool first : {true, false}) {
      Fed fed;
      if (first) fed.data(0, 0, static_cast<std::uint16_t>(lie));
      for (std::uint32_t i = 1; i < 50; ++i) {
        fed.data(i, i % 2, static_cast<std::uint16_t>(first ? i / 2 + 1 : lie - static_cast<int>(i)));
      }
      fed.wait(milliseconds(10));
      EXPECT_FALSE(fed.done) << "20 are missing: " << lie;
      EXPECT_EQ(fed.ledgers.totals().charged, 0u);
      for (std::uint32_t i = 50; i < kPackets - 3; ++i) fed.data(i, 0, static_cast<std::uint16_t>(lie));
      Probe probe{.secret = 1,
                  .quiet = true,
                  .sent = kPackets,
                  .message_bytes = fed.proto.message_bytes,
                  .segment = fed.proto.segment,
                  .open = *fed.proto.open};
      fed.receiver.on_probe(probe, fed.ledgers, fed.now);
      fed.wait(Duration{});
      ASSERT_TRUE(fed.done) << lie;
      EXPECT_LE(fed.done->missing, kMost * 1408);
    }
  }
}

TEST(MltPassed, WithoutTermsNothingIsGivenUp) {
  Fed fed;
  fed.proto.open->tolerance_ppm = 0;
  fed.all_but([](std::uint32_t i) { return i == 20; });
  fed.wait(milliseconds(10));
  EXPECT_FALSE(fed.done);
  EXPECT_EQ(fed.ledgers.totals().charged, 0u);
}

}  // namespace
}  // namespace clustar::mlt
