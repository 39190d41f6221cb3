#include "paraexpress/core/plan_change.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <variant>

#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

TEST(PlanChange, holds_from_the_agreed_operation_on) {
  PlanChange leader(2, 0, Plan::kRing), other(2, 1, Plan::kRing);
  EXPECT_EQ(leader.begin(), Plan::kRing);
  const auto proposal = leader.propose(Plan::kDirect, 2);
  ASSERT_TRUE(proposal);
  EXPECT_EQ(proposal->at, 3u);
  EXPECT_FALSE(leader.propose(Plan::kServer, 2)) << "one is open";
  const Answer answer = other.on_proposal(*proposal);
  EXPECT_TRUE(answer.accepted);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(other.begin(), Plan::kRing);
  EXPECT_FALSE(other.begin()) << "waits for the verdict";
  const auto verdict = leader.on_answer(1, answer);
  ASSERT_TRUE(verdict && verdict->holds);
  other.on_verdict(*verdict);
  EXPECT_EQ(other.begin(), Plan::kDirect);
  EXPECT_EQ(leader.begin(), Plan::kRing);
  EXPECT_EQ(leader.begin(), Plan::kRing);
  EXPECT_EQ(leader.begin(), Plan::kDirect);
  EXPECT_FALSE(leader.propose(Plan::kDirect, 1)) << "holds already";
}

TEST(PlanChange, is_dropped_where_a_rank_has_begun_the_operation) {
  PlanChange leader(3, 0, Plan::kRing), near(3, 1, Plan::kRing), far(3, 2, Plan::kRing);
  EXPECT_TRUE(far.begin());
  EXPECT_TRUE(far.begin());
  const auto proposal = leader.propose(Plan::kDirect, 1);
  EXPECT_FALSE(leader.on_answer(1, near.on_proposal(*proposal)));
  const Answer refused = far.on_proposal(*proposal);
  EXPECT_FALSE(refused.accepted);
  const auto verdict = leader.on_answer(2, refused);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->holds);
  near.on_verdict(*verdict);
  far.on_verdict(*verdict);
  for (PlanChange* rank : {&leader, &near, &far}) {
    for (int i = 0; i < 4; ++i) EXPECT_EQ(rank->begin(), Plan::kRing);
  }
}

TEST(PlanChange, ignores_what_answers_nothing) {
  PlanChange leader(3, 0, Plan::kRing), other(3, 1, Plan::kRing);
  EXPECT_FALSE(leader.on_answer(1, {1, true}));
  const auto proposal = leader.propose(Plan::kDirect, 1);
  EXPECT_FALSE(leader.on_answer(1, {proposal->number, true}));
  EXPECT_FALSE(leader.on_answer(1, {proposal->number, true})) << "twice the same rank";
  EXPECT_FALSE(leader.on_answer(2, {proposal->number + 1, true}));
  EXPECT_FALSE(leader.on_answer(3, {proposal->number, true}));
  other.on_verdict({7, true});
  EXPECT_EQ(other.begin(), Plan::kRing);
  EXPECT_FALSE(other.propose(Plan::kDirect, 1)) << "does not lead";
}

TEST(PlanChange, refuses_what_is_out_of_range_and_takes_the_next) {
  PlanChange leader(2, 0, Plan::kRing), other(2, 1, Plan::kRing);
  EXPECT_FALSE(leader.propose(Plan::kDirect, kMostAhead + 1));
  EXPECT_FALSE(leader.propose(static_cast<Plan>(kPlans.size()), 1));
  EXPECT_EQ(other.begin(), Plan::kRing);
  for (const std::uint64_t at : {std::uint64_t{0}, 2 + kMostAhead, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    EXPECT_FALSE(other.on_proposal({1, Plan::kDirect, at}).accepted) << at;
  }
  EXPECT_FALSE(other.on_proposal({1, static_cast<Plan>(kPlans.size()), 2}).accepted);
  EXPECT_FALSE(other.on_proposal({1, static_cast<Plan>(255), 2}).accepted);
  EXPECT_TRUE(other.is_consistent());
  EXPECT_TRUE(other.on_proposal({1, Plan::kDirect, 1 + kMostAhead}).accepted);
}

TEST(PlanChange, one_rank_needs_nobody) {
  PlanChange alone(1, 0, Plan::kRing);
  EXPECT_TRUE(alone.propose(Plan::kDirect, 1));
  EXPECT_EQ(alone.begin(), Plan::kRing);
  EXPECT_EQ(alone.begin(), Plan::kDirect);
}

// Ranks that begin operations as they like, up to three apart, and messages that take any time.
TEST(PlanChange, every_operation_has_one_plan_in_any_order_of_events) {
  using Message = std::variant<Proposal, Answer, Verdict>;
  std::size_t held = 0, dropped = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    const auto ranks = static_cast<std::uint32_t>(2 + rng.below(5));
    std::vector<PlanChange> all;
    for (Member rank = 0; rank < ranks; ++rank) all.emplace_back(ranks, rank, Plan::kDirect);
    std::map<std::pair<Member, Member>, std::deque<Message>> links;
    std::map<std::uint64_t, Plan> plan_of;
    std::uint64_t least = 0;
    for (int step = 0; step < 20000 && least < 100; ++step) {
      const auto rank = static_cast<Member>(rng.below(ranks));
      least = all[0].next_operation();
      for (const PlanChange& one : all) least = std::min(least, one.next_operation());
      if (rng.chance(0.5)) {
        if (all[rank].next_operation() >= least + 3) continue;
        const std::uint64_t operation = all[rank].next_operation();
        if (const auto plan = all[rank].begin()) {
          ASSERT_EQ(plan_of.emplace(operation, *plan).first->second, *plan)
              << "seed " << seed << " operation " << operation;
        }
      } else if (rng.chance(0.1)) {
        if (const auto proposal = all[0].propose(kPlans[rng.below(kPlans.size())], rng.below(5))) {
          for (Member other = 1; other < ranks; ++other) links[{0, other}].push_back(*proposal);
        }
      } else {
        const Member other = rank == 0 ? static_cast<Member>(1 + rng.below(ranks - 1)) : 0;
        auto& queue = links[{rank, other}];
        if (queue.empty()) continue;
        const Message message = queue.front();
        queue.pop_front();
        if (const auto* proposal = std::get_if<Proposal>(&message))
          links[{other, rank}].push_back(all[other].on_proposal(*proposal));
        if (const auto* verdict = std::get_if<Verdict>(&message)) all[other].on_verdict(*verdict);
        if (const auto* answer = std::get_if<Answer>(&message)) {
          if (const auto verdict = all[other].on_answer(rank, *answer)) {
            ++(verdict->holds ? held : dropped);
            for (Member third = 1; third < ranks; ++third) links[{0, third}].push_back(*verdict);
          }
        }
      }
      for (const PlanChange& one : all) ASSERT_TRUE(one.is_consistent());
    }
    ASSERT_GE(least, 100u) << "seed " << seed << " got stuck";
  }
  EXPECT_GT(held, 100u);
  EXPECT_GT(dropped, 100u);
}

}  // namespace
}  // namespace clustar::paraexpress
