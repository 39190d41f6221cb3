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

TEST(CoflowTable, TakesFlowsAsTheyCome) {
  Table table(5, 100);
  const CoflowId id = table.add({.flows = {{1, 2, 10}, {3, 2, 10}}}, TimePoint{}).value();
  const FlowId middle = table.add_flow(id, {2, 2, 30}).value();
  const FlowId again = table.add_flow(id, {1, 2, 5}).value();
  const FlowId elsewhere = table.add_flow(id, {0, 4, 7}).value();
  const Coflow& coflow = table.coflow(id);
  EXPECT_EQ(coflow.bytes, 62);
  EXPECT_EQ(coflow.unfinished, 5u);
  std::vector<PortId> senders;
  for (const FlowId flow : table.flows_to(coflow.receivers[0])) senders.push_back(table.flow(flow).src);
  EXPECT_EQ(senders, (std::vector<PortId>{1, 1, 2, 3}));
  EXPECT_EQ(coflow.senders[table.flow(again).sender].left, 15);
  EXPECT_EQ(coflow.receivers[table.flow(elsewhere).receiver].port, 4u);
  EXPECT_EQ(table.bottleneck(id), 55) << "port 2 receives most";
  table.finish(middle);
  table.finish(again);
  EXPECT_EQ(table.flows_to(coflow.receivers[0]).size(), 2u);
  EXPECT_NE(table.add_flow(id, {0, 5, 1}).error().message.find("allowed: 0 to 4"), std::string::npos);
  EXPECT_NE(table.add_flow(id, {0, 1, 0}).error().message.find("above 0"), std::string::npos);
}

TEST(CoflowTable, GivesTheIdsOfRetiredOnesOutAgain) {
  Table table(3, 100);
  const CoflowId stays = table.add({.label = 1, .flows = {{0, 1, 10}}}, TimePoint{}).value();
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const CoflowId id =
        table.add({.label = 100 + i, .flows = {{0, 1, 10}, {0, 2, 20}, {1, 2, 30}}}, TimePoint{}).value();
    EXPECT_EQ(table.coflow(id).label, 100 + i);
    EXPECT_EQ(table.coflow(id).sent, 0) << "nothing of the one before";
    for (const FlowId flow : table.coflow(id).flows) {
      table.moved(flow, table.flow(flow).left);
      table.finish(flow);
    }
    table.retire(id);
  }
  EXPECT_EQ(table.coflows(), 2u);
  EXPECT_EQ(table.flows(), 4u);
  EXPECT_EQ(table.coflow(stays).label, 1u);
  EXPECT_EQ(table.coflow(stays).unfinished, 1u);
}

TEST(CoflowTable, ASlowPortIsALargerLoad) {
  Table table(3, 100);
  const CoflowId id = table.add({.flows = {{0, 1, 10}, {0, 2, 30}}}, TimePoint{}).value();
  EXPECT_EQ(table.bottleneck(id), 40);
  ASSERT_TRUE(table.set_rate(2, 100, 50));
  EXPECT_EQ(table.bottleneck(id), 60) << "port 2 receives at half the rate";
  EXPECT_EQ(table.rate_between(0, 2), 50);
  ASSERT_TRUE(table.set_rate(1, 100, 0));
  EXPECT_NEAR(table.bottleneck(id), 10e6, 1) << "down: a millionth of the rate";
  EXPECT_EQ(table.rate_between(0, 1), 0);
  EXPECT_NE(table.set_rate(3, 1, 1).error().message.find("0 to 2"), std::string::npos);
  EXPECT_FALSE(table.set_rate(0, -1, 1));
  EXPECT_FALSE(table.set_rate(0, 1, std::numeric_limits<double>::infinity()));
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
