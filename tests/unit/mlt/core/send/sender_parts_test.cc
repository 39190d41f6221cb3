// The sender's smaller parts: which path, what may stay missing, when to ask, credit and tags.
#include <gtest/gtest.h>

#include <set>

#include "mlt/core/send/loss_allowance.h"
#include "mlt/core/send/probing.h"
#include "mlt/core/send/send_credit.h"
#include "mlt/core/send/send_paths.h"
#include "mlt/core/send/send_tags.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

const TimePoint kBegin{seconds(1)};

TEST(SendPaths, ABurstTakesOnePath) {
  Options options;
  options.burst_bytes = 8 * 1024;
  SendPaths paths(options, 8);
  Rng rng(1);
  std::set<std::uint8_t> taken;
  for (int burst = 0; burst < 50; ++burst) {
    const std::uint8_t first = paths.next(1024, rng, kBegin);
    for (int i = 1; i < 8; ++i) ASSERT_EQ(paths.next(1024, rng, kBegin), first) << burst;
    taken.insert(first);
  }
  EXPECT_GT(taken.size(), 4u);
}

TEST(SendPaths, WhatIsUrgentTakesAPathThatIsKnownToDeliver) {
  Options options;
  SendPaths paths(options, 8);
  for (const std::uint8_t path : {std::uint8_t{3}, std::uint8_t{5}}) {
    paths.on_news(path);
    paths.on_delivered(path, 1, 0, microseconds(path == 3 ? 20 : 10), kBegin);
  }
  EXPECT_EQ(paths.urgent(), 5) << "the faster";
  paths.on_loss(5, kBegin);
  EXPECT_EQ(paths.urgent(), 3);
}

TEST(SendPaths, EveryOtherProbeTakesTheNextPath) {
  Options options;
  SendPaths paths(options, 4);
  paths.on_news(2);
  std::set<std::uint8_t> taken;
  for (std::uint64_t number = 1; number <= 8; ++number) {
    if (number % 2 == 1) {
      EXPECT_EQ(paths.of_probe(number), paths.urgent());
    } else {
      taken.insert(paths.of_probe(number));
    }
  }
  EXPECT_EQ(taken.size(), 4u);
}

class AllowanceTest : public testing::Test {
 protected:
  AllowanceTest() {
    EXPECT_TRUE(message.reset(1'408'000, 1000));
    message.open.tolerant = true;
    message.open.communicator = 1;
    message.open.collective_bytes = 100 << 20;
    message.open.ranks = message.open.edges = 4;
    message.open.tolerance_ppm = 100'000;
    message.state = SendState::kSending;
    allowance.open(message);
  }
  bool may_miss(std::uint32_t index, Evidence evidence) {
    return allowance.may_miss(message, {0, index, 1408, false, false, false, false, kBegin}, evidence, 0);
  }

  Options options;
  LedgerBook budget{LedgerBook::Options{}};
  LossAllowance allowance{options, budget};
  SendMessage message;
};

TEST_F(AllowanceTest, NothingBeforeTheReceiverCountsTheMessage) {
  EXPECT_FALSE(may_miss(0, Evidence::kOrder));
  allowance.know_open(message);
  EXPECT_TRUE(may_miss(0, Evidence::kOrder));
}

TEST_F(AllowanceTest, OnlyWhatTheOrderProves) {
  allowance.know_open(message);
  EXPECT_FALSE(may_miss(0, Evidence::kTime));
  EXPECT_FALSE(may_miss(0, Evidence::kDiscarded));
  EXPECT_EQ(budget.totals().missing_bytes, 0u);
}

TEST_F(AllowanceTest, NeitherWhatIsImportantNorOnceTheReceiverWantedSome) {
  allowance.know_open(message);
  ASSERT_TRUE(message.important.reset(1000));
  message.important.set(7);
  EXPECT_FALSE(may_miss(7, Evidence::kOrder));
  EXPECT_TRUE(may_miss(8, Evidence::kOrder));
  message.loss.wanted = true;
  EXPECT_FALSE(may_miss(9, Evidence::kOrder));
}

