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

JobMix queue_of(std::size_t jobs, std::size_t ports) {
  JobMix mix;
  mix.ports = ports;
  mix.gpus_per_port = 8;
  Job job;
  job.gpus = 8;
  job.phases = {{Duration(0), {}, 1000}};
  mix.jobs.assign(jobs, job);
  return mix;
}

TEST(PlayPlan, AJobThatIsPlacedWhileItRunsHasLanesForEveryPlace) {
  JobMix mix = queue_of(3, 3);
  mix.jobs[0].gpus = 1;                  // on one host, wherever that is
  mix.jobs[2].phases[0].ring_bytes = 0;  // never sends
  Plan plan = Plan::of(mix);
  EXPECT_EQ(plan.lanes().size(), 6U);
  EXPECT_THAT(plan.jobs_of_hosts()[2], ElementsAre(2));
  mix.jobs[1].begins = TimePoint{};
  scale(mix, 0.5);
  JobWorkload workload(mix, 1000);
  std::size_t coflows = 0;
  for (auto next = workload.next_arrival(); next; next = workload.next_arrival()) {
    workload.reached(*next);
    const auto now = workload.next_arrival();
    if (!now || *now > *next) continue;
    const CoflowSpec one = workload.take();
    EXPECT_EQ(plan.take(one).size(), 3U) << "a ring over three hosts";
    EXPECT_DOUBLE_EQ(one.flows[0].bytes, 500);
    workload.ended(coflows++, *next);
  }
  EXPECT_EQ(coflows, 1U);
}

TEST(PlayPlan, AQueueOfTooManyProcessesIsRefused) {
  EXPECT_TRUE(check_size(Plan::of(queue_of(60, 4)), "queue", true));
  for (const auto& [jobs, ports] : {std::pair<std::size_t, std::size_t>{61, 2}, {33, 8}}) {
    const auto refused = check_size(Plan::of(queue_of(jobs, ports)), "queue", true);
    ASSERT_FALSE(refused) << jobs;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr("allowed: 60 and 256"));
  }
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

Summary completions(std::vector<double> seconds) {
  Summary summary;
  for (const double ended : seconds) {
    summary.jobs.push_back({.name = "1 bert", .iterations = 4, .submitted_s = 1, .began_s = 1.5, .ended_s = ended});
  }
  return summary;
}

TEST(PlayGain, JobsThatWaitAreComparedByTheirCompletions) {
  Performance performance;
  performance.jobs = true;
  performance.gpus_per_host = 8;
  performance.scale = 2000;
  performance.trace_gbps = 100;
  performance.rate_bps = 50'000'000;
  performance.arms = {{arms()[0], {completions({5, 7})}, completions({5, 5})},
                      {arms()[4], {completions({3, 4})}, completions({3, 3})}};
  EXPECT_DOUBLE_EQ(completion_gain_of(performance, 1).median, 2);
  EXPECT_DOUBLE_EQ(completion_gain_of(performance, 1).simulated, 2);
  EXPECT_DOUBLE_EQ(to_json(performance)[1]["completion_gain"]["reached"], 1);
  EXPECT_DOUBLE_EQ(to_json(performance)[1]["rounds"][0]["mean_completion_s"], 2.5);
  EXPECT_THAT(text(performance), HasSubstr("1/2000 of the trace's, sizes 1/2000;"));
  EXPECT_THAT(text(performance), HasSubstr("2.00 [2.00, 2.00]"));
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
