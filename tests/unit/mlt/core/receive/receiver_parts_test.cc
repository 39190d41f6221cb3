// The receiver's parts: acknowledgements by lane, credit, questions, decisions, receives and staging.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <utility>

#include "mlt/core/receive/asking.h"
#include "mlt/core/receive/lane_acks.h"
#include "mlt/core/receive/loss_decision.h"
#include "mlt/core/receive/receive_credit.h"
#include "mlt/core/receive/receive_table.h"
#include "mlt/core/receive/staging.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

class LaneAcksTest : public testing::Test {
 protected:
  void come(std::uint32_t seq, std::uint8_t path = 0, bool marked = false) {
    DataHeader header;
    header.path = path;
    header.traffic_class = 1;
    header.path_seq = seq;
    acks.track(header, marked, options.base_rtt, now);
  }
  Ack take() {
    Ack ack;
    acks.fill(ack, now);
    return ack;
  }

  Options options;
  LaneAcks acks{options};
  TimePoint now{seconds(1)};
};

TEST_F(LaneAcksTest, WhatComesInOrderIsToldNowAndThen) {
  for (std::uint32_t seq = 0; seq + 1 < options.ack_every; ++seq) come(seq);
  EXPECT_FALSE(acks.due());
  EXPECT_EQ(acks.next_timeout(), now + options.ack_delay);
  come(options.ack_every - 1);
  ASSERT_TRUE(acks.due());
  const Ack ack = take();
  ASSERT_EQ(ack.count, 1);
  EXPECT_EQ(ack.blocks[0].largest, options.ack_every - 1u);
  EXPECT_FALSE(acks.due());
  EXPECT_EQ(acks.next_timeout(), TimePoint::max());
}

TEST_F(LaneAcksTest, TheLastPacketIsToldAfterTheDelay) {
  come(0);
  now = acks.next_timeout();
  acks.on_timeout(now);
  EXPECT_TRUE(acks.due());
  EXPECT_EQ(take().blocks[0].delay_us, 25);
}

TEST_F(LaneAcksTest, AHoleIsToldAtOnceAndWhenThreeHavePassed) {
  come(0);
  come(2);
  EXPECT_TRUE(acks.due()) << "seen";
  take();
  come(3);
  EXPECT_FALSE(acks.due());
  come(4);
  EXPECT_TRUE(acks.due()) << "proven";
}

TEST_F(LaneAcksTest, WhatComesLateIsToldAndMakesMoreTolerant) {
  come(0);
  for (std::uint32_t seq = 2; seq < 8; ++seq) come(seq);
  take();
  EXPECT_EQ(acks.tolerance(), options.reorder_packets);
  come(1);
  EXPECT_TRUE(acks.due());
  EXPECT_EQ(acks.tolerance(), 7);
}

TEST_F(LaneAcksTest, MarksAreCountedByLane) {
  come(0, 0, true);
  come(0, 3, true);
  come(1, 3, true);
  now += milliseconds(1);
  acks.on_timeout(now);
  const Ack ack = take();
  ASSERT_EQ(ack.count, 2);
  EXPECT_EQ(ack.blocks[0].marked, 1);
  EXPECT_EQ(ack.blocks[1].path, 3);
  EXPECT_EQ(ack.blocks[1].marked, 2);
}

// However many packets come between two looks.
TEST(LaneAcks, EachPacketIsTold) {
  const Options options;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    LaneAcks acks(options);
    TimePoint now{seconds(1)};
    std::set<std::pair<int, std::uint32_t>> came, told;
    std::array<std::uint32_t, 4> next{};
    DataHeader header;
    header.traffic_class = 1;
    for (int step = 0; step < 100; ++step) {
      for (std::uint64_t burst = rng.below(200); burst > 0; --burst) {
        header.path = static_cast<std::uint8_t>(rng.below(4));
        std::uint32_t& seq = next[header.path];
        if (rng.below(30) == 0) seq += static_cast<std::uint32_t>(rng.below(100));
        came.emplace(header.path, seq);
        header.path_seq = seq++;
        acks.track(header, false, options.base_rtt, now);
      }
      now += milliseconds(1);
      acks.on_timeout(now);
      while (acks.due()) {
        Ack ack;
        acks.fill(ack, now);
        for (std::size_t i = 0; i < ack.count; ++i) {
          const AckBlock& block = ack.blocks[i];
          told.emplace(block.path, block.largest);
          for (std::uint32_t back = 0; back < AckBlock::kBefore; ++back) {
            if ((block.before >> back & 1) != 0) told.emplace(block.path, block.largest - 1 - back);
          }
        }
      }
      ASSERT_TRUE(came == told) << "seed " << seed;
    }
  }
}