TEST_F(AllowanceTest, NoMoreThanTheBudgetAndTheMessagesShare) {
  allowance.know_open(message);
  std::uint32_t missed = 0;
  for (std::uint32_t i = 0; i < 1000; ++i) missed += may_miss(i, Evidence::kOrder) ? 1 : 0;
  EXPECT_GT(missed, 0u);
  EXPECT_LE(missed, message_cap_packets(1000));
  EXPECT_LE(budget.totals().missing_bytes, 140'800u) << "a tenth of what is eligible";
}

TEST_F(AllowanceTest, WhatTheReceiverGaveUpBesidesIsCharged) {
  allowance.know_open(message);
  ASSERT_TRUE(may_miss(0, Evidence::kOrder));
  allowance.charge_rest(message, 5);
  EXPECT_EQ(budget.totals().missing_bytes, 5u * 1408);
}

class ProbingTest : public testing::Test {
 protected:
  ProbingTest() {
    SendMessage& message = messages.push();
    EXPECT_TRUE(message.reset(10 * 1408, 10));
    message.state = SendState::kSent;
    message.posted = true;
    message.sent = 10;
    probing.heard(now);
    probing.touch(message, rtt, now);
  }
  // When the next probe is due.
  Duration wait() {
    const TimePoint begin = now;
    while (!probing.due() && !probing.peer_lost()) {
      now = std::max(now, probing.next_timeout());
      probing.on_timeout(messages, rtt, questions, rng, now);
    }
    if (probing.due()) probing.take(messages);
    return now - begin;
  }

  Options options;
  RttEstimator rtt;
  QuestionBudget questions;
  Rng rng{1};
  TimePoint now = kBegin;
  SendMessages messages{16};
  Probing probing{options};
};

TEST_F(ProbingTest, QuestionsInVainGetRarerUpToTheCap) {
  const Duration first = wait(), second = wait(), third = wait();
  EXPECT_GT(second, first);
  EXPECT_GT(third, second);
  for (int i = 0; i < 20; ++i) wait();
  EXPECT_LE(wait(), options.probe_cap);
  probing.touch(messages[0], rtt, now);
  EXPECT_EQ(wait(), first) << "something came";
}

TEST_F(ProbingTest, APeerThatNeverAnswersIsLost) {
  while (!probing.peer_lost()) wait();
  EXPECT_GE(now - kBegin, options.peer_timeout);
  EXPECT_LE(now - kBegin, options.peer_timeout + seconds(2));
}

TEST_F(ProbingTest, AnyWordOfThePeerCounts) {
  for (int i = 0; i < 100; ++i) {
    now += options.peer_timeout / 2;
    probing.on_timeout(messages, rtt, questions, rng, now);
    probing.heard(now);
  }
  EXPECT_FALSE(probing.peer_lost());
}

TEST_F(ProbingTest, AStepOfTheClockIsNoSilence) {
  now += seconds(3600);
  probing.on_timeout(messages, rtt, questions, rng, now);
  EXPECT_FALSE(probing.peer_lost());
}

TEST_F(ProbingTest, OneOfThoseThatWaitForCreditAsks) {
  for (int i = 0; i < 10; ++i) {
    SendMessage& message = messages.push();
    ASSERT_TRUE(message.reset(1408, 1));
    message.state = SendState::kSending;
    message.posted = true;
    probing.touch(message, rtt, now);
  }
  now += seconds(1);
  probing.on_timeout(messages, rtt, questions, rng, now);
  int due = 0;
  for (; probing.due(); ++due) probing.take(messages);
  EXPECT_EQ(due, 2) << "that one, and the message that was sent";
}

TEST_F(ProbingTest, EachProbeGoesOnWhereTheOneBeforeEnded) {
  SendMessage message;
  constexpr std::uint32_t kPackets = 20 * State::kWindow;
  ASSERT_TRUE(message.reset(kPackets * 64, kPackets));
  message.delivered.set_range(0, kPackets);
  for (const std::uint32_t window : {3u, 4u, 15u}) message.delivered.clear(window * State::kWindow);
  EXPECT_EQ(Probing::window_in_doubt(message), 3);
  EXPECT_EQ(Probing::window_in_doubt(message), 15) << "an answer tells eight";
  EXPECT_EQ(Probing::window_in_doubt(message), 3) << "and around";
  message.in_flight.set(7 * State::kWindow);
  EXPECT_EQ(Probing::window_in_doubt(message), 7) << "what is on its way, first";
}

TEST(SendCredit, CountsAroundTheEndOfItsNumbers) {
  SendCredit credit;
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(credit.covers(1));
    EXPECT_TRUE(credit.covers(0)) << "an empty packet takes none";
    credit.take(credit.sent_units() + (1u << 24));
    credit.take(credit.sent_units());  // an older packet
    EXPECT_TRUE(credit.covers(64u << 24));
    for (int packet = 0; packet < 16; ++packet) credit.spend(64u << 20);
  }
}

TEST(SendCredit, MoreThanAnyReceiverGivesIsImpossible) {
  SendCredit credit;
  EXPECT_TRUE(credit.is_possible(units(CreditShare::kMaxWindow)));
  EXPECT_FALSE(credit.is_possible(units(CreditShare::kMaxWindow) + 2));
}

TEST(SendTags, NumbersAndReceivesThatWerePostedEarly) {
  SendTags tags(2);
  EXPECT_TRUE(tags.post_early(7, 0, 2));
  EXPECT_TRUE(tags.post_early(7, 0, 2)) << "told twice";
  EXPECT_TRUE(tags.post_early(7, 1, 2));
  EXPECT_FALSE(tags.post_early(7, 2, 2)) << "no room";
  EXPECT_EQ(tags.take(7), 0u);
  EXPECT_TRUE(tags.take_early(7, 0));
  EXPECT_FALSE(tags.take_early(7, 0)) << "taken";
  EXPECT_EQ(tags.since(7, 0), 1);
  EXPECT_LE(tags.since(7, 1), 0);
  EXPECT_EQ(tags.take(8), 0u);
  EXPECT_FALSE(tags.has_room(9));
  EXPECT_TRUE(tags.has_room(8));
}

}  // namespace
}  // namespace clustar::mlt
