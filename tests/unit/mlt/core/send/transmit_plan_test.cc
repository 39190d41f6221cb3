#include "mlt/core/send/transmit_plan.h"

#include <gtest/gtest.h>

#include <optional>

namespace clustar::mlt {
namespace {

using Sort = TransmitPlan::Sort;

// A sender's messages, of packets of 1,000 bytes, all with credit and receive unless a test says otherwise.
class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    options.segment = 1000;
    options.unscheduled_bytes = 1000;
    credit.take(1 << 20);
  }
  std::uint32_t add(std::uint32_t bytes, Turn turn = {}, bool posted = true) {
    const std::uint32_t id = messages.end();
    SendMessage& message = messages.push();
    EXPECT_TRUE(message.reset(bytes, packet_count(bytes, options.segment)));
    message.place = {turn, bytes > options.mouse_bytes, id};
    message.posted = posted;
    set_state(message.state, posted ? SendState::kSending : SendState::kOffered);
    plan.add(id, message, now);
    return id;
  }
  std::optional<TransmitPlan::Choice> choose() {
    TransmitPlan::Choice choice;
    return plan.choose({messages, credit, flight, window}, now, choice) ? std::optional(choice) : std::nullopt;
  }
  // What goes next goes.
  std::optional<TransmitPlan::Choice> go() {
    const auto choice = choose();
    if (!choice) return choice;
    SendMessage& message = messages[choice->message];
    if (choice->sort == Sort::kAgain) {
      plan.clear_resend(message, choice->index);
    } else {
      plan.on_first(choice->message, message);
      if (++message.sent == message.packets) set_state(message.state, SendState::kSent);
    }
    const std::uint32_t bytes = packet_bytes(choice->index, message.bytes, options.segment);
    credit.spend(bytes);
    const bool uncredited = choice->sort == Sort::kUncredited;
    flight.send(flight.lane(0, 1), {choice->message, choice->index, bytes, false, false, uncredited, false, now}, now);
    message.in_flight.set(choice->index);
    plan.on_sent(bytes, now);
    EXPECT_TRUE(plan.is_consistent(messages));
    return choice;
  }

  Options options;
  TimePoint now{std::chrono::seconds(1)};
  SendMessages messages{256};
  SendCredit credit;
  Flight flight{options, 1};
  std::uint64_t window = 1 << 20;
  TransmitPlan plan{options};
};

TEST_F(PlanTest, MessagesGoInTheirTurnsAndThenAsTheyCame) {
  const std::uint32_t first = add(3000), second = add(3000), urgent = add(3000, {.rank = 0, .tie = 0});
  plan.move(first, messages[first], now);
  messages[first].place.turn.rank = messages[second].place.turn.rank = 5;
  plan.move(first, messages[first], now);
  plan.move(second, messages[second], now);
  for (const std::uint32_t expected : {urgent, urgent, urgent, first, first, first, second}) {
    const auto choice = go();
    ASSERT_TRUE(choice);
    EXPECT_EQ(choice->message, expected);
  }
}

TEST_F(PlanTest, WhatIsSentAgainGoesBeforeWhatIsNewOfItsRank) {
  const std::uint32_t message = add(5000);
  go(), go();
  messages[message].in_flight.clear(1);
  plan.mark_resend(messages[message], 1);
  const auto choice = go();
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->sort, Sort::kAgain);
  EXPECT_EQ(choice->index, 1u);
  EXPECT_EQ(go()->index, 2u);
}

TEST_F(PlanTest, ABetterRankGoesBeforeWhatIsSentAgain) {
  const std::uint32_t message = add(5000, {.rank = 7});
  go();
  plan.mark_resend(messages[message], 0);
  const std::uint32_t urgent = add(3000);
  EXPECT_EQ(go()->message, urgent);
}

TEST_F(PlanTest, OfWhatIsSentAgainTheImportantGoesFirst) {
  const std::uint32_t id = add(5000);
  SendMessage& message = messages[id];
  ASSERT_TRUE(message.important.reset(5));
  message.important.set(3);
  for (int i = 0; i < 5; ++i) go();
  for (const std::uint32_t index : {0u, 3u, 4u}) plan.mark_resend(message, index);
  EXPECT_EQ(go()->index, 3u);
  EXPECT_EQ(go()->index, 0u);
  EXPECT_EQ(go()->index, 4u);
}

TEST_F(PlanTest, AMessageOfOnePacketPassesALongOneOfItsRank) {
  add(100'000);
  const std::uint32_t mouse = add(500);
  const auto choice = go();
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->message, mouse);
  EXPECT_TRUE(choice->mouse);
  EXPECT_FALSE(go()->mouse);
}

TEST_F(PlanTest, WithoutCreditOnlyAheadOfTheReceive) {
  credit = SendCredit();
  const std::uint32_t posted = add(50'000), offered = add(50'000, {}, false);
  EXPECT_TRUE(plan.lacks_credit(messages[posted], {messages, credit, flight, window}));
  const auto choice = go();
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->message, offered);
  EXPECT_EQ(choice->sort, Sort::kUncredited);
  messages[offered].unscheduled = 1000;
  EXPECT_FALSE(choose()) << "as much as options.unscheduled_bytes";
}

TEST_F(PlanTest, TheWindowHoldsBackAllButTheFirstPacket) {
  window = 1;
  add(10'000);
  EXPECT_TRUE(go());
  EXPECT_FALSE(choose());
  EXPECT_EQ(plan.next_timeout(), TimePoint::max()) << "an acknowledgement opens it, no time does";
}

TEST_F(PlanTest, ThePaceHoldsBackWhatIsNotAlone) {
  add(1'000'000);
  plan.set_rate(1'000'000, now);  // a packet in each millisecond, once the burst has left
  while (choose()) go();
  EXPECT_GT(plan.next_timeout(), now);
  EXPECT_LE(plan.next_timeout(), now + std::chrono::milliseconds(2));
  flight.forget(0);
  EXPECT_TRUE(choose()) << "alone";
}

TEST_F(PlanTest, WhoMayNotGoYetIsTakenAtItsTime) {
  add(5000, {.rank = 0, .tie = 0, .not_before = now + std::chrono::microseconds(50)});
  EXPECT_FALSE(choose());
  EXPECT_EQ(plan.next_timeout(), now + std::chrono::microseconds(50));
  now = plan.next_timeout();
  plan.on_timeout(now);
  EXPECT_TRUE(choose());
}

TEST_F(PlanTest, WhatEndsLeavesNothingBehind) {
  const std::uint32_t id = add(5000);
  go(), go();
  plan.mark_resend(messages[id], 0);
  plan.remove(id, messages[id]);
  set_state(messages[id].state, SendState::kOver);
  EXPECT_TRUE(plan.is_consistent(messages));
  EXPECT_FALSE(choose());
}

}  // namespace
}  // namespace clustar::mlt
