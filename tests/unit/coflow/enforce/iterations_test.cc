#include "coflow/enforce/iterations.h"

#include <gtest/gtest.h>

#include <vector>

#include "transport/base/rng.h"

namespace clustar::coflow::enforce {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::MessageIdentity;

constexpr std::uint64_t kMega = 1'000'000;

struct Part {
  std::uint64_t kind;
  std::uint64_t bytes;
  Duration pause;
};

// DDP: the buckets of backward, then a pause in which the next forward pass runs.
const std::vector<Part> kBuckets = {{1, kMega, milliseconds(50)},
                                    {1, 25 * kMega, milliseconds(2)},
                                    {1, 25 * kMega, milliseconds(0)},
                                    {1, 25 * kMega, milliseconds(3)},
                                    {1, 7 * kMega, milliseconds(1)}};
constexpr std::uint64_t kAll = 83 * kMega;

TEST(RepeatingCollectives, KnowsAnIterationAfterTwoThatWereAlike) {
  RepeatingCollectives sequence;
  for (int i = 0; i < 2; ++i) {
    for (const Part& part : kBuckets) {
      EXPECT_LT(sequence.forecast().bytes, kAll) << "of a part of it at most";
      sequence.add(part.kind, part.bytes, part.pause);
    }
  }
  EXPECT_EQ(sequence.forecast(), (IterationForecast{kAll, 0})) << "the end of the second";
  std::uint64_t left = kAll;
  for (const Part& part : kBuckets) {
    sequence.add(part.kind, part.bytes, part.pause);
    left -= part.bytes;
    EXPECT_EQ(sequence.forecast(), (IterationForecast{kAll, left}));
  }
}

TEST(RepeatingCollectives, WhatCameBeforeTheFirstIterationDoesNotMatter) {
  RepeatingCollectives sequence;
  // Parameters are broadcast once, and DDP's first buckets are others.
  for (std::uint64_t i = 0; i < 7; ++i) sequence.add(3, (10 + i) * kMega, milliseconds(1));
  for (int i = 0; i < 2; ++i) {
    for (const Part& part : kBuckets) sequence.add(part.kind, part.bytes, part.pause);
  }
  EXPECT_EQ(sequence.period(), kBuckets.size());
}

// ZeRO: all-gathers forward, then all-gathers and reduce-scatters in turns. Runs repeat within an iteration.
TEST(RepeatingCollectives, RunsWithinAnIterationAreNoIterations) {
  std::vector<Part> parts;
  for (int i = 0; i < 96; ++i) parts.push_back({2, 8 * kMega, milliseconds(i == 0 ? 20 : 1)});
  for (int i = 0; i < 96; ++i) {
    parts.push_back({2, 8 * kMega, milliseconds(1)});
    parts.push_back({3, 8 * kMega, milliseconds(0)});
  }
  RepeatingCollectives sequence;
  for (int i = 0; i < 2; ++i) {
    for (const Part& part : parts) sequence.add(part.kind, part.bytes, part.pause);
  }
  std::uint64_t left = parts.size();
  for (const Part& part : parts) {
    sequence.add(part.kind, part.bytes, part.pause);
    EXPECT_EQ(sequence.forecast(), (IterationForecast{parts.size() * 8 * kMega, --left * 8 * kMega}));
  }
}

// Buckets of 25 MiB, all of them: only the pause for the next forward pass tells.
TEST(RepeatingCollectives, EqualCollectivesAreToldApartByTheirPauses) {
  RepeatingCollectives sequence;
  for (std::int64_t i = 0; i < 8; ++i) {
    for (std::int64_t bucket = 0; bucket < 6; ++bucket) {
      // No two pauses are equal.
      sequence.add(1, 25 * kMega, bucket == 0 ? milliseconds(30 + i % 3) : milliseconds((i + bucket) % 5));
      const IterationForecast as_of_now{150 * kMega, static_cast<std::uint64_t>(5 - bucket) * 25 * kMega};
      if (i >= 3) {
        EXPECT_EQ(sequence.forecast(), as_of_now) << i << ' ' << bucket;
      }
    }
  }
}

TEST(RepeatingCollectives, PausesThatAreNeverAlikeHideNoIteration) {
  RepeatingCollectives sequence;
  Rng rng(1);
  std::size_t right = 0, seen = 0;
  for (int i = 0; i < 200; ++i) {
    for (const Part& part : kBuckets) {
      sequence.add(part.kind, part.bytes, microseconds(rng.below(50'000)));
      right += sequence.forecast().bytes == kAll ? 1 : 0;
      ++seen;
    }
  }
  EXPECT_GT(right, seen * 9 / 10) << "of " << seen;
}

TEST(RepeatingCollectives, AnotherSizeOrFunctionIsLearnedAfresh) {
  RepeatingCollectives sequence;
  const auto iteration = [&] {
    for (const Part& part : kBuckets) sequence.add(part.kind, part.bytes, part.pause);
  };
  for (int i = 0; i < 5; ++i) iteration();
  sequence.add(1, 3 * kMega, milliseconds(50));  // a checkpoint, a validation
  EXPECT_EQ(sequence.forecast(), IterationForecast{});
  iteration();
  iteration();
  EXPECT_EQ(sequence.forecast(), (IterationForecast{kAll, 0}));
}

TEST(RepeatingCollectives, WhatDoesNotRepeatIsNotForeseen) {
  RepeatingCollectives sequence;
  for (std::uint64_t i = 1; i < 3000; ++i) {
    sequence.add(1, i * kMega, milliseconds(1));
    ASSERT_EQ(sequence.forecast(), IterationForecast{});
  }
}

// Of collectives that are all different.
void run(RepeatingCollectives& sequence, std::uint64_t length, int times) {
  for (int i = 0; i < times; ++i) {
    for (std::uint64_t part = 1; part <= length; ++part) sequence.add(1, part * kMega, milliseconds(part == 1 ? 9 : 1));
  }
}

TEST(RepeatingCollectives, LongIterationsAreLearnedFromTwo) {
  for (const std::uint64_t length : {std::uint64_t{Repetition::kShort}, std::uint64_t{Repetition::kShort + 1},
                                     std::uint64_t{5000}, std::uint64_t{Repetition::kLongest}}) {
    RepeatingCollectives sequence;
    run(sequence, length, 2);
    EXPECT_EQ(sequence.period(), length);
    EXPECT_EQ(sequence.forecast(), (IterationForecast{length * (length + 1) / 2 * kMega, 0})) << length;
    sequence.add(1, kMega, milliseconds(9));
    EXPECT_EQ(sequence.forecast().to_come, (length * (length + 1) / 2 - 1) * kMega) << length;
    run(sequence, length, 3);  // out of step by one: learned afresh
    EXPECT_EQ(sequence.period(), length);
  }
  RepeatingCollectives longer;
  run(longer, Repetition::kLongest + 1, 4);
  EXPECT_EQ(longer.period(), 0u);
}

// Gradient accumulation: an iteration is a step of the optimizer behind many micro-batches that are alike.
TEST(RepeatingCollectives, AnIterationOfManyLikeMicroBatchesIsLearned) {
  constexpr std::uint64_t kMicroBatches = 40, kParts = 97, kStep = 60;
  constexpr std::uint64_t kLength = kMicroBatches * kParts + kStep;
  RepeatingCollectives sequence;
  const auto iteration = [&] {
    for (std::uint64_t batch = 0; batch < kMicroBatches; ++batch) {
      for (std::uint64_t part = 0; part < kParts; ++part) {
        sequence.add(2, (1 + part % 31) * kMega, milliseconds(part == 0 ? 3 : 0));
      }
    }
    for (std::uint64_t part = 0; part < kStep; ++part) sequence.add(3, (50 + part) * kMega, milliseconds(1));
  };
  iteration();
  EXPECT_EQ(sequence.period(), 0u) << "the end is like nothing before";
  iteration();
  EXPECT_EQ(sequence.period(), kLength);
  iteration();
  EXPECT_EQ(sequence.period(), kLength);
}

TEST(RepeatingCollectives, WhatIsRememberedIsBounded) {
  RepeatingCollectives never, soon;
  Rng rng(1);
  for (int i = 0; i < 100'000; ++i) {
    never.add(1, rng.below(1 << 30), milliseconds(1));
    soon.add(1, kBuckets[static_cast<std::size_t>(i) % kBuckets.size()].bytes, milliseconds(i % 5 == 0 ? 9 : 1));
  }
  EXPECT_EQ(never.period(), 0u);
  EXPECT_LE(never.remembered(), 3 * Repetition::kLongest);
  EXPECT_EQ(soon.period(), kBuckets.size());
  EXPECT_LE(soon.remembered(), 3 * Repetition::kShort) << "nothing longer is behind it";
  Repetition symbols;
  for (int i = 0; i < 100'000; ++i) symbols.add(static_cast<std::uint64_t>(i % 7));
  EXPECT_EQ(symbols.period(), 7u);
  EXPECT_LE(symbols.remembered(), 2 * Repetition::kShort);
}

MessageIdentity collective(std::uint64_t communicator, std::uint64_t number) {
  MessageIdentity identity;
  identity.known = true;
  identity.communicator = communicator;
  identity.number = number;
  identity.function = 4;
  return identity;
}

class OfANic : public testing::Test {
 protected:
  IterationForecast send(std::uint64_t communicator, std::uint64_t number, std::uint64_t bytes,
                         std::uint32_t peer = 1) {
    const auto id = iterations_.find(communicator, now_);
    EXPECT_NE(id, Iterations::kNone);
    const auto forecast = iterations_.begins(id, collective(communicator, number), peer, bytes, now_);
    iterations_.sends(id);
    now_ += milliseconds(1);
    iterations_.rests(id, now_);
    return forecast;
  }

  Iterations iterations_;
  TimePoint now_{std::chrono::seconds(1)};
};

TEST_F(OfANic, CommunicatorsHaveIterationsOfTheirOwn) {
  IterationForecast a, b;
  for (std::uint64_t i = 0; i < 4; ++i) {
    now_ += milliseconds(20);
    a = send(7, 2 * i, kMega);
    b = send(8, i, 5 * kMega);
    send(7, 2 * i + 1, 2 * kMega);
  }
  EXPECT_EQ(a, (IterationForecast{3 * kMega, 2 * kMega}));
  EXPECT_EQ(b, (IterationForecast{5 * kMega, 0}));
}

// A tree sends to several peers, and a ring's steps come one by one.
TEST_F(OfANic, TheFlowsOfACollectiveAreOne) {
  IterationForecast last;
  for (std::uint64_t i = 0; i < 4; ++i) {
    now_ += milliseconds(20);
    for (const std::uint32_t peer : {1u, 2u, 1u}) send(7, 2 * i, kMega, peer);
    for (const std::uint32_t peer : {2u, 1u}) last = send(7, 2 * i + 1, 2 * kMega, peer);
  }
  EXPECT_EQ(last, (IterationForecast{3 * kMega, 0}));
}

// Its pause is no pause: something of the communicator was on its way.
TEST_F(OfANic, AnIterationBeginsWhereNothingWasSent) {
  IterationForecast first;
  for (std::uint64_t i = 0; i < 4; ++i) {
    now_ += milliseconds(20);
    first = send(7, 2 * i, kMega);
    const auto id = iterations_.find(7, now_);
    iterations_.sends(id);
    now_ += milliseconds(500);
    send(7, 2 * i + 1, 2 * kMega);
    iterations_.rests(id, now_);
  }
  EXPECT_EQ(first, (IterationForecast{3 * kMega, 2 * kMega}));
}

TEST_F(OfANic, TheLongestSilentCommunicatorIsForgottenFirst) {
  const auto old = iterations_.find(0, now_);
  for (std::uint64_t communicator = 1; communicator < Iterations::kCommunicators; ++communicator) {
    now_ += milliseconds(1);
    iterations_.sends(iterations_.find(communicator, now_));
  }
  EXPECT_EQ(iterations_.find(1000, now_), old);
  iterations_.sends(old);
  EXPECT_EQ(iterations_.find(1001, now_), Iterations::kNone) << "all of them send";
}

}  // namespace
}  // namespace clustar::coflow::enforce
