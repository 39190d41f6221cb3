// What `clustar coflow play` is made of, without a network: lanes, arms, what is left out, gains.
#include "bench/coflow/live/play.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

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
  const SizeLimits placed{.of_host = true, .in_all = true, .lower = "fewer jobs"};
  EXPECT_TRUE(check_size(Plan::of(queue_of(60, 4)), "queue", placed));
  const std::tuple<std::size_t, std::size_t, std::string> cases[]{
      {61, 2, "queue has 61 jobs that send from a host; allowed: 60"},
      {33, 8, "queue has 264 pairs of a job and a host; allowed: 256"}};
  for (const auto& [jobs, ports, expected] : cases) {
    const auto refused = check_size(Plan::of(queue_of(jobs, ports)), "queue", placed);
    ASSERT_FALSE(refused) << jobs;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(refused.error().message, HasSubstr(expected));
    EXPECT_THAT(refused.error().message, HasSubstr("fewer jobs for less"));
  }
  EXPECT_TRUE(check_size(Plan::of(queue_of(33, 8)), "mix", {.of_host = true})) << "jobs that are not placed";
  EXPECT_TRUE(check_size(Plan::of(queue_of(61, 2)), "mix", {})) << "one process for all jobs of a host";
}

TEST(PlayPlan, HostsThatHaveTooManyNeighboursAreRefused) {
  EXPECT_TRUE(check_size(Plan::of(queue_of(1, 30)), "queue", {}));
  const auto refused = check_size(Plan::of(queue_of(1, 31)), "queue", {});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("queue: hosts have 930 neighbours; allowed: 900 in all, as 30 hosts"));
  Trace trace;
  trace.ports = 64;
  for (std::uint32_t port = 1; port < 64; ++port) trace.coflows.push_back(coflow({{0, port, 10}}));
  EXPECT_TRUE(check_size(Plan::of(trace), "trace", {})) << "few of them connect";
}

TEST(PlayPlan, APlaceIsNamedByItsJob) {
  JobMix mix = queue_of(2, 2);
  mix.jobs[1].name = "12 bert";
  EXPECT_EQ(name_of({3, 2}, names_of(mix)), "host 3, job 12 bert");
  EXPECT_EQ(name_of({3, 0}, names_of(mix)), "host 3") << "for all jobs there";
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
  performance.scale = 1e12;
  performance.trace_gbps = 10'000;
  performance.rate_bps = 1'000'000;
  EXPECT_THAT(text(performance), HasSubstr("1/1000000000000 of the trace's, sizes 1/10000000;"));
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

std::string refusal_of(const std::string& rows, const std::string& keys, std::vector<Arm> which) {
  Source source;
  source.name = "muri.csv";
  source.muri_keys = keys;
  source.text = "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n" + rows;
  const auto refused = perform(source, {.arms = std::move(which)}, [](const std::string&, bool) {});
  if (refused) return "";
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  return refused.error().message;
}

TEST(Perform, RefusesAQueueThatItWouldNotPlayAsItIs) {
  const std::vector<Arm> fair{arms()[0]};
  EXPECT_THAT(refusal_of("1,1,0,10,bert,40,20\n2,8,0,10,gpt2,40,0\n", "ports=2", fair),
              HasSubstr("muri.csv: no job sends anything between two hosts"));
  const std::string two = "1,8,0,10,bert,40,20\n2,4,0,10,gpt2,40,30\n";
  EXPECT_THAT(refusal_of(two, "ports=2,intensity=1", fair), HasSubstr("--muri intensity=1"));
  std::string many;
  for (int job = 1; job <= 61; ++job) many += std::to_string(job) + ",8,0,10,bert,40,20\n";
  EXPECT_THAT(refusal_of(many, "ports=2", fair), HasSubstr("--muri jobs=24,ports=4,scale=100000 for less"));
}

// 61 jobs of a host have a process each, and agree on an order only where the arm has one.
TEST(Perform, JobsOfAHostAreBoundedWhereTheirProcessesAgree) {
  const std::string job =
      "[rank0 ~ rank1]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
      "CommType.all_reduce,CommGroup.dp_group,2,1000000,forward,None,None,,1\n";
  Source source;
  for (int i = 0; i < 61; ++i) source.jobs.push_back({"job.csv", job, "ranks_per_port=1,iterations=1"});
  const auto said = [&](const char* name) {
    const auto refused =
        perform(source, {.arms = *parse_arms(name), .stop = [] { return true; }}, [](const std::string&, bool) {});
    return refused ? std::string() : refused.error().message;
  };
  EXPECT_THAT(said("coflow"), HasSubstr("has 61 jobs that send from a host; allowed: 60"));
  EXPECT_THAT(said("fair"), HasSubstr("interrupted"));
  EXPECT_THAT(said("by-size"), HasSubstr("interrupted"));
}

}  // namespace
}  // namespace clustar::bench::coflow::live
