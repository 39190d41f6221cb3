#include "coflow/core/table.h"

#include <gtest/gtest.h>

#include <limits>

namespace clustar::coflow {
namespace {

TEST(CoflowTable, OrdersFlowsByReceiverThenSender) {
  Table table(4, 100);
  const auto id = table.add({.label = 7, .flows = {{3, 1, 10}, {0, 2, 30}, {0, 1, 20}, {2, 2, 0}}}, TimePoint{});
  ASSERT_TRUE(id);
  const Coflow& coflow = table.coflow(*id);
  EXPECT_EQ(coflow.bytes, 60);
  EXPECT_EQ(coflow.unfinished, 3u) << "a flow without bytes is none";
  ASSERT_EQ(coflow.receivers.size(), 2u);
  const auto first = table.flows_to(coflow.receivers[0]);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(table.flow(first[0]).src, 0u);
  EXPECT_EQ(table.flow(first[1]).src, 3u);
  ASSERT_EQ(coflow.senders.size(), 2u);
  EXPECT_EQ(coflow.senders[0].left, 50);
  EXPECT_EQ(table.bottleneck(*id), 50) << "port 0 sends most";
}

TEST(CoflowTable, CountsWhatMovedAtBothEnds) {
  Table table(3, 100);
  const CoflowId id = table.add({.flows = {{0, 1, 10}, {0, 2, 30}}}, TimePoint{}).value();
  const FlowId flow = table.flows_to(table.coflow(id).receivers[1]).front();
  table.moved(flow, 12);
  EXPECT_EQ(table.flow(flow).left, 18);
  EXPECT_EQ(table.coflow(id).sent, 12);
  EXPECT_EQ(table.coflow(id).receivers[1].left, 18);
  EXPECT_EQ(table.coflow(id).senders[0].left, 28);
  EXPECT_EQ(table.coflow(id).senders[0].sent, 12);
  table.moved(flow, 18);
  table.finish(flow);
  table.finish(flow);  // twice is once
  EXPECT_EQ(table.coflow(id).unfinished, 1u);
  EXPECT_TRUE(table.flows_to(table.coflow(id).receivers[1]).empty());
  EXPECT_EQ(table.bottleneck(id), 10);
}

TEST(CoflowTable, SaysWhatIsAllowed) {
  Table table(2, 100);
  const auto error = [&](const CoflowSpec& spec) {
    const auto added = table.add(spec, TimePoint{});
    return added ? std::string() : added.error().message;
  };
  EXPECT_NE(error({.flows = {{0, 2, 1}}}).find("allowed: 0 to 1"), std::string::npos);
  EXPECT_NE(error({.flows = {{0, 1, -1}}}).find("not negative"), std::string::npos);
  EXPECT_NE(error({.flows = {{0, 1, std::numeric_limits<double>::quiet_NaN()}}}).find("finite"), std::string::npos);
  EXPECT_NE(error({.weight = 0, .flows = {{0, 1, 1}}}).find("weight"), std::string::npos);
  EXPECT_EQ(table.coflows(), 0u);
}

}  // namespace
}  // namespace clustar::coflow
