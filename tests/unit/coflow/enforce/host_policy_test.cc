#include "coflow/enforce/host_policy.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "transport/message/send_queue.h"

namespace clustar::coflow::enforce {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::FlowTag;
using transport::SendQueue;
using transport::Urgency;

constexpr std::uint64_t kChunk = 16 * 1024;
constexpr std::uint64_t kMiB = 1024 * 1024;
constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1));

FlowTag coflow(std::uint64_t id, std::uint64_t bytes, Urgency urgency = Urgency::kGradient) {
  FlowTag tag;
  tag.coflow = id;
  tag.bytes = bytes;
  tag.urgency = urgency;
  return tag;
}

// A queue of one process; each message is a connection of its own.
class Host {
 public:
  explicit Host(const HostPolicyOptions& options = {}, std::unique_ptr<Board> board = nullptr)
      : policy_(new HostPolicy(options, std::move(board))), queue_(std::unique_ptr<transport::SendPolicy>(policy_)) {}

  std::uint32_t push(const FlowTag& tag, std::uint64_t bytes, TimePoint now = kNow) {
    const auto connection = queue_.add_connection({.peer = next_});
    queue_.push(connection, next_, tag, bytes, now);
    return next_++;
  }
  // The message that a chunk was taken of; nothing: the gate is shut, or nothing waits.
  std::optional<std::uint64_t> take(TimePoint now = kNow) {
    const auto chunk = queue_.next(kChunk, now);
    if (!chunk) return std::nullopt;
    queue_.commit(*chunk, now);
    return chunk->cookie;
  }
  SendQueue& queue() { return queue_; }
  const HostPolicy& policy() const { return *policy_; }

 private:
  HostPolicy* const policy_;
  SendQueue queue_;
  std::uint32_t next_ = 0;
};

TEST(HostPolicy, MiceGoBeforeAllBulkIdentifiedOrNot) {
  Host host;
  const auto elephant = host.push(coflow(1, 100 * kMiB), kMiB);
  EXPECT_EQ(host.take(), elephant);
  const auto known = host.push(coflow(2, 64 * 1024), 64 * 1024);
  const auto unknown = host.push({}, 8);
  EXPECT_EQ(host.take(), known);
  EXPECT_EQ(host.take(), known);
  EXPECT_EQ(host.take(), known);
  EXPECT_EQ(host.take(), known);
  EXPECT_EQ(host.take(), unknown);
  EXPECT_EQ(host.take(), elephant);
}

TEST(HostPolicy, AShortMessageOfALongCoflowIsNoMouse) {
  Host host;
  const auto first = host.push(coflow(1, 4 * kMiB), kMiB);
  const auto tail = host.push(coflow(2, 100 * kMiB), 8);
  EXPECT_EQ(host.take(), first);
  EXPECT_NE(host.take(), tail);
}

TEST(HostPolicy, UrgencyCountsBeforeSizeAndSizeBeforeArrival) {
  Host host;
  const auto background = host.push(coflow(1, kMiB, Urgency::kBackground), kChunk);
  const auto large = host.push(coflow(2, 64 * kMiB), kChunk);
  const auto small = host.push(coflow(3, kMiB), kChunk);
  const auto prefetch = host.push(coflow(4, 256 * kMiB, Urgency::kPrefetch), kChunk);
  const auto blocking = host.push(coflow(5, 512 * kMiB, Urgency::kBlocking), kChunk);
  for (const auto wanted : {blocking, prefetch, small, large, background}) EXPECT_EQ(host.take(), wanted);
}

