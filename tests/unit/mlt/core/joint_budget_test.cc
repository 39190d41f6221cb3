#include "mlt/core/joint_budget.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "mlt/core/ledger.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

constexpr Terms kTerms{.collective_bytes = 1'000'000, .ranks = 4, .edges = 4, .tolerance_ppm = 10'000};
constexpr TableBounds kBounds{.ledgers = 4, .communicators = 2};

CollectiveId id(std::uint64_t communicator, std::uint32_t sequence) { return {communicator, sequence}; }

std::uint64_t charged_in(const std::vector<LedgerBook>& books, const CollectiveId& collective) {
  std::uint64_t sum = 0;
  for (const LedgerBook& book : books) {
    if (const Ledger* ledger = book.find(collective)) sum += ledger->counters().charged;
  }
  return sum;
}

// Whatever several NICs charge in whatever order.
TEST(JointBudget, BooksOfAProcessNeverChargeMoreThanTheBoundTogether) {
  std::uint64_t at_the_bound = 0, beyond_alone = 0;
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    Rng rng(seed);
    const Terms terms{.collective_bytes = 100'000 + rng.below(10'000'000),
                      .ranks = static_cast<std::uint32_t>(4 + rng.below(12)),
                      .edges = 2,
                      .tolerance_ppm = static_cast<std::uint32_t>(1000 + rng.below(50'000))};
    JointBudgetTable joint({});
    std::vector<LedgerBook> joined, alone;
    for (std::uint64_t i = 2 + rng.below(3); i > 0; --i) {
      joined.emplace_back(LedgerBook::Options{}, &joint);
      alone.emplace_back(LedgerBook::Options{});
    }
    std::array<std::uint64_t, 2> charged{};
    for (int step = 0; step < 300; ++step) {
      const std::size_t nic = rng.below(joined.size());
      const auto sequence = static_cast<std::uint32_t>(rng.below(2));
      const auto stage = static_cast<std::uint32_t>(rng.below(terms.ranks - 1));
      const std::uint64_t eligible = rng.below(terms.collective_bytes / 8);
      for (LedgerBook* book : {&joined[nic], &alone[nic]}) {
        ASSERT_TRUE(book->open(id(1, sequence), terms));
        book->add_eligible(id(1, sequence), eligible);
      }
      const std::uint64_t bytes = 1 + rng.below(3000);
      const bool allowed = joined[nic].allows(id(1, sequence), stage, bytes);
      ASSERT_EQ(joined[nic].charge(id(1, sequence), stage, bytes), allowed);
      const bool allowed_alone = alone[nic].charge(id(1, sequence), stage, bytes);
      if (allowed) charged[sequence] += bytes * (stage + 1);
      at_the_bound += !allowed && allowed_alone ? 1 : 0;
    }
    for (const std::uint32_t sequence : {0u, 1u}) {
      ASSERT_EQ(charged_in(joined, id(1, sequence)), charged[sequence]);
      ASSERT_LE(charged[sequence], loss_bound(terms)) << "seed " << seed;
      beyond_alone += charged_in(alone, id(1, sequence)) > loss_bound(terms) ? 1 : 0;
    }
  }
  EXPECT_GT(at_the_bound, 1000u);
  EXPECT_GT(beyond_alone, 100u) << "or this would prove nothing";
}

// A book by itself is as one without company.
TEST(JointBudget, OneBookMayChargeAllOfIt) {
  JointBudgetTable joint({});
  LedgerBook book({}, &joint);
  ASSERT_TRUE(book.open(id(1, 1), kTerms));
  book.add_eligible(id(1, 1), 1'000'000);
  EXPECT_TRUE(book.charge(id(1, 1), 0, 10'000));
  EXPECT_EQ(book.headroom(id(1, 1), 0), 0u);
}

TEST(JointBudget, EachBookAlsoKeepsToWhatItKnowsOf) {
  JointBudgetTable joint({});
  LedgerBook one({}, &joint), other({}, &joint);
  ASSERT_TRUE(one.open(id(1, 1), kTerms) && other.open(id(1, 1), kTerms));
  one.add_eligible(id(1, 1), 100'000);
  EXPECT_EQ(one.headroom(id(1, 1), 0), 1000u);
  EXPECT_EQ(other.headroom(id(1, 1), 0), 0u) << "nothing is eligible on its edge";
}

TEST(JointBudget, ContradictingTermsOnAnotherNicCloseIt) {
  JointBudgetTable joint({});
  LedgerBook one({}, &joint), other({}, &joint);
  ASSERT_TRUE(one.open(id(1, 1), kTerms));
  one.add_eligible(id(1, 1), 1'000'000);
  EXPECT_TRUE(one.allows(id(1, 1), 0, 1000));
  Terms larger = kTerms;
  larger.collective_bytes *= 2;
  other.open(id(1, 1), larger);
  other.add_eligible(id(1, 1), 1'000'000);
  EXPECT_FALSE(one.allows(id(1, 1), 0, 1));
  EXPECT_FALSE(other.allows(id(1, 1), 0, 1));
}

// Also where a NIC finds the contradiction in its own book.
TEST(JointBudget, AContradictionInOneBookClosesItForAll) {
  JointBudgetTable joint({});
  LedgerBook one({}, &joint), other({}, &joint);
  ASSERT_TRUE(one.open(id(1, 1), kTerms) && other.open(id(1, 1), kTerms));
  other.add_eligible(id(1, 1), 1'000'000);
  Terms larger = kTerms;
  larger.collective_bytes *= 2;
  EXPECT_FALSE(one.open(id(1, 1), larger));
  EXPECT_FALSE(other.allows(id(1, 1), 0, 1));
}

// What is dropped here gets no second budget by way of a NIC that never saw it; who has it goes on.
TEST(JointBudget, WhatWasDroppedOpensNoMore) {
  JointBudgetTable joint(kBounds);
  LedgerBook early({}, &joint), late({}, &joint);
  ASSERT_TRUE(early.open(id(1, 1), kTerms));
  early.add_eligible(id(1, 1), 1'000'000);
  for (std::uint32_t sequence = 2; sequence < 8; ++sequence) ASSERT_TRUE(early.open(id(1, sequence), kTerms));
  EXPECT_TRUE(early.charge(id(1, 1), 0, 1000));
  EXPECT_FALSE(late.open(id(1, 1), kTerms));
  late.add_eligible(id(1, 1), 1'000'000);
  EXPECT_FALSE(late.charge(id(1, 1), 0, 1));
  EXPECT_FALSE(late.open(id(1, 1), kTerms)) << "nor when it is asked again";
  EXPECT_TRUE(late.open(id(1, 7), kTerms));
}

TEST(JointBudget, CommunicatorsAreBoundedAndForgotten) {
  JointBudgetTable joint(kBounds);
  LedgerBook book({}, &joint);
  ASSERT_TRUE(book.open(id(1, 1), kTerms) && book.open(id(2, 1), kTerms));
  EXPECT_FALSE(book.open(id(3, 1), kTerms));
  joint.forget(1);
  EXPECT_TRUE(book.open(id(4, 1), kTerms));
  EXPECT_THROW(JointBudgetTable({.ledgers = 0}), std::invalid_argument);
}

TEST(JointBudget, NothingIsLeftOnceItIsClosed) {
  JointBudget budget(kTerms);
  EXPECT_EQ(budget.left(), 10'000u);
  EXPECT_FALSE(budget.charge(10'001));
  EXPECT_TRUE(budget.charge(1));
  budget.close();
  EXPECT_EQ(budget.left(), 0u);
  EXPECT_FALSE(budget.charge(1));
}

}  // namespace
}  // namespace clustar::mlt
