// The tolerant contract, by thousands of seeds in simulated time.
#include "paraexpress/tolerant/core/party.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/sanitized.h"
#include "tests/unit/paraexpress/tolerant/simulated_group.h"

namespace clustar::paraexpress::tolerant {
namespace {

using std::chrono::milliseconds;
using ::testing::Each;

Simulated drawn(std::uint64_t seed) {
  Rng rng(seed);
  Simulated options;
  options.seed = seed;
  options.terms.ranks = static_cast<std::uint32_t>(1 + rng.below(6));
  options.terms.quorum = static_cast<std::uint32_t>(1 + rng.below(options.terms.ranks));
  options.terms.deadline = Duration(rng.below(static_cast<std::uint64_t>(Duration(milliseconds(20)).count())));
  options.terms.staleness = static_cast<std::uint32_t>(rng.below(8));
  options.terms.scales = false;
  options.rounds = 5 + rng.below(30);
  options.counts.clear();
  for (std::uint64_t i = 0; i <= rng.below(3); ++i) options.counts.push_back(1 + rng.below(40));
  options.holes = rng.below(2) == 0 ? 0 : rng.uniform();
  options.most_delay = Duration(milliseconds(1 + static_cast<int>(rng.below(20))));
  options.spread = rng.uniform();
  for (std::uint64_t i = 0; i < rng.below(3); ++i) {
    options.slow[static_cast<Member>(rng.below(options.terms.ranks))] = 1 + 9 * rng.uniform();
  }
  return options;
}

TEST(TolerantParty, ContributionsAndResidualsAreTheSumOfAllGradients) {
  std::uint64_t kept = 0, skipped = 0;
  constexpr std::uint64_t kSeeds = tests::kSanitized ? 150 : 1000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const Simulated options = drawn(seed);
    SimulatedGroup group(options);
    group.run();
    for (std::size_t bucket = 0; bucket < options.counts.size(); ++bucket) {
      ASSERT_THAT(group.difference(bucket), Each(0.0));
    }
    kept += group.kept();
    for (Member rank = 0; rank < options.terms.ranks; ++rank) skipped += group.skipped(rank);
    if (HasFailure()) return;
  }
  // Else nothing of it was tried.
  EXPECT_GT(kept, kSeeds * 30);
  EXPECT_GT(skipped, kSeeds * 2);
}

TEST(TolerantParty, NothingIsLostByARestart) {
  for (std::uint64_t seed = 1; seed <= (tests::kSanitized ? 50 : 300); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulated options = drawn(seed);
    SimulatedGroup first(options);
    first.run();
    options.residuals = first.residuals();
    options.seed += 1'000'000;
    SimulatedGroup second(options);
    second.run();
    for (std::size_t bucket = 0; bucket < options.counts.size(); ++bucket) {
      ASSERT_THAT(second.difference(bucket), Each(0.0));
    }
    if (HasFailure()) return;
  }
}

TEST(TolerantParty, WithoutStalenessEveryRoundIsTheExactSum) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulated options = drawn(seed);
    options.terms.staleness = 0;
    options.terms.scales = true;
    options.holes = 0;
    SimulatedGroup group(options);
    group.run();
    EXPECT_EQ(group.kept(), 0);
    for (std::size_t bucket = 0; bucket < options.counts.size(); ++bucket) {
      ASSERT_THAT(group.difference(bucket), Each(0.0));
    }
    if (HasFailure()) return;
  }
}

Simulated four_ranks() {
  Simulated options;
  options.terms.ranks = 4;
  options.terms.quorum = 3;
  options.terms.staleness = 8;
  options.terms.deadline = milliseconds(1);
  options.rounds = 200;
  options.counts = {400};
  return options;
}

TEST(TolerantParty, OneRankFiveTimesSlowerDelaysNobodyByMuch) {
  Simulated options = four_ranks();
  SimulatedGroup healthy(options);
  healthy.run();
  options.slow = {{2, 5.0}};
  SimulatedGroup tolerant(options);
  tolerant.run();
  options.terms.staleness = 0;
  SimulatedGroup strict(options);
  strict.run();
  EXPECT_LT(tolerant.took(), healthy.took() * 11 / 10);
  EXPECT_GT(strict.took(), healthy.took() * 4);
  // Its gradients are summed: one in about six rounds, which is what it computes.
  EXPECT_GT(tolerant.skipped(2), 120);
  EXPECT_LT(tolerant.skipped(2), 180);
}

