#include "mlt/core/ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

Terms terms(std::uint64_t bytes, std::uint32_t ranks, std::uint32_t edges, std::uint32_t ppm) {
  return {.collective_bytes = bytes, .ranks = ranks, .edges = edges, .tolerance_ppm = ppm};
}

TEST(LossBound, IsExactAndRoundedDown) {
  EXPECT_EQ(loss_bound(terms(1'000'000, 8, 8, 10'000)), 10'000u);
  EXPECT_EQ(loss_bound(terms(1'000'000, 8, 2, 10'000)), 40'000u);
  EXPECT_EQ(loss_bound(terms(99, 3, 2, 10'000)), 1u) << "1.485";
  EXPECT_EQ(loss_bound(terms(66, 3, 2, 10'000)), 0u) << "0.99";
}

TEST(LossBound, AllowsNothingWhenATermIsUnknownOrSenseless) {
  EXPECT_EQ(loss_bound(terms(0, 8, 8, 10'000)), 0u);
  EXPECT_EQ(loss_bound(terms(1'000'000, 1, 1, 10'000)), 0u);
  EXPECT_EQ(loss_bound(terms(1'000'000, 8, 0, 10'000)), 0u);
  EXPECT_EQ(loss_bound(terms(1'000'000, 8, 9, 10'000)), 0u) << "more edges than ranks";
  EXPECT_EQ(loss_bound(terms(1'000'000, 8, 8, 1'000'001)), 0u);
  EXPECT_EQ(loss_bound(Terms{}), 0u);
}

TEST(LossBound, DoesNotOverflow) {
  EXPECT_EQ(loss_bound(terms(kMax, 2, 2, 1'000'000)), kMax);
  EXPECT_EQ(loss_bound(terms(kMax, 0xffffffff, 1, 1'000'000)), kMax) << "cut, not wrapped";
  EXPECT_EQ(loss_bound(terms(kMax, 0xffffffff, 0xffffffff, 1)), kMax / 1'000'000);
  Ledger ledger(terms(kMax, 0xffffffff, 1, 1'000'000));
  ledger.add_eligible(kMax);
  ledger.add_eligible(kMax);
  EXPECT_EQ(ledger.counters().eligible_bytes, kMax);
  EXPECT_TRUE(ledger.charge(0, kMax / 2));
  EXPECT_FALSE(ledger.charge(0xfffffffd, kMax / 2)) << "(stage + 1) * bytes is past 2^64";
  EXPECT_FALSE(ledger.charge(0xffffffff, 1));
  EXPECT_TRUE(ledger.charge(0, kMax - kMax / 2));
  EXPECT_FALSE(ledger.charge(0, 1));
  EXPECT_EQ(ledger.counters().charged, kMax);
  EXPECT_EQ(ledger.counters().missing_bytes, kMax);
}

TEST(MessageCap, IsATenthButAtLeastOnePacket) {
  EXPECT_EQ(message_cap_packets(0), 0u);
  EXPECT_EQ(message_cap_packets(1), 1u);
  EXPECT_EQ(message_cap_packets(19), 1u);
  EXPECT_EQ(message_cap_packets(20), 2u);
  EXPECT_EQ(message_cap_packets(725), 72u);
  EXPECT_EQ(message_cap_packets(0xffffffff), 0xffffffff / 10);
}

TEST(Ledger, IsNeverAboveEitherBoundInRandomSequences) {
  Rng rng(3);
  std::uint64_t granted = 0;
  std::uint64_t refused = 0;
  for (int round = 0; round < 10'000; ++round) {
    const auto ranks = static_cast<std::uint32_t>(rng.below(64));
    const Terms agreed = terms(rng.below(1u << 28), ranks, static_cast<std::uint32_t>(rng.below(ranks + 2)),
                               static_cast<std::uint32_t>(rng.below(100'000)));
    Ledger ledger(agreed);
    const std::uint64_t bound = loss_bound(agreed);
    std::uint64_t charged = 0;
    std::uint64_t missing = 0;
    std::uint64_t eligible = 0;
    for (int step = 0; step < 30; ++step) {
      const std::uint64_t size = rng.below(1u << 21);
      if (rng.chance(0.4)) {
        ledger.add_eligible(size);
        eligible += size;
      }
      const auto stage = static_cast<std::uint32_t>(rng.below(ranks + 1));
      const std::uint64_t bytes = rng.below(1 + rng.below(20) * 1448);
      const bool allowed = ledger.allows(stage, bytes);
      ASSERT_EQ(ledger.charge(stage, bytes), allowed);
      (allowed ? granted : refused) += 1;
      if (allowed) {
        charged += bytes * (stage + 1);
        missing += bytes;
      }
      ASSERT_LE(charged, bound);
      ASSERT_LE(static_cast<unsigned __int128>(missing) * 1'000'000,
                static_cast<unsigned __int128>(agreed.tolerance_ppm) * eligible);
      ASSERT_EQ(ledger.counters().charged, charged);
      ASSERT_EQ(ledger.counters().missing_bytes, missing);
    }
  }
  EXPECT_GT(granted, 10'000u);
  EXPECT_GT(refused, 10'000u);
}

// At each stage as many whole packets as arithmetic says, and not one more; never none.
TEST(Ledger, ToleratesExactlyTheBoundAtUsualSizes) {
  for (const std::uint64_t segment : {1448u, 8948u}) {
    for (const std::uint32_t ranks : {4u, 8u, 16u, 64u}) {
      const std::uint64_t bytes = 64u << 20;
      for (std::uint32_t stage = 0; stage + 1 < ranks; ++stage) {
        Ledger ledger(terms(bytes, ranks, ranks, 10'000));
        const std::uint64_t eligible = bytes / ranks * (ranks - 1);
        ledger.add_eligible(eligible);
        std::uint64_t packets = 0;
        while (ledger.charge(stage, segment)) ++packets;
        const std::uint64_t by_bound = bytes / 100 / (stage + 1) / segment;
        const std::uint64_t by_share = eligible / 100 / segment;
        EXPECT_EQ(packets, std::min(by_bound, by_share)) << ranks << " ranks, stage " << stage;
        EXPECT_GT(packets, 0u) << ranks << " ranks, stage " << stage << ", segment " << segment;
        EXPECT_EQ(ledger.counters().refused, 1u);
      }
    }
  }
}

// The contract's "(Uniform loss at E = n gives 2p/(n-1) per hop.)", by computation: with S / n bytes per stage, losing
// that share of every stage fits, and a packet per stage more does not.
TEST(Ledger, UniformLossOnARingReachesTheBoundAtTwoPOverNMinusOne) {
  for (const std::uint32_t ranks : {4u, 8u, 16u, 64u}) {
    const std::uint64_t bytes = 1u << 30;
    const std::uint64_t ppm = 10'000;
    Ledger ledger(terms(bytes, ranks, ranks, ppm));
    const std::uint64_t stage_bytes = bytes / ranks;
    const std::uint64_t lost = stage_bytes * 2 * ppm / (1'000'000 * (ranks - 1));
    for (std::uint32_t stage = 0; stage + 1 < ranks; ++stage) ledger.add_eligible(stage_bytes);
    for (std::uint32_t stage = 0; stage + 1 < ranks; ++stage) {
      EXPECT_TRUE(ledger.charge(stage, lost)) << ranks << " ranks, stage " << stage;
    }
    const std::uint64_t left = ledger.bound() - ledger.counters().charged;
    EXPECT_LE(left, ranks * ranks) << "what rounding `lost` down to whole bytes leaves, at most";
    EXPECT_FALSE(ledger.charge(ranks - 2, 1448));
  }
}

TEST(Ledger, CountsOnlyWhatIsEligibleSoFar) {
  Ledger ledger(terms(100u << 20, 8, 8, 10'000));
  EXPECT_FALSE(ledger.allows(0, 1)) << "nothing announced yet";
  ledger.add_eligible(64 << 10);
  EXPECT_EQ(ledger.headroom(0), 655u);
  EXPECT_FALSE(ledger.allows(0, 1448));
  ledger.add_eligible(2 * (64 << 10));
  EXPECT_TRUE(ledger.allows(0, 1448)) << "the third message may lose a packet";
  EXPECT_TRUE(ledger.allows(0, 0));
}

TEST(Ledger, AllowsOnlyReduceScatterStages) {
  Ledger ledger(terms(100u << 20, 4, 4, 10'000));
  ledger.add_eligible(75u << 20);
  EXPECT_TRUE(ledger.allows(2, 1448));
  EXPECT_FALSE(ledger.allows(3, 1448)) << "4 ranks: stages 0 to 2";
  EXPECT_FALSE(ledger.allows(0xffffffff, 1448));
}

TEST(Ledger, IsNeverRefundedAndEndsWithClose) {
  Ledger ledger(terms(1'000'000, 4, 4, 10'000));
  ledger.add_eligible(750'000);
  EXPECT_TRUE(ledger.charge(0, 7'500));
  EXPECT_FALSE(ledger.charge(0, 1));
  ledger.add_eligible(250'000);
  EXPECT_TRUE(ledger.allows(0, 2'500));
  EXPECT_FALSE(ledger.allows(1, 2'000));
  ledger.close();
  EXPECT_FALSE(ledger.allows(0, 1));
  EXPECT_EQ(ledger.headroom(0), 0u);
}

class Book : public testing::Test {
 protected:
  static constexpr Terms kTerms{.collective_bytes = 1'000'000, .ranks = 4, .edges = 4, .tolerance_ppm = 10'000};
  static CollectiveId id(std::uint64_t communicator, std::uint32_t sequence) { return {communicator, sequence}; }
};

TEST_F(Book, KeepsCollectivesApart) {
  LedgerBook book({});
  EXPECT_TRUE(book.open(id(1, 1), kTerms));
  EXPECT_TRUE(book.open(id(2, 1), kTerms));
  book.add_eligible(id(1, 1), 750'000);
  book.add_eligible(id(3, 1), 750'000);
  EXPECT_TRUE(book.charge(id(1, 1), 0, 7'000));
  EXPECT_FALSE(book.charge(id(2, 1), 0, 7'000)) << "nothing eligible";
  EXPECT_FALSE(book.charge(id(3, 1), 0, 7'000)) << "not open";
  EXPECT_TRUE(book.charge(id(3, 1), 0, 0)) << "0 bytes are no loss";
  EXPECT_EQ(book.totals().eligible_bytes, 750'000u);
  EXPECT_EQ(book.totals().missing_bytes, 7'000u);
  EXPECT_EQ(book.totals().charged, 7'000u);
  EXPECT_EQ(book.totals().refused, 2u);
}

TEST_F(Book, NobodyGetsASecondBudget) {
  LedgerBook book({.ledgers = 4});
  ASSERT_TRUE(book.open(id(1, 10), kTerms));
  book.add_eligible(id(1, 10), 1'000'000);
  ASSERT_TRUE(book.charge(id(1, 10), 0, 10'000));
  EXPECT_TRUE(book.open(id(1, 10), kTerms)) << "once more with the same terms is harmless";
  EXPECT_FALSE(book.allows(id(1, 10), 0, 1));
  book.close(id(1, 10));
  EXPECT_FALSE(book.open(id(1, 10), kTerms));
  for (std::uint32_t sequence = 11; sequence < 20; ++sequence) EXPECT_TRUE(book.open(id(1, sequence), kTerms));
  EXPECT_EQ(book.find(id(1, 10)), nullptr) << "dropped long ago";
  EXPECT_FALSE(book.open(id(1, 10), kTerms));
  EXPECT_FALSE(book.open(id(1, 0xfffffff0), kTerms)) << "older, by wrapping";
  EXPECT_EQ(book.size(), 4u);
}

TEST_F(Book, TheOldestGoesFirstAndClosedOnesBeforeIt) {
  LedgerBook book({.ledgers = 3});
  for (const std::uint32_t sequence : {1u, 2u, 3u}) ASSERT_TRUE(book.open(id(1, sequence), kTerms));
  book.close(id(1, 2));
  ASSERT_TRUE(book.open(id(1, 4), kTerms));
  EXPECT_EQ(book.find(id(1, 2)), nullptr);
  EXPECT_NE(book.find(id(1, 1)), nullptr);
  EXPECT_FALSE(book.find(id(1, 1))->closed()) << "a later one's end does not end it";
  ASSERT_TRUE(book.open(id(1, 5), kTerms));
  EXPECT_EQ(book.find(id(1, 1)), nullptr);
}

TEST_F(Book, SequencesMayWrap) {
  LedgerBook book({.ledgers = 2});
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_TRUE(book.open(id(1, 0xfffffff6 + i), kTerms)) << i;
}

TEST_F(Book, ContradictingTermsCloseACollective) {
  LedgerBook book({});
  ASSERT_TRUE(book.open(id(1, 1), kTerms));
  book.add_eligible(id(1, 1), 1'000'000);
  Terms larger = kTerms;
  larger.collective_bytes *= 2;
  EXPECT_FALSE(book.open(id(1, 1), larger));
  EXPECT_FALSE(book.allows(id(1, 1), 0, 1));
  EXPECT_FALSE(book.open(id(1, 1), kTerms));
}

// Numbers of collectives and of exchanges know nothing of each other: neither opens, charges nor closes the other's.
TEST_F(Book, ExchangesHaveNumbersOfTheirOwn) {
  LedgerBook book({.ledgers = 2, .communicators = 2});
  const CollectiveId exchange{1, 5, true};
  Terms terms = kTerms;
  terms.edges = 1;
  ASSERT_TRUE(book.open(id(1, 5), kTerms));
  ASSERT_TRUE(book.open(exchange, terms)) << "no contradiction";
  book.add_eligible(exchange, 1'000'000);
  EXPECT_TRUE(book.charge(exchange, 0, 10'000));
  EXPECT_FALSE(book.allows(id(1, 5), 0, 1)) << "nothing eligible";
  for (std::uint32_t sequence = 100; sequence < 110; ++sequence) ASSERT_TRUE(book.open(id(1, sequence), kTerms));
  EXPECT_TRUE(book.open({1, 6, true}, terms)) << "the collectives' numbers left no floor under it";
  EXPECT_FALSE(book.open(exchange, terms)) << "but its own did";
  EXPECT_FALSE(book.open(id(2, 1), kTerms)) << "both spaces count";
  book.forget(1);
  EXPECT_TRUE(book.open(id(2, 1), kTerms));
  EXPECT_TRUE(book.open(exchange, terms));
}

// Sends of different sizes to one receiver are no exchange: unequal ones contradict each other, and stay reliable.
TEST_F(Book, UnequalSendsLoseNothing) {
  LedgerBook book({});
  const CollectiveId exchange{1, 0, true};
  Terms terms{.collective_bytes = 100'000, .ranks = 4, .edges = 1, .tolerance_ppm = 10'000};
  ASSERT_TRUE(book.open(exchange, terms));
  book.add_eligible(exchange, 100'000);
  terms.collective_bytes += 4;
  EXPECT_FALSE(book.open(exchange, terms));
  EXPECT_FALSE(book.allows(exchange, 0, 1));
}

TEST_F(Book, MemoryIsBoundedByOptions) {
  LedgerBook book({.ledgers = 8, .communicators = 2});
  EXPECT_TRUE(book.open(id(1, 1), kTerms));
  EXPECT_TRUE(book.open(id(2, 1), kTerms));
  EXPECT_FALSE(book.open(id(3, 1), kTerms)) << "a third communicator may lose nothing";
  book.forget(1);
  EXPECT_TRUE(book.open(id(3, 1), kTerms));
  EXPECT_THROW(LedgerBook({.ledgers = 0}), std::invalid_argument);
  EXPECT_THROW(LedgerBook({.communicators = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace clustar::mlt
