#include "coflow/enforce/host_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "tests/unit/coflow/enforce/one_host.h"

namespace clustar::coflow::enforce {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::FlowTag;
using RunAhead = transport::SendPolicy::RunAhead;
using transport::SendQueue;
using transport::Urgency;

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

class ShowsItsPush final : public HostPolicy {
 public:
  explicit ShowsItsPush(std::vector<int>& pushes) : HostPolicy(pushing(), nullptr), pushes_(pushes) {}
  Turn turn(const transport::Flow& flow, TimePoint now) override {
    const Turn made = HostPolicy::turn(flow, now);
    pushes_.push_back(made.push);
    return made;
  }

 private:
  static HostPolicyOptions pushing() {
    HostPolicyOptions options;
    options.push = true;
    return options;
  }
  std::vector<int>& pushes_;
};

TEST(HostPolicy, AnIterationPushesHarderTheMoreOfItWasSentAndNothingElseDoes) {
  std::vector<int> pushes;
  SendQueue queue(std::make_unique<ShowsItsPush>(pushes));
  TimePoint now = kNow;
  std::uint32_t number = 0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    now += milliseconds(50);
    pushes.clear();
    for (std::uint64_t bucket = 0; bucket < 4; ++bucket) {
      const std::uint64_t bytes = (4 - bucket) * kMiB;
      FlowTag tag = coflow(++number, bytes);
      tag.identity = {.known = true, .communicator = 1, .number = number, .total_bytes = bytes};
      queue.push(queue.add_connection({.peer = 1}), number, tag, bytes, now);
      while (const auto chunk = queue.next(kChunk, now)) queue.commit(*chunk, now);
    }
    if (iteration > 0) continue;
    EXPECT_THAT(pushes, ::testing::Each(8)) << "nothing is known of it yet";
  }
  ASSERT_FALSE(pushes.empty());
  EXPECT_EQ(pushes.front(), 2);
  EXPECT_GE(pushes.back(), 15);
  EXPECT_TRUE(std::is_sorted(pushes.begin(), pushes.end()));
}

class CountsWhoIsAskedAgain final : public HostPolicy {
 public:
  explicit CountsWhoIsAskedAgain(int& asked) : HostPolicy({}, nullptr), asked_(asked) {}
  std::optional<std::uint32_t> changed(TimePoint now) override {
    const auto flow = HostPolicy::changed(now);
    asked_ += flow ? 1 : 0;
    return flow;
  }

 private:
  int& asked_;
};

TEST(HostPolicy, FlowsAreAskedAgainOnlyIfWhatIsLeftOfTheirIterationIsOfAnotherLevel) {
  int asked = 0;
  SendQueue queue(std::make_unique<CountsWhoIsAskedAgain>(asked));
  TimePoint now = kNow;
  std::uint32_t number = 0;
  const auto bucket = [&](std::uint64_t bytes) {
    FlowTag tag = coflow(++number, bytes);
    tag.identity = {.known = true, .communicator = 1, .number = number, .total_bytes = bytes};
    queue.push(queue.add_connection({.peer = number}), number, tag, bytes, now);
  };
  const auto send = [&] {
    const auto chunk = queue.next(128 * kMiB, now);
    ASSERT_TRUE(chunk);
    queue.commit(*chunk, now);
  };
  constexpr std::uint64_t kFew = 128 * 1024, kMany = 70 * kMiB;
  for (int iteration = 0; iteration < 4; ++iteration) {
    now += milliseconds(50);
    for (int i = 0; i < 8; ++i) {
      bucket(i < 7 ? kFew : kMany);
      send();
      now += microseconds(10);
    }
  }
  now += milliseconds(50);
  asked = 0;
  for (int i = 0; i < 8; ++i) {
    bucket(i < 7 ? kFew : kMany);
    queue.next(kChunk, now);  // the buckets wait, and another comes
  }
  EXPECT_EQ(asked, 0) << "between 70 and 71 MiB are left all the while";
  for (int i = 0; i < 8; ++i) send();
  now += milliseconds(50);
  bucket(kFew);
  queue.next(kChunk, now);
  EXPECT_EQ(asked, 0) << "nothing else waits";
  bucket(4 * kMiB);  // of none that came before
  queue.next(kChunk, now);
  EXPECT_EQ(asked, 1) << "the iteration is not known any more";
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
  EXPECT_EQ(policy.run_ahead(kNow), RunAhead::kFree);
  host.push(coflow(1, 100 * kMiB), 100 * kMiB);
  EXPECT_EQ(policy.run_ahead(kNow), RunAhead::kFree);
  const auto mouse = host.push({}, 8);
  EXPECT_EQ(policy.run_ahead(kNow), RunAhead::kNo);
  EXPECT_EQ(host.take(), mouse);
  EXPECT_EQ(policy.run_ahead(kNow + milliseconds(99)), RunAhead::kNo) << "more of them may follow";
  EXPECT_EQ(policy.run_ahead(kNow + milliseconds(100)), RunAhead::kFree);
  const TimePoint later = kNow + milliseconds(200);
  const auto second = host.push(coflow(2, kMiB), kMiB, later);
  EXPECT_EQ(policy.run_ahead(later), RunAhead::kFill);
  while (host.take(later) == second) {
  }
  EXPECT_EQ(policy.run_ahead(later + milliseconds(99)), RunAhead::kFill);
  EXPECT_EQ(policy.run_ahead(later + milliseconds(100)), RunAhead::kFree);
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

}  // namespace
}  // namespace clustar::coflow::enforce
