#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "coflow/enforce/host_policy.h"
#include "tests/unit/coflow/enforce/one_host.h"

namespace clustar::coflow::enforce {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::FlowTag;
using RunAhead = transport::SendPolicy::RunAhead;
using transport::Urgency;

class OnALine : public testing::Test {
 protected:
  static constexpr std::uint64_t kRate = 25'000'000;  // 16 KiB take 655 us
  static constexpr Duration kChunkTime = microseconds(655);
  std::unique_ptr<Host> process(std::size_t slot, std::uint32_t job, std::uint32_t weight = 1) {
    BoardOptions board;
    board.bytes_per_second = kRate;
    board.job = job;
    board.weight = weight;
    HostPolicyOptions options;
    options.knows_line = true;
    options.burst = microseconds(20) + kChunkTime;
    return std::make_unique<Host>(options, std::make_unique<Board>(state_, slot, board));
  }
  BoardState state_;
};

TEST_F(OnALine, BulkThatIsAloneIsNotPaced) {
  const auto host = process(0, 1);
  host->push(coflow(1, 100 * kMiB), 100 * kMiB);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(host->take());
}

TEST_F(OnALine, BulkIsPacedWhileMiceAreThere) {
  const auto host = process(0, 1);
  host->push(coflow(1, 100 * kMiB), 100 * kMiB);
  host->push({}, 8);
  ASSERT_EQ(host->take(), 1u);
  std::uint64_t sent = 0;
  const Duration step = microseconds(10);
  for (TimePoint now = kNow; now < kNow + milliseconds(50); now += step) {
    while (host->take(now)) sent += kChunk;
    EXPECT_TRUE(sent <= kChunk * 2 || host->queue().next_release() > now);
  }
  EXPECT_NEAR(static_cast<double>(sent), 0.05 * kRate, 3.0 * kChunk);
  // None for a while: not paced any more.
  const TimePoint later = kNow + milliseconds(250);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(host->take(later));
}

// Its processor is busy: it comes to poll every few milliseconds, in which the line takes several chunks.
TEST_F(OnALine, APollNowAndThenFillsTheLine) {
  const auto host = process(0, 1);
  host->push(coflow(1, 100 * kMiB), 100 * kMiB);
  std::uint64_t sent = 0;
  for (TimePoint now = kNow; now < kNow + milliseconds(800); now += milliseconds(8)) {
    host->push({}, 8, now);
    while (const auto taken = host->take(now)) sent += taken == 0u ? kChunk : 0;
  }
  EXPECT_GT(static_cast<double>(sent), 0.9 * 0.8 * kRate);
  EXPECT_LT(static_cast<double>(sent), 1.1 * 0.8 * kRate);
}

TEST_F(OnALine, AMouseOfAnotherProcessSlowsBulkToo) {
  const auto elephants = process(0, 1), mice = process(1, 2);
  elephants->push(coflow(1, 100 * kMiB), 100 * kMiB);
  mice->push({}, 8);
  EXPECT_TRUE(mice->take());
  int chunks = 0;
  while (chunks < 100 && elephants->take()) ++chunks;
  EXPECT_LE(chunks, 3);
}

TEST_F(OnALine, TheMoreUrgentProcessGoesFirstAndOneThatDoesNotAskIsPassedOver) {
  const auto background = process(0, 1), blocking = process(1, 2);
  background->push(coflow(1, 100 * kMiB, Urgency::kBackground), 100 * kMiB);
  blocking->push(coflow(2, 100 * kMiB, Urgency::kBlocking), 100 * kMiB);
  std::uint64_t first = 0, second = 0;
  TimePoint now = kNow;
  for (; now < kNow + milliseconds(200); now += microseconds(10)) {
    while (background->take(now)) second += kChunk;
    while (blocking->take(now)) first += kChunk;
  }
  EXPECT_NEAR(static_cast<double>(first + second), 0.2 * kRate, 4.0 * kChunk) << "the line is busy";
  EXPECT_LT(static_cast<double>(second), 0.12 * static_cast<double>(first)) << "but for the floor";
  EXPECT_GT(second, 0u);
  // The urgent one is stopped, or its receiver does not take anything.
  second = 0;
  const TimePoint end = now + milliseconds(100);
  for (; now < end; now += microseconds(10)) {
    while (background->take(now)) second += kChunk;
  }
  EXPECT_GT(static_cast<double>(second), 0.9 * 0.1 * kRate);
}

// Its next phase may begin any moment, and whatever stands in the kernel or the NIC then is in front of it.
TEST_F(OnALine, BulkStaysPacedForAWhileAfterMoreUrgentBulk) {
  const auto background = process(0, 1), blocking = process(1, 2);
  background->push(coflow(1, 100 * kMiB, Urgency::kBackground), 100 * kMiB);
  blocking->push(coflow(2, 8 * kChunk, Urgency::kBlocking), 8 * kChunk);
  TimePoint now = kNow;
  for (; blocking->queue().size() > 0; now += microseconds(10)) {
    while (background->take(now)) {
    }
    while (blocking->take(now)) {
    }
  }
  std::uint64_t sent = 0;
  for (const TimePoint end = now + milliseconds(90); now < end; now += microseconds(10)) {
    while (background->take(now)) sent += kChunk;
    ASSERT_EQ(background->policy().run_ahead(now), RunAhead::kNo);
  }
  EXPECT_NEAR(static_cast<double>(sent), 0.09 * kRate, 6.0 * kChunk);
  now += milliseconds(20);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(background->take(now));
  EXPECT_EQ(background->policy().run_ahead(now), RunAhead::kFree);
}

// On a busy processor. It hands on what the line takes until it comes again, so that the other finds no gap.
TEST_F(OnALine, WhoIsTheMostUrgentHasTheLineThoughItPollsSeldom) {
  const auto background = process(0, 1), blocking = process(1, 2);
  background->push(coflow(1, 100 * kMiB, Urgency::kBackground), 100 * kMiB);
  blocking->push(coflow(2, 100 * kMiB, Urgency::kBlocking), 100 * kMiB);
  std::uint64_t first = 0, second = 0;
  for (int tick = 0; tick < 80'000; ++tick) {
    const TimePoint now = kNow + microseconds(10) * tick;
    if (tick % 600 == 0) {
      while (blocking->take(now)) first += kChunk;
    }
    while (background->take(now)) second += kChunk;
  }
  EXPECT_LT(static_cast<double>(second), 0.15 * static_cast<double>(first))
      << "but for the floor, and a chunk per poll";
  EXPECT_NEAR(static_cast<double>(first + second), 0.8 * kRate, 0.03 * kRate) << "the line is busy";
}

// Equals take turns: what one has in the kernel is in front of the other.
TEST_F(OnALine, BesideEquallyUrgentBulkTheLineIsFilledAtMost) {
  const auto one = process(0, 1), other = process(1, 2);
  one->push(coflow(1, 100 * kMiB), 100 * kMiB);
  other->push(coflow(2, 100 * kMiB), 100 * kMiB);
  for (TimePoint now = kNow; now < kNow + milliseconds(50); now += milliseconds(1)) {
    while (one->take(now)) {
    }
    while (other->take(now)) {
    }
    EXPECT_EQ(other->policy().run_ahead(now), RunAhead::kFill);
    if (now > kNow) {
      EXPECT_EQ(one->policy().run_ahead(now), RunAhead::kFill);
    }
  }
}

// A job's next bulk may be more urgent than its last, or less: what others have counts against the bulk of the moment.
TEST_F(OnALine, HowFarAheadGoesByTheUrgencyOfTheMoment) {
  const auto changing = process(0, 1), other = process(1, 2);
  other->push(coflow(1, 100 * kMiB, Urgency::kGradient), 100 * kMiB);
  changing->push(coflow(2, 8 * kChunk, Urgency::kBackground), 8 * kChunk);
  TimePoint now = kNow;
  const auto go_on_until_it_rests = [&] {
    for (const TimePoint end = now + milliseconds(500); changing->queue().size() > 0 && now < end;
         now += microseconds(50)) {
      while (changing->take(now)) {
      }
      while (other->take(now)) {
      }
    }
    ASSERT_EQ(changing->queue().size(), 0u);
  };
  changing->take(now);
  EXPECT_EQ(changing->policy().run_ahead(now), RunAhead::kNo);
  go_on_until_it_rests();
  changing->push(coflow(3, 8 * kChunk, Urgency::kBlocking), 8 * kChunk, now);
  changing->take(now);
  EXPECT_EQ(changing->policy().run_ahead(now), RunAhead::kFree) << "though it was behind a moment ago";
  go_on_until_it_rests();
  changing->push(coflow(4, 8 * kChunk, Urgency::kGradient), 8 * kChunk, now);
  changing->take(now);
  EXPECT_EQ(changing->policy().run_ahead(now), RunAhead::kFill);
  go_on_until_it_rests();
  changing->push(coflow(5, 8 * kChunk, Urgency::kBackground), 8 * kChunk, now);
  changing->take(now);
  EXPECT_EQ(changing->policy().run_ahead(now), RunAhead::kNo);
}

// Nobody's way to the line is shut by what cannot be sent.
TEST_F(OnALine, WhatIsBlockedLendsItsUrgencyToNothingElse) {
  const auto mixed = process(0, 1), other = process(1, 2);
  const auto stuck = mixed->push(coflow(1, 100 * kMiB, Urgency::kBlocking), 100 * kMiB);
  mixed->push(coflow(2, 100 * kMiB, Urgency::kGradient), 100 * kMiB);
  mixed->queue().block(stuck);
  other->push(coflow(3, 100 * kMiB, Urgency::kPrefetch), 100 * kMiB);
  std::uint64_t of_mixed = 0, of_other = 0;
  for (TimePoint now = kNow; now < kNow + milliseconds(500); now += microseconds(10)) {
    while (mixed->take(now)) of_mixed += kChunk;
    while (other->take(now)) of_other += kChunk;
  }
  EXPECT_GT(of_other, of_mixed / 4) << "it is taken for less urgent than what is stuck, but not left out";
  EXPECT_GT(of_other + of_mixed, static_cast<std::uint64_t>(0.45 * kRate));
}

TEST_F(OnALine, AProcessThatDoesNotKnowTheLineSlowsNobody) {
  const auto known = process(0, 1);
  Host unknown({}, std::make_unique<Board>(state_, 1, BoardOptions{.job = 2}));
  unknown.push(coflow(1, 100 * kMiB, Urgency::kBlocking), 100 * kMiB);
  known->push(coflow(2, 100 * kMiB, Urgency::kBackground), 100 * kMiB);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(known->take());
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(unknown.take());
}

TEST_F(OnALine, TimesOfAnotherClockStopNobody) {
  const auto one = process(0, 1), other = process(1, 2);
  one->push(coflow(1, 100 * kMiB), 100 * kMiB);
  other->push(coflow(2, 100 * kMiB), 100 * kMiB);
  const std::int64_t far = (kNow + std::chrono::hours(1)).time_since_epoch().count();
  state_.line_free_at = far;
  state_.mouse_at = far;
  state_.slots[1].asked_at = far;
  EXPECT_TRUE(one->take());
}

TEST_F(OnALine, BesideBulkOfAnotherProcessMiceHaveTheirShare) {
  const auto bulk = process(0, 1), mice = process(1, 2);
  bulk->push(coflow(1, 1000 * kMiB), 1000 * kMiB);
  std::uint64_t of_bulk = 0, of_mice = 0;
  for (TimePoint now = kNow; now < kNow + milliseconds(500); now += microseconds(100)) {
    while (bulk->take(now)) of_bulk += kChunk;
    if (mice->queue().size() == 0) mice->push({}, kChunk, now);
    if (mice->take(now)) of_mice += kChunk;
  }
  EXPECT_GT(static_cast<double>(of_bulk), 0.5 * 0.5 * kRate);
  EXPECT_GT(static_cast<double>(of_mice), 0.15 * 0.5 * kRate);
}

TEST_F(OnALine, JobsTakeTurnsByTheirWeights) {
  const auto heavy = process(0, 1, 3), light = process(1, 2, 1);
  heavy->push(coflow(1, 8 * kMiB), 800 * kMiB);
  light->push(coflow(2, 8 * kMiB), 800 * kMiB);
  std::uint64_t a = 0, b = 0;
  for (TimePoint now = kNow; now < kNow + std::chrono::seconds(20); now += microseconds(20)) {
    while (light->take(now)) b += kChunk;
    while (heavy->take(now)) a += kChunk;
  }
  EXPECT_NEAR(static_cast<double>(a) / static_cast<double>(b), 3.0, 0.5);
  EXPECT_NEAR(static_cast<double>(a + b), 20.0 * kRate, 0.05 * 20 * kRate);
}

// DDP's buckets are 25 MiB each, whatever the model: only iterations tell the small job from the large one.
TEST_F(OnALine, OfJobsWithEqualBucketsTheOneWithTheShorterIterationGoesFirst) {
  struct Job {
    std::unique_ptr<Host> host;
    std::uint64_t id;
    int buckets;  // of an iteration
    Duration computes;
    int waiting = 0;  // buckets that are not posted yet
    std::uint64_t bucket_left = 0, number = 0;
    TimePoint starts = kNow, began{};
    std::vector<Duration> took{};  // communication, by iteration
  };
  constexpr std::uint64_t kBucket = 512 * 1024;
  const auto run = [&](bool foreseen) {
    BoardState state;
    std::vector<Job> jobs;
    TimePoint line_free_at = kNow;
    for (std::uint64_t i = 0; i < 2; ++i) {
      BoardOptions board;
      board.bytes_per_second = kRate;
      board.job = static_cast<std::uint32_t>(i + 1);
      HostPolicyOptions options;
      options.knows_line = true;
      options.burst = microseconds(20) + kChunkTime;
      auto host = std::make_unique<Host>(options, std::make_unique<Board>(state, i, board));
      jobs.push_back({std::move(host), i + 1, i == 0 ? 8 : 3, milliseconds(i == 0 ? 40 : 150)});
    }
    for (TimePoint now = kNow; now < kNow + std::chrono::seconds(20); now += microseconds(20)) {
      for (Job& job : jobs) {
        if (job.waiting == 0 && job.bucket_left == 0 && now >= job.starts) {
          job.waiting = job.buckets;
          job.began = now;
        }
        if (job.bucket_left == 0 && job.waiting > 0) {  // NCCL runs a communicator's collectives one by one
          --job.waiting;
          FlowTag tag = coflow(job.id << 32 | ++job.number, kBucket);
          tag.identity = {.known = foreseen, .communicator = job.id, .number = job.number, .total_bytes = kBucket};
          job.host->push(tag, job.bucket_left = kBucket, now);
        }
        while (job.bucket_left > 0 && line_free_at <= now && job.host->take(now)) {
          job.bucket_left -= kChunk;
          line_free_at = now + kChunkTime;
        }
        if (job.bucket_left > 0 || job.waiting > 0 || now < job.starts) continue;
        job.took.push_back(now - job.began);
        job.starts = now + job.computes;
      }
    }
    return jobs;
  };
  const auto mean = [](const Job& job) {
    Duration sum{0};
    for (const Duration took : job.took) sum += took;
    return std::chrono::duration<double>(sum).count() / static_cast<double>(job.took.size());
  };
  const auto unknown = run(false), known = run(true);
  const double alone = 3.0 * kBucket / kRate;
  EXPECT_LT(mean(known[1]), 1.25 * alone) << "the short one waits for nobody, in most of its iterations";
  EXPECT_GT(mean(unknown[1]), 1.5 * alone);
  EXPECT_LT(mean(known[0]), 1.2 * mean(unknown[0])) << "and the long one waits for it once or twice in its own";
  RecordProperty("short_unknown", std::to_string(mean(unknown[1]) / alone));
  RecordProperty("short_known", std::to_string(mean(known[1]) / alone));
}

TEST_F(OnALine, ProcessesOfOneJobDoNotWaitForEachOther) {
  const auto one = process(0, 7), other = process(1, 7);
  one->push(coflow(1, 100 * kMiB), 100 * kMiB);
  other->push(coflow(1, 100 * kMiB), 100 * kMiB);
  std::uint64_t a = 0, b = 0;
  for (TimePoint now = kNow; now < kNow + milliseconds(500); now += microseconds(10)) {
    // Who looks first takes the chunk: they look in turns.
    Host& first = now.time_since_epoch() / microseconds(10) % 2 == 0 ? *one : *other;
    Host& second = &first == one.get() ? *other : *one;
    while (first.take(now)) (&first == one.get() ? a : b) += kChunk;
    while (second.take(now)) (&second == one.get() ? a : b) += kChunk;
  }
  EXPECT_GT(static_cast<double>(a), 0.3 * static_cast<double>(a + b));
  EXPECT_GT(static_cast<double>(b), 0.3 * static_cast<double>(a + b));
}

}  // namespace
}  // namespace clustar::coflow::enforce