// As two data-parallel groups of one process, whose buckets are alike.
TEST(HostPolicy, OfCommunicatorsWithEqualBucketsTheOneWithLessOfItsIterationLeftGoesFirst) {
  Host host;
  TimePoint now = kNow;
  std::uint64_t number = 0;
  const auto bucket = [&](std::uint64_t communicator) {
    FlowTag tag = coflow(++number, kMiB);
    tag.identity = {.known = true, .communicator = communicator, .number = number, .total_bytes = kMiB};
    return host.push(tag, kMiB, now);
  };
  const auto drain = [&] {
    while (host.take(now)) now += microseconds(10);
  };
  for (int iteration = 0; iteration < 3; ++iteration) {
    now += milliseconds(50);
    for (int i = 0; i < 8; ++i, drain()) bucket(1);
    now += milliseconds(50);
    for (int i = 0; i < 3; ++i, drain()) bucket(2);
  }
  now += milliseconds(50);
  const auto longer = bucket(1);
  EXPECT_EQ(host.take(now), longer);
  const auto shorter = bucket(2);
  EXPECT_EQ(host.take(now), shorter) << "3 are left of it, 8 of the other";
  // What comes later of a communicator is nearer to its end, and waits for what came before all the same.
  bucket(2);
  EXPECT_EQ(host.take(now), shorter);
  for (int i = 1; i < 7; ++i) bucket(1);
  EXPECT_EQ(host.take(now), longer) << "2 are left of it, as of the other, and it came first";
  const auto alone = host.push(coflow(9000, kMiB / 2), kMiB / 2, now);
  EXPECT_EQ(host.take(now), alone) << "of no iteration: by its size";
}

TEST(HostPolicy, UnidentifiedMessagesOfOnePeerHaveTheirOwnUrgency) {
  transport::SendQueue queue(std::make_unique<HostPolicy>(HostPolicyOptions{}, nullptr));
  const auto back = queue.add_connection({.peer = 1}), front = queue.add_connection({.peer = 1});
  queue.push(back, 1, coflow(0, 0, Urgency::kBackground), kMiB, kNow);
  queue.push(front, 2, coflow(0, 0, Urgency::kBlocking), kMiB, kNow);
  const auto first = queue.next(kChunk, kNow);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->cookie, 2u);
}

TEST(HostPolicy, OneFlowIsAloneUntilSomethingElseComesAndAWhileAfterIt) {
  Host host;
  const HostPolicy& policy = host.policy();
  EXPECT_TRUE(policy.alone(kNow));
  host.push(coflow(1, 100 * kMiB), 100 * kMiB);
  EXPECT_TRUE(policy.alone(kNow));
  const auto mouse = host.push({}, 8);
  EXPECT_FALSE(policy.alone(kNow));
  EXPECT_EQ(host.take(), mouse);
  EXPECT_FALSE(policy.alone(kNow + milliseconds(99))) << "more of them may follow";
  EXPECT_TRUE(policy.alone(kNow + milliseconds(100)));
  const TimePoint later = kNow + milliseconds(200);
  const auto second = host.push(coflow(2, kMiB), kMiB, later);
  EXPECT_FALSE(policy.alone(later));
  while (host.take(later) == second) {
  }
  EXPECT_FALSE(policy.alone(later + milliseconds(99)));
  EXPECT_TRUE(policy.alone(later + milliseconds(100)));
}

TEST(HostPolicy, BackgroundHasNoMice) {
  Host host;
  const auto bulk = host.push(coflow(1, 4 * kMiB), kChunk);
  const auto mouse = host.push(coflow(2, 8, Urgency::kBackground), 8);
  EXPECT_EQ(host.take(), bulk);
  EXPECT_EQ(host.take(), mouse);
}

TEST(HostPolicy, ByArrivalWhereSizesAreNotToCount) {
  Host host({.by_size = false});
  const auto large = host.push(coflow(1, 64 * kMiB), kChunk);
  const auto small = host.push(coflow(2, kMiB), kChunk);
  EXPECT_EQ(host.take(), large);
  EXPECT_EQ(host.take(), small);
}

