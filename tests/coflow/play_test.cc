// What `clustar coflow play` is made of, without a network: lanes, arms, what is left out, gains.
#include "bench/coflow/live/play.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "bench/coflow/live/arms.h"
#include "bench/coflow/live/plan.h"

namespace clustar::bench::coflow::live {
namespace {

using clustar::coflow::CoflowSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

CoflowSpec coflow(std::vector<clustar::coflow::FlowSpec> flows, std::uint64_t label = 1) {
  CoflowSpec spec;
  spec.label = label;
  spec.flows = std::move(flows);
  return spec;
}

TEST(PlayPlan, EachFlowOfATraceHasALaneOfItsOwn) {
  Trace trace;
  trace.ports = 3;
  trace.coflows = {coflow({{0, 1, 10}, {0, 2, 10}}), coflow({{0, 1, 5}, {1, 0, 5}})};
  Plan plan = Plan::of(trace);
  ASSERT_EQ(plan.lanes().size(), 4U);
  for (int round = 0; round < 2; ++round) {
    plan.again();
    const auto first = plan.take(trace.coflows[0]), second = plan.take(trace.coflows[1]);
    EXPECT_THAT(first, ElementsAre(0, 1));
    EXPECT_THAT(second, ElementsAre(2, 3));
  }
  EXPECT_EQ(plan.lanes()[3].from, (Place{1, 0}));
  EXPECT_EQ(plan.lanes()[3].to, (Place{0, 0}));
}

TEST(PlayPlan, AJobHasOneLaneForEachPairOfHosts) {
  JobMix mix;
  mix.ports = 2;
  Job job;
  Phase phase;
  phase.flows = {{0, 1, 10}, {1, 0, 10}, {0, 1, 4}};
  job.phases = {phase, phase};
  mix.jobs = {job, job};
  Plan plan = Plan::of(mix);
  ASSERT_EQ(plan.lanes().size(), 4U);
  EXPECT_EQ(plan.lanes()[0].from, (Place{0, 1}));
  EXPECT_EQ(plan.lanes()[2].from, (Place{0, 2}));
  EXPECT_THAT(plan.take(coflow(phase.flows, 2)), ElementsAre(2, 3, 2));
  EXPECT_THAT(plan.take(coflow(phase.flows, 2)), ElementsAre(2, 3, 2));
}

TEST(PlayPlan, FlowsWithinAHostAreLeftOut) {
  Trace trace;
  trace.ports = 2;
  trace.coflows = {coflow({{0, 0, 10}}), coflow({{0, 1, 10}, {1, 1, 10}})};
  EXPECT_EQ(leave_out_local(trace), 2U);
  ASSERT_EQ(trace.coflows.size(), 1U);
  EXPECT_EQ(trace.coflows[0].flows.size(), 1U);
}

TEST(PlayPlan, TheBottleneckIsTheBusiestPortOfEitherDirection) {
  EXPECT_DOUBLE_EQ(bottleneck(coflow({{0, 1, 10}, {2, 1, 5}, {0, 3, 4}})), 15);
  EXPECT_DOUBLE_EQ(bottleneck(coflow({{0, 1, 10}, {0, 2, 6}})), 16);
}

TEST(PlayArms, NamesThatAreNoneOrTwiceAreRefusedWithWhatIsAllowed) {
  const auto good = parse_arms("fair,coflow");
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->size(), 2U);
  for (const char* bad : {"", "fair,", "fare", "fair,fair", "fair coflow"}) {
    const auto refused = parse_arms(bad);
    ASSERT_FALSE(refused) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("allowed"));
  }
}

Summary average(double seconds) {
  Summary summary;
  summary.average_s = seconds;
  return summary;
}

TEST(PlayGain, IsTakenRoundByRoundAgainstTheFirstArm) {
  Performance performance;
  performance.arms = {{arms()[0], {average(10), average(20), average(12)}, average(8)},
                      {arms()[3], {average(5), average(5), average(4)}, average(2)}};
  const Gain gain = gain_of(performance, 1);
  EXPECT_DOUBLE_EQ(gain.median, 3);
  EXPECT_DOUBLE_EQ(gain.least, 2);
  EXPECT_DOUBLE_EQ(gain.most, 4);
  EXPECT_DOUBLE_EQ(gain.simulated, 4);
  const auto rows = to_json(performance);
  EXPECT_DOUBLE_EQ(rows[1]["gain"]["reached"], 0.75);
  EXPECT_THAT(text(performance), HasSubstr("3.00 [2.00, 4.00]"));
}

TEST(PlayGain, WithoutACounterpartInTheSimulatorNothingIsReached) {
  Performance performance;
  performance.arms = {{arms()[0], {average(10)}, average(8)}, {arms()[1], {average(5)}, {}}};
  EXPECT_EQ(gain_of(performance, 1).simulated, 0);
  EXPECT_TRUE(to_json(performance)[1]["gain"]["reached"].is_null());
}

TEST(Perform, RefusesWhatHasNoHosts) {
  Source source;
  source.generator = GeneratorOptions{.ports = 150, .coflows = 3};
  const auto refused = perform(source, {.arms = {arms()[0]}}, [](const std::string&, bool) {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("allowed: 2 to 64"));
}

}  // namespace
}  // namespace clustar::bench::coflow::live
