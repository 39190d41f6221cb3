#include "coflow/control/class_book.h"

#include <gtest/gtest.h>

#include "coflow/enforce/host_policy.h"
#include "transport/message/send_queue.h"

namespace clustar::coflow::control {
namespace {

constexpr std::uint64_t kChunk = 16 * 1024, kMiB = 1024 * 1024;
constexpr TimePoint kNow = TimePoint(std::chrono::seconds(1));

// The send queue of one process under a policy that has this book.
class Placed1 {
 public:
  Placed1() : queue_(std::make_unique<enforce::HostPolicy>(options(), nullptr, book_)) {}

  void push(std::uint64_t coflow, std::uint64_t bytes, std::uint32_t peer = 1) {
    transport::FlowTag tag;
    tag.coflow = coflow;
    tag.bytes = bytes;
    const auto connection = queue_.add_connection({.peer = peer});
    queue_.push(connection, coflow, tag, bytes, kNow);
  }
  std::uint64_t take(TimePoint now = kNow) {
    const auto chunk = queue_.next(kChunk, now);
    if (!chunk) return 0;
    queue_.commit(*chunk, now);
    return chunk->cookie;
  }
  ClassBook& book() { return *book_; }
  static ClassKey key(std::uint64_t coflow) { return {7, coflow, kUnknownFunction}; }

 private:
  static enforce::HostPolicyOptions options() {
    enforce::HostPolicyOptions made;
    made.job = 7;
    made.floor_turns = 0;
    return made;
  }
  std::shared_ptr<ClassBook> book_ = std::make_shared<ClassBook>();
  transport::SendQueue queue_;
};

TEST(ClassBook, TellsWhatIsQueuedAndSent) {
  Placed1 one;
  one.push(10, kMiB);
  one.push(10, kMiB, 2);
  auto reports = one.book().collect(kNow);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].key, Placed1::key(10));
  EXPECT_TRUE(reports[0].waits);
  EXPECT_EQ(reports[0].in_all, kMiB);
  ASSERT_EQ(reports[0].peers.size(), 2u);
  EXPECT_EQ(reports[0].peers[0].bytes, kMiB);
  for (int i = 0; i < 128; ++i) ASSERT_EQ(one.take(), 10u);
  reports = one.book().collect(kNow);
  EXPECT_FALSE(reports[0].waits);
  EXPECT_EQ(reports[0].attained, 2 * kMiB);
  EXPECT_TRUE(one.book().collect(kNow + ClassBook::kForgetAfter).empty());
  // It comes again: a record of its own, that is in the book.
  one.push(10, kMiB);
  EXPECT_EQ(one.book().collect(kNow + ClassBook::kForgetAfter).size(), 1u);
}

TEST(ClassBook, ThePlaceDecidesNotTheSize) {
  Placed1 one;
  one.push(10, kMiB);
  one.push(11, 4 * kMiB);
  ASSERT_EQ(one.take(), 10u) << "alone the smaller goes first";
  one.book().place(
      true, {{Placed1::key(10), {Placed1::key(10), 20, 0, 0}}, {Placed1::key(11), {Placed1::key(11), 10, 0, 0}}});
  EXPECT_EQ(one.take(), 11u);
  // The coordinator has not heard of it: it goes first until it has.
  one.push(12, 8 * kMiB);
  EXPECT_EQ(one.take(), 12u);
  // The lease ends: by size again.
  one.book().place(false, {});
  EXPECT_EQ(one.take(), 10u);
}

TEST(ClassBook, ACappedClassLeavesNoFasterAndDelaysNobody) {
  Placed1 one;
  one.push(10, kMiB);
  one.push(10, kMiB, 2);
  one.push(11, kMiB);
  constexpr std::uint64_t kCap = 16 * kChunk;  // a chunk in 62.5 ms
  one.book().place(true, {{Placed1::key(10), {Placed1::key(10), 10, 0, 0, kCap, Promise::kNone}},
                          {Placed1::key(11), {Placed1::key(11), 20, 0, 0}}});
  std::uint64_t capped = 0, other = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    const std::uint64_t took = one.take(kNow + std::chrono::milliseconds(ms));
    capped += took == 10 ? kChunk : 0;
    other += took == 11 ? kChunk : 0;
  }
  EXPECT_LE(capped, kCap + kChunk);
  EXPECT_GE(capped, kCap - kChunk);
  EXPECT_EQ(other, kMiB) << "what the capped class may not send, the others do";
  // Its cap is part of the order, and ends with it.
  one.book().place(false, {});
  const TimePoint later = kNow + std::chrono::seconds(1);
  EXPECT_EQ(one.take(later), 10u);
  EXPECT_EQ(one.take(later), 10u);
}

TEST(ClassBook, TheDeadlineOfTheJobIsReported) {
  ClassBook book{std::chrono::milliseconds(250)};
  const auto record = book.open({7, 10, kUnknownFunction});
  const auto reports = book.collect(kNow);
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].deadline_us, 250'000u);
}

TEST(ClassBook, APlaceThatCameBeforeTheClassCounts) {
  Placed1 one;
  one.push(10, kMiB);
  one.book().place(true,
                   {{Placed1::key(10), {Placed1::key(10), 5, 0, 0}}, {Placed1::key(11), {Placed1::key(11), 9, 0, 0}}});
  one.push(11, kMiB / 2);
  EXPECT_EQ(one.take(), 10u);
}

// Flow numbers are given out again: what was queued to another peer is told of that peer.
TEST(ClassBook, AFlowThatIsAnothersTellsItsOwnPeer) {
  Placed1 one;
  one.push(10, kMiB, 5);
  while (one.take() != 0) {
  }
  one.push(10, kMiB, 6);
  const auto reports = one.book().collect(kNow);
  ASSERT_EQ(reports.size(), 1u);
  ASSERT_EQ(reports[0].peers.size(), 1u);
  EXPECT_EQ(reports[0].peers[0].peer, 6u);
}

// The coordinator hears of no more classes: this one waits behind those that it knows.
TEST(ClassBook, AClassThatGetsNoPlaceGoesLast) {
  Placed1 one;
  one.push(10, 4 * kMiB);
  one.push(11, kMiB);
  const std::map<ClassKey, Placed> places{{Placed1::key(10), {Placed1::key(10), 5, 0, 0}}};
  one.book().place(true, places);
  EXPECT_EQ(one.take(), 11u) << "it is new";
  for (int i = 0; i < ClassBook::kMostUnplaced; ++i) (void)one.book().collect(kNow);
  EXPECT_EQ(one.take(), 10u);
  one.book().place(true, places);
  EXPECT_EQ(one.take(), 10u);
}

TEST(ClassBook, MoreThanItHoldsGoLast) {
  Placed1 one;
  for (std::uint64_t i = 1; i <= kMostClasses + 1; ++i) one.push(i, kMiB);
  EXPECT_EQ(one.book().collect(kNow).size(), kMostClasses);
  std::map<ClassKey, Placed> places;
  places[Placed1::key(500)] = {Placed1::key(500), 7, 0, 0};
  one.book().place(true, places);
  const std::uint64_t first = one.take();
  EXPECT_NE(first, kMostClasses + 1);
  EXPECT_NE(first, 500u);
}

}  // namespace
}  // namespace clustar::coflow::control