TEST(ReceiveCredit, IsWhatTheWindowAndTheDemandAllow) {
  ReceiveCredit credit(1408);
  EXPECT_FALSE(credit.grant(1 << 20)) << "nobody wants anything";
  credit.posted(100'000);
  EXPECT_TRUE(credit.grant(10 * 1408));
  EXPECT_EQ(credit.tell(), units(10 * 1408));
  EXPECT_EQ(credit.unused(), static_cast<std::int32_t>(units(10 * 1408)));
  credit.note_sent(units(5 * 1408));
  credit.note_sent(0);  // an older packet
  EXPECT_TRUE(credit.grant(10 * 1408));
  EXPECT_EQ(credit.tell(), units(5 * 1408) + units(10 * 1408));
  EXPECT_TRUE(credit.grant(1 << 20)) << "all of it";
  EXPECT_LE(credit.tell(), units(5 * 1408) + units(110'000));
}

TEST(ReceiveCredit, LittleMoreIsNotToldAtOnce) {
  ReceiveCredit credit(1408);
  credit.posted(10 << 20);
  ASSERT_TRUE(credit.grant(1 << 20));
  credit.tell();
  credit.note_sent(units(1408));
  EXPECT_FALSE(credit.grant(1 << 20));
  credit.note_sent(units(1 << 18));
  EXPECT_TRUE(credit.grant(1 << 20));
}

TEST(ReceiveTable, FindsWhatWaitsForAMessage) {
  ReceiveTable table(2, 2);
  const std::uint32_t first = table.post(7, 100), second = table.post(7, 200);
  EXPECT_TRUE(table.full());
  EXPECT_EQ(table.find(7, 1), second);
  table[second].matched = true;
  EXPECT_FALSE(table.find(7, 1));
  EXPECT_FALSE(table.find(7, 2));
  const PostedReceive* told = table.tell();
  ASSERT_NE(told, nullptr);
  EXPECT_EQ(told->length, 100u);
  table.release(second);
  EXPECT_EQ(table.tell(), nullptr) << "nobody waits for it any more";
  EXPECT_EQ(table.post(8, 1), second) << "ids come again";
  EXPECT_FALSE(table.has_room(9));
  EXPECT_EQ(table[first].tag_seq, 0u);
}

TEST(Staging, BuffersComeAgain) {
  Staging staging(2);
  const auto first = staging.take(), second = staging.take();
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(staging.take());
  EXPECT_EQ(staging.taken(), 2u);
  staging.give_back(*first);
  EXPECT_EQ(staging.take(), first);
}

class AskingTest : public testing::Test {
 protected:
  AskingTest() {
    message.packets = 100;
    message.state = ReceiveState::kArriving;
    asking.begin(message, now);
  }
  Duration wait() const { return message.silence.ask_at - now; }
  void come(Duration after) {
    now += after;
    ++message.received;
    message.sent_known = message.received;
    asking.on_packet(message, true, options.base_rtt, now);
    asking.watch(message, options.base_rtt, now);
  }

  Options options;
  Asking asking{options};
  ReceiveMessage message;
  TimePoint now{seconds(1)};
};

TEST_F(AskingTest, AQuickSenderIsAskedSoonAndASlowOneLater) {
  for (int i = 0; i < 20; ++i) come(microseconds(1));
  EXPECT_EQ(wait(), 2 * options.base_rtt) << "the floor";
  come(microseconds(60));
  EXPECT_EQ(wait(), microseconds(120)) << "twice the longest pause";
  come(milliseconds(3));
  EXPECT_EQ(wait(), options.ask_cap);
}

TEST_F(AskingTest, QuestionsInVainGetRarer) {
  come(microseconds(1));
  const Duration first = wait();
  for (int i = 0; i < 4; ++i) {
    asking.on_asked(message, false, options.base_rtt, now);
    EXPECT_EQ(wait(), first) << i;
  }
  asking.on_asked(message, false, options.base_rtt, now);
  EXPECT_EQ(wait(), 2 * first);
  for (int i = 0; i < 100; ++i) asking.on_asked(message, false, options.base_rtt, now);
  EXPECT_EQ(wait(), options.probe_cap);
}

TEST_F(AskingTest, TheEndIsWorthMoreQuestions) {
  come(microseconds(1));
  const Duration first = wait();
  for (int i = 0; i < 16; ++i) asking.on_asked(message, true, options.base_rtt, now);
  EXPECT_EQ(wait(), first);
}

TEST_F(AskingTest, ThePaceOutlivesItsMessage) {
  come(microseconds(1));
  come(microseconds(100));
  ReceiveMessage next;
  asking.begin(next, now);
  EXPECT_EQ(next.silence.pause, message.silence.pause);
}

class LossDecisionTest : public testing::Test {
 protected:
  LossDecisionTest() {
    options.max_tolerance_ppm = 1'000'000;
    message.state = ReceiveState::kArriving;
    message.packets = 1000;
    message.bytes = 1000 * 1408;
    message.segment = 1408;
    message.open.tolerant = true;
    message.open.communicator = 1;
    message.open.collective_bytes = 100 << 20;
    message.open.ranks = message.open.edges = 4;
    message.open.tolerance_ppm = 100'000;
    EXPECT_TRUE(message.got.reset(1000));
  }
  void receive(std::uint32_t packets) {
    message.received = packets;
    message.received_bytes = packets * 1408;
  }

  Options options;
  LossDecision decision{options};
  LedgerBook ledgers{LedgerBook::Options{}};
  ReceiveMessage message;
  TimePoint now{seconds(1)};
};

TEST_F(LossDecisionTest, EndsWithinTheBudgetAndCharges) {
  decision.count_eligible(message, ledgers);
  receive(950);
  EXPECT_TRUE(decision.decide(message, ledgers));
  EXPECT_EQ(ledgers.totals().missing_bytes, 50u * 1408);
}

TEST_F(LossDecisionTest, WantsWhatIsTooMuch) {
  decision.count_eligible(message, ledgers);
  receive(800);
  EXPECT_FALSE(decision.decide(message, ledgers));
  EXPECT_EQ(LossDecision::lacks(message), 100u) << "a tenth of the message may be missing";
  EXPECT_EQ(ledgers.totals().missing_bytes, 0u);
  receive(900);
  decision.arm(message, 3, now);
  EXPECT_EQ(message.loss.decide_at, now) << "enough came";
}

TEST_F(LossDecisionTest, NothingImportantIsMissing) {
  decision.count_eligible(message, ledgers);
  message.open.important = 10;
  message.important = 9;
  receive(990);
  EXPECT_FALSE(decision.decide(message, ledgers));
  message.important = 10;
  EXPECT_TRUE(decision.decide(message, ledgers));
}

TEST_F(LossDecisionTest, NothingOfWhatThisEndDoesNotAllow) {
  options.max_tolerance_ppm = 99'999;
  decision.count_eligible(message, ledgers);
  receive(999);
  EXPECT_FALSE(decision.may_lose(message));
  EXPECT_FALSE(decision.decide(message, ledgers));
  EXPECT_EQ(LossDecision::lacks(message), 1u);
}

TEST_F(LossDecisionTest, NothingWhereAPacketWasRefused) {
  decision.count_eligible(message, ledgers);
  message.loss.refused = true;
  receive(999);
  EXPECT_FALSE(decision.decide(message, ledgers));
}

TEST_F(LossDecisionTest, OnlyOnceAllHasPassed) {
  receive(900);
  decision.arm(message, 3, now);
  EXPECT_EQ(message.loss.decide_at, TimePoint::max()) << "the rest may be on its way";
  message.passed.note(0, 1, 1000, true);
  decision.arm_proven(message, 3, now);
  EXPECT_LE(message.loss.decide_at, now + options.base_rtt / 4);
}

}  // namespace
}  // namespace clustar::mlt