TEST(TolerantParty, NobodyGetsFurtherAheadThanTheStaleness) {
  Simulated options = four_ranks();
  options.slow = {{1, 50.0}};
  options.terms.staleness = 4;
  options.rounds = 50;
  SimulatedGroup group(options);
  group.run();
  // It is in every fifth round at least, though it computes for fifty times as long.
  EXPECT_LE(group.most_missed(), 4);
  EXPECT_GT(group.most_missed(), 1);
  EXPECT_GT(group.took(), milliseconds(50 * 10 * 50 / 12));
}

// A rank with a slow uplink, whose contributions all come after the deadline.
TEST(TolerantParty, NobodyIsLeftOutForeverWhateverMakesItLate) {
  Simulated options = four_ranks();
  options.terms.scales = false;
  options.slow_uplink = 1;
  options.rounds = 300;
  SimulatedGroup group(options);
  group.run();
  EXPECT_LE(group.most_missed(), options.terms.staleness);
  EXPECT_THAT(group.difference(0), Each(0.0));
}

// The others' deadline does not begin before they compute.
TEST(TolerantParty, WhoCatchesUpMakesNobodyElseLate) {
  Simulated options = four_ranks();
  options.spread = 0.02;
  options.slow = {{2, 5.0}};
  options.least_delay = options.most_delay = std::chrono::microseconds(50);
  SimulatedGroup group(options);
  group.run();
  for (const Member healthy : {0U, 1U, 3U}) EXPECT_EQ(group.skipped(healthy), 0U) << healthy;
  EXPECT_GT(group.skipped(2), 100U);
}

TEST(TolerantParty, ARestartWithOtherRanksLosesNothing) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulated options = drawn(seed);
    SimulatedGroup first(options);
    first.run();
    options.residuals = first.residuals();
    options.terms.ranks = static_cast<std::uint32_t>(1 + seed % 6);
    options.terms.quorum = 1;
    options.slow.clear();
    SimulatedGroup second(options);
    second.run();
    for (std::size_t bucket = 0; bucket < options.counts.size(); ++bucket) {
      ASSERT_THAT(second.difference(bucket), Each(0.0));
    }
    if (HasFailure()) return;
  }
}

TEST(TolerantParty, WhatIsRestoredCountsForAsManyGradientsAsItHolds) {
  struct NoWire final : Wire {
    Block take(std::size_t) override { return nullptr; }
    void say(Member, const Note&) override {}
    void send(Member, Block, std::size_t, const Ticket&) override {}
    void receive(Member, Block, std::size_t, const Ticket&) override {}
  } wire;
  Party party({.self = 0, .ranks = 3, .buckets = 1, .quorum = 1, .staleness = 2}, wire);
  ASSERT_FALSE(party.restore(0, {6, DataType::kFloat32, 9, {1, 0, 2}, std::vector<std::byte>(24)}));
  EXPECT_EQ(party.residual(0).owed, (std::vector<std::uint32_t>{1, 0, 2}));
  // Of another group: its parts are others.
  ASSERT_FALSE(party.restore(0, {6, DataType::kFloat32, 9, {3, 1}, {}}));
  EXPECT_EQ(party.residual(0).owed, (std::vector<std::uint32_t>{4, 3, 5}));
  const auto wrong = party.restore(0, {7, DataType::kFloat32, 9, {0, 0, 0}, {}});
  ASSERT_TRUE(wrong);
  EXPECT_THAT(*wrong, testing::HasSubstr("must stay as it is"));
}

TEST(TolerantParty, WhatALateRankDidNotGiveIsMadeUpForByScale) {
  Simulated options = four_ranks();
  options.slow = {{3, 5.0}};
  options.rounds = 1;
  options.terms.quorum = 1;
  SimulatedGroup scaled(options);
  scaled.run();
  options.terms.scales = false;
  SimulatedGroup plain(options);
  plain.run();
  ASSERT_EQ(scaled.least_gradients(), 3);
  for (std::size_t i = 0; i < 400; ++i) {
    EXPECT_FLOAT_EQ(scaled.results(0)[0][i], plain.results(0)[0][i] * 4 / 3);
  }
}

// A party that hears what makes no sense.
struct Deaf final : Wire {
  Block take(std::size_t bytes) override {
    return bytes > most ? nullptr : Block(new std::byte[bytes], std::default_delete<std::byte[]>());
  }
  void say(Member, const Note&) override {}
  void send(Member, Block, std::size_t, const Ticket&) override {}
  void receive(Member, Block, std::size_t, const Ticket&) override {}
  std::size_t most = 1 << 20;
};