// D-CLAS: what is sent of a coflow of unknown size puts it behind those of which less was.
TEST(HostPolicy, ACoflowOfUnknownSizeSinksWithWhatWasSentOfIt) {
  Host host({.floor_turns = 0});
  const auto old = host.push(coflow(1, 0), 8 * kMiB);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(host.take(), old);
  const auto fresh = host.push(coflow(2, 0), 8 * kMiB);
  std::uint64_t until_it_sinks = 0;
  while (host.take() == fresh) until_it_sinks += kChunk;
  EXPECT_GE(until_it_sinks, 999'000u);
  EXPECT_LE(until_it_sinks, 1'100'000u) << "the first limit";
}

TEST(HostPolicy, ABurstOfUnidentifiedMessagesSinksAndBeginsAfreshAfterAPause) {
  Host host({.floor_turns = 0});
  const auto burst = [&](TimePoint at) {
    host.push({}, 3 * kMiB, at);
    for (int i = 0; i < 192; ++i) host.take(at);
    return host.queue().size();
  };
  EXPECT_EQ(burst(kNow), 0u);
  const auto other = host.push(coflow(9, 0), kMiB, kNow);
  host.push({}, kMiB, kNow);  // of another peer: another flow
  EXPECT_EQ(host.take(), other);
}

TEST(HostPolicy, MiceThatFloodAreBulkUntilOthersHadTheirShare) {
  Host host({.floor_turns = 0});
  const auto bulk = host.push(coflow(1, 100 * kMiB, Urgency::kBlocking), 100 * kMiB);
  // A megabyte is allowed as a burst.
  std::uint64_t ahead = 0, mice = 0, of_bulk = 0;
  for (int i = 0; i < 4000; ++i) {
    if (host.queue().size() == 1) host.push({}, 64 * 1024);
    if (host.take() == bulk) {
      of_bulk += kChunk;
    } else {
      mice += kChunk;
      if (of_bulk == 0) ahead += kChunk;
    }
  }
  EXPECT_NEAR(static_cast<double>(ahead), 1.0 * kMiB, 64.0 * 1024);
  EXPECT_NEAR(static_cast<double>(mice - ahead) / static_cast<double>(mice - ahead + of_bulk), 0.2, 0.03);
}

TEST(HostPolicy, MiceThatAreInNobodysWayAreNotPoliced) {
  Host host;
  for (int i = 0; i < 100; ++i) {
    host.push({}, 64 * 1024);
    for (int part = 0; part < 4; ++part) ASSERT_TRUE(host.take());
  }
  EXPECT_EQ(host.policy().counters().policed, 0u);
  host.push(coflow(1, 4 * kMiB), 4 * kMiB);
  const auto mouse = host.push({}, 8);
  EXPECT_EQ(host.take(), mouse);
}

// Each of F waiting flows gets a quantum within floor_turns * F quanta of bulk.
TEST(HostPolicy, NothingStarves) {
  const HostPolicyOptions options;
  Host host(options);
  constexpr std::size_t kLow = 5;
  host.push(coflow(1, 4000 * kMiB, Urgency::kBlocking), 4000 * kMiB);
  for (std::size_t i = 0; i < kLow; ++i) host.push(coflow(10 + i, 64 * kMiB, Urgency::kBackground), 64 * kMiB);
  std::map<std::uint64_t, std::uint64_t> since;  // bytes of all since the flow's last chunk
  std::uint64_t worst = 0, low = 0, all = 0;
  for (int i = 0; i < 50'000; ++i) {
    const auto taken = host.take();
    ASSERT_TRUE(taken);
    for (std::uint64_t flow = 0; flow <= kLow; ++flow) {
      since[flow] = flow == *taken ? 0 : since[flow] + kChunk;
      worst = std::max(worst, since[flow]);
    }
    all += kChunk;
    if (*taken > 0) low += kChunk;
  }
  EXPECT_LE(worst, (options.floor_turns + 1) * options.quantum * (kLow + 1));
  EXPECT_NEAR(static_cast<double>(low) / static_cast<double>(all), 1.0 / options.floor_turns, 0.01)
      << "a floor is no more than that";
}

TEST(HostPolicy, AFlowThatCannotSendKeepsNobodyFromTheFloor) {
  Host host;
  host.push(coflow(1, 4000 * kMiB, Urgency::kBlocking), 4000 * kMiB);
  const auto stuck = host.push(coflow(2, 64 * kMiB, Urgency::kBackground), 64 * kMiB);
  const auto other = host.push(coflow(3, 64 * kMiB, Urgency::kBackground), 64 * kMiB);
  host.queue().block(stuck);  // connections have the numbers of their messages here
  int taken = 0;
  for (int i = 0; i < 2000; ++i) taken += host.take() == other ? 1 : 0;
  EXPECT_GT(taken, 2000 / 32 / 3) << "a third of all floors: three flows of bulk";
}

TEST(HostPolicy, WithoutAFloorTheUrgentHaveAll) {
  Host host({.floor_turns = 0});
  const auto urgent = host.push(coflow(1, 400 * kMiB, Urgency::kBlocking), 400 * kMiB);
  host.push(coflow(2, kMiB, Urgency::kBackground), kMiB);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(host.take(), urgent);
}

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
