#include "transport/message/flow_table.h"

#include <gtest/gtest.h>

#include <vector>

namespace clustar::transport {
namespace {

using std::chrono::microseconds;

constexpr TimePoint kBegin = TimePoint(microseconds(1));

struct Heard {
  std::vector<Flow> queued, sent, finished;
  std::uint64_t unsent = 0;
};
class Listening final : public SendPolicy {
 public:
  explicit Listening(Heard& heard) : heard_(heard) {}
  Turn turn(const Flow& flow, TimePoint) override { return {.rank = flow.remaining()}; }
  void on_queued(const Flow& flow, std::uint64_t, TimePoint) override { heard_.queued.push_back(flow); }
  void on_sent(const Flow& flow, std::uint64_t, TimePoint) override { heard_.sent.push_back(flow); }
  void on_finished(const Flow& flow, std::uint64_t unsent, TimePoint) override {
    heard_.finished.push_back(flow);
    heard_.unsent += unsent;
  }

 private:
  Heard& heard_;
};

FlowTag tag_of(std::uint64_t coflow, std::uint64_t bytes) {
  FlowTag tag;
  tag.coflow = coflow;
  tag.bytes = bytes;
  tag.identity.known = true;
  tag.identity.number = coflow;
  return tag;
}

TEST(FlowTable, APolicyHearsWhatACoflowAttainedOverAllPeers) {
  Heard heard;
  FlowTable table(std::make_unique<Listening>(heard));
  const FlowTag tag = tag_of(7, 1000);
  const auto near = table.open({.coflow = 7, .peer = 1}, tag, 300, kBegin);
  const auto far = table.open({.coflow = 7, .peer = 2}, tag, 200, kBegin);
  EXPECT_NE(near, far);
  EXPECT_EQ(table.place(near).rank, 1000u);
  EXPECT_TRUE(table.sent(near, 300, kBegin));
  EXPECT_EQ(table.place(near).rank, 700u);
  EXPECT_TRUE(table.sent(far, 100, kBegin));
  EXPECT_EQ(table.place(far).rank, 600u) << "the coflow's, not the message's";
  ASSERT_EQ(heard.sent.size(), 2u);
  EXPECT_EQ(heard.sent[1].coflow_sent, 400u);
  EXPECT_EQ(heard.sent[1].sent, 100u);
  EXPECT_EQ(heard.sent[1].queued, 100u);
  EXPECT_EQ(heard.queued[0].identity.number, 7u);
  table.finish(near, 0, kBegin);
  table.finish(far, 100, kBegin);
  EXPECT_EQ(heard.unsent, 100u);
  EXPECT_EQ(heard.finished[1].queued, 0u);
}

TEST(FlowTable, WhatAFlowAttainedIsRememberedForAWhile) {
  Heard heard;
  FlowTable table(std::make_unique<Listening>(heard));
  const auto message = [&](std::uint64_t coflow) {
    const auto flow = table.open({.coflow = coflow}, tag_of(coflow, 1000), 100, kBegin);
    table.sent(flow, 100, kBegin);
    table.finish(flow, 0, kBegin);
    return heard.sent.back().sent;
  };
  EXPECT_EQ(message(1), 100u);
  for (std::uint64_t other = 2; other <= FlowTable::kRemembered; ++other) message(other);
  EXPECT_EQ(message(1), 200u);
  for (std::uint64_t other = 2; other <= FlowTable::kRemembered + 1; ++other) message(other);
  EXPECT_EQ(table.size(), FlowTable::kRemembered) << "bounded";
  EXPECT_EQ(message(1), 100u) << "the oldest was forgotten";
}

TEST(FlowTable, SmallMessagesOfManyCoflowsKeepItBounded) {
  FlowTable table(std::make_unique<ClassPolicy>());
  for (std::uint64_t coflow = 1; coflow < 100'000; ++coflow) {
    const auto flow = table.open({.coflow = coflow}, tag_of(coflow, 0), 10, kBegin);
    EXPECT_FALSE(table.sent(flow, 10, kBegin));
    table.finish(flow, 0, kBegin);
  }
  EXPECT_LE(table.size(), FlowTable::kRemembered + 1);
}

TEST(FlowTable, ForWhoHearsNothingNothingIsKept) {
  FlowTable table(std::make_unique<FifoPolicy>());
  const auto flow = table.open({.coflow = 1}, tag_of(1, 100), 10, kBegin);
  EXPECT_EQ(table.open({.coflow = 2}, tag_of(2, 100), 10, kBegin), flow);
  EXPECT_FALSE(table.sent(flow, 10, kBegin));
  EXPECT_EQ(table.held(flow), std::nullopt);
  EXPECT_EQ(table.changed(kBegin), std::nullopt);
  table.finish(flow, 0, kBegin);
  table.finish(flow, 10, kBegin);
  EXPECT_EQ(table.size(), 0u);
}

// Everybody has a share of 2.
class Fair final : public SendPolicy {
 public:
  Turn turn(const Flow&, TimePoint) override { return {.share = 2}; }
};

struct FairTable {
  FlowTable::FlowId open(std::uint64_t coflow, std::uint64_t bytes) {
    return table.open({.coflow = coflow}, tag_of(coflow, 0), bytes, kBegin);
  }
  // A message of the flow, all of it. Its flow's tie at the beginning.
  std::uint64_t message(std::uint64_t coflow, std::uint64_t bytes) {
    const auto flow = open(coflow, bytes);
    const std::uint64_t tie = table.place(flow).tie;
    table.sent(flow, bytes, kBegin);
    table.finish(flow, 0, kBegin);
    return tie;
  }
  FlowTable table{std::make_unique<Fair>()};
};

TEST(FlowTable, WhatAFlowHadBeyondItsShareCountsWhenItGoesOn) {
  FairTable fair;
  const auto busy = fair.open(1, 1'000'000);
  const std::uint64_t first = fair.message(2, 1000);
  EXPECT_EQ(fair.message(3, 1000), first) << "who is new has had as much as the others";
  const std::uint64_t second = fair.message(2, 1000);
  EXPECT_GT(second, first);
  fair.table.sent(busy, 100'000, kBegin);
  fair.table.sent(busy, 1000, kBegin);
  EXPECT_GT(fair.message(2, 1000), second) << "what it did not use is no claim";
}

TEST(FlowTable, WhatWasBeyondAShareIsForgottenWhenNobodyIsLeftAndWithItsFlow) {
  FairTable fair;
  const std::uint64_t begin = fair.message(1, 1000);
  EXPECT_EQ(fair.message(1, 1000), begin) << "nobody was held up by it";
  fair.open(2, 1'000'000);
  fair.message(1, 1000);
  for (std::uint64_t other = 3; other <= FlowTable::kRemembered + 1; ++other) fair.message(other, 0);
  EXPECT_GT(fair.message(1, 0), begin);
  const std::uint64_t fresh = fair.message(3000, 0);
  fair.message(1, 1000);
  for (std::uint64_t other = 3; other <= FlowTable::kRemembered + 2; ++other) fair.message(other, 0);
  EXPECT_LE(fair.table.size(), FlowTable::kRemembered + 1) << "bounded";
  EXPECT_EQ(fair.message(1, 1000), fresh);
}

// As MLT's, whose messages are over when they have arrived.
TEST(FlowTable, AFlowWhoseMessagesHaveLeftHasNoClaimEither) {
  FairTable fair;
  const auto busy = fair.open(1, 1'000'000), waits = fair.open(2, 1000);
  fair.table.sent(waits, 1000, kBegin);
  for (int i = 0; i < 100; ++i) fair.table.sent(busy, 1000, kBegin);
  const std::uint64_t served = fair.table.place(busy).tie;
  EXPECT_EQ(fair.open(2, 1000), waits);
  EXPECT_GE(fair.table.place(waits).tie + 1000 * 65536 / 2, served);
}

// A policy that moves a flow's time while it waits for the first one.
class Postponing final : public SendPolicy {
 public:
  explicit Postponing(TimePoint& until) : until_(until) {}
  Turn turn(const Flow&, TimePoint) override { return {.not_before = until_}; }

 private:
  TimePoint& until_;
};

TEST(FlowTable, AFlowThatIsPostponedAgainIsReleasedInTheEnd) {
  TimePoint until = kBegin + microseconds(10);
  FlowTable table(std::make_unique<Postponing>(until));
  const auto flow = table.open({}, {}, 10, kBegin);
  EXPECT_EQ(table.held(flow), until);
  until += microseconds(5);
  EXPECT_EQ(table.changed(kBegin + microseconds(10)), flow) << "asked again, it says a later time";
  EXPECT_EQ(table.held(flow), until);
  EXPECT_EQ(table.next_release(), until);
  EXPECT_FALSE(table.changed(kBegin + microseconds(14)));
  EXPECT_EQ(table.changed(until), flow);
  EXPECT_FALSE(table.held(flow));
  EXPECT_EQ(table.next_release(), TimePoint::max());
}

}  // namespace
}  // namespace clustar::transport