TEST(TolerantParty, ContradictionsNameWhoSaidThem) {
  Deaf wire;
  Party party({.self = 0, .ranks = 3, .buckets = 2, .quorum = 2, .staleness = 2}, wire);
  const Note good{.bucket = 1, .round = 0, .count = 30, .weight = 1};
  EXPECT_FALSE(party.heard(1, good, {}));
  const auto refused = [&](Member from, Note note) {
    const auto fault = party.heard(from, note, {});
    return fault && fault->guilty == from ? fault->what : "";
  };
  EXPECT_THAT(refused(1, good), testing::HasSubstr("allowed: 1 to 0"));
  Note note = good;
  note.count = 31;
  EXPECT_THAT(refused(2, note), testing::HasSubstr("31 elements of float32 on rank 2, 30 of float32 on rank 1"));
  note = good;
  note.type = DataType::kFloat64;
  EXPECT_THAT(refused(2, note), testing::HasSubstr("float64"));
  note = good;
  note.round = 1;
  EXPECT_THAT(refused(2, note), testing::HasSubstr("allowed: 0 to 0"));
  note = {.kind = NoteKind::kResult, .bucket = 0, .round = 1, .count = 30, .weight = 1};
  EXPECT_THAT(refused(2, note), testing::HasSubstr("where round 0 is to come"));
  note.round = 0;
  note.count = 31;
  EXPECT_THAT(refused(2, note), testing::HasSubstr("rank 0 knew of 30"));
  // What others say takes no more memory than there is.
  Party other({.self = 0, .ranks = 3, .buckets = 2, .quorum = 2, .staleness = 2}, wire);
  for (const NoteKind kind : {NoteKind::kContribution, NoteKind::kResult}) {
    const Note huge{.kind = kind, .bucket = 0, .round = 0, .count = std::uint64_t{1} << 40, .weight = 1};
    const auto fault = other.heard(2, huge, {});
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->guilty, 0) << "its own";
    EXPECT_EQ(fault->code, ErrorCode::kSystem);
    EXPECT_THAT(fault->what, testing::HasSubstr("no memory"));
  }
}

// One gives to this rank's part of 30 elements, another's result is of 60: this rank, which has not begun, knows no
// better.
TEST(TolerantParty, AContributionAndAResultOfDifferentSizesAreAContradiction) {
  for (const std::uint64_t of_result : {60, 3}) {
    Deaf wire;
    Party party({.self = 0, .ranks = 3, .buckets = 1, .quorum = 1, .staleness = 2}, wire);
    ASSERT_FALSE(party.heard(1, {.bucket = 0, .round = 0, .count = 30, .weight = 1, .fresh = true}, {}));
    ASSERT_FALSE(party.came(1, {NoteKind::kContribution, 0, 0}, {}, {}));
    const Note result{.kind = NoteKind::kResult, .bucket = 0, .round = 0, .count = of_result, .weight = 1};
    ASSERT_FALSE(party.heard(2, result, {}));
    const auto fault = party.advance({});
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->guilty, 1);
    EXPECT_THAT(fault->what, testing::HasSubstr("bucket 0 has 30 elements of float32, where rank 0 knew of " +
                                                std::to_string(of_result)));
  }
}

TEST(TolerantParty, AResultMayNotLeaveOutWhatItDoesNotHave) {
  struct Kept final : Wire {
    Block take(std::size_t bytes) override { return {new std::byte[bytes](), std::default_delete<std::byte[]>()}; }
    void say(Member, const Note&) override {}
    void send(Member, Block, std::size_t, const Ticket&) override {}
    void receive(Member, Block block, std::size_t, const Ticket&) override { posted = std::move(block); }
    Block posted{};
  } wire;
  Party party({.self = 0, .ranks = 2, .buckets = 1, .quorum = 1, .staleness = 2}, wire);
  const Note note{.kind = NoteKind::kResult, .bucket = 0, .round = 0, .count = 8, .weight = 1, .left_out = 1};
  ASSERT_FALSE(party.heard(1, note, {}));
  encode_range({2, 5}, std::span<std::byte, kRangeBytes>(wire.posted.get() + 4 * sizeof(float), kRangeBytes));
  const auto fault = party.came(1, {NoteKind::kResult, 0, 0}, {}, {});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->guilty, 1);
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
