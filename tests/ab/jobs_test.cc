// Several jobs under two arms, without a fabric: order, arguments, settings, failures, results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/jobs/conduct.h"
#include "bench/ab/jobs/jobs_file.h"
#include "bench/ab/jobs/results.h"
#include "bench/ab/jobs/traffic.h"

namespace clustar::bench::ab::jobs {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

using Ran = Result<Run>;  // within a test Run is GoogleTest's

constexpr const char* kPlugin = "/lib/ours.so";

JobsPlan plan_of(const std::string& more = {}) {
  const auto jobs = parse_jobs(
      "[[jobs]]\nname = \"a\"\nmodel = \"mlp-small\"\nsteps = 70\nbatch = 32\nexamples = 1000\nhosts = 2\n"
      "[[jobs]]\nname = \"b\"\nmodel = \"lr\"\nhosts = [1, 2]\nall_reduce = \"all-to-all\"\n" +
          more,
      "jobs.toml");
  EXPECT_TRUE(jobs) << jobs.error().message;
  JobsPlan plan;
  plan.file = "jobs.toml";
  plan.jobs = *jobs;
  plan.arms = {Arm{.name = "fifo", .settings = {{"CLUSTAR_SEND_ORDER", "fifo"}}, .plugin = kPlugin},
               Arm{.name = "coflow", .settings = {{"CLUSTAR_SEND_ORDER", "coflow"}}, .plugin = kPlugin}};
  plan.rounds = 2;
  plan.fabric.hosts = 3;
  plan.fabric.rate_bps = 200'000'000;
  plan.training.train.epochs = 3;
  plan.training.train.batch = 64;
  return plan;
}

std::string refusal(const JobsPlan& plan) {
  const auto ok = check(plan, kPlugin);
  return ok ? "" : ok.error().message;
}

TEST(Jobs, EveryRoundHasBothArmsAndEachJobAlone) {
  const JobsPlan plan = plan_of();
  std::vector<std::string> names;
  for (int round = 0; round < 2; ++round) {
    for (const Slot& slot : order_of_round(2, round)) names.push_back(name_of(plan, slot));
  }
  EXPECT_THAT(names, ElementsAre("A, all jobs", "a alone", "b alone", "B, all jobs",  //
                                 "B, all jobs", "b alone", "a alone", "A, all jobs"));
}

TEST(Jobs, TrainArgumentsAreTheFilesAndElseTheCommandLines) {
  const JobsPlan plan = plan_of();
  EXPECT_EQ(epochs_of(plan, std::get<Training>(plan.jobs[0].work)), 3) << "70 steps, 25 of them in an epoch";
  const auto a = train_arguments(plan, plan.jobs[0], plan.arms[0], 1);
  const auto value_of = [](const std::vector<std::string>& words, const std::string& option) {
    const auto found = std::find(words.begin(), words.end(), option);
    return found == words.end() ? std::string("none") : *(found + 1);
  };
  EXPECT_EQ(value_of(a, "--model"), "mlp-small");
  EXPECT_EQ(value_of(a, "--epochs"), "3");
  EXPECT_EQ(value_of(a, "--batch"), "32");
  EXPECT_EQ(value_of(a, "--examples"), "1000");
  EXPECT_EQ(value_of(a, "--seed"), "2");
  EXPECT_EQ(value_of(a, "--plugin"), kPlugin);
  const auto b = train_arguments(plan, plan.jobs[1], plan.arms[1], 0);
  EXPECT_EQ(value_of(b, "--batch"), "64");
  EXPECT_EQ(value_of(b, "--all-reduce"), "all-to-all");
}

TEST(Jobs, EachJobHasItsNumberAndKnowsTheLine) {
  const JobsPlan plan = plan_of();
  const Settings b = environment_of(plan, plan.jobs[1], plan.arms[1], {});
  EXPECT_THAT(b, IsSupersetOf(Settings{{"CLUSTAR_JOB", "2"},
                                       {"CLUSTAR_LINE_MBPS", "200"},
                                       {"CLUSTAR_SEND_ORDER", "coflow"},
                                       {"CLUSTAR_SOCKET_IFNAME", "eth0"}}));
  const Settings inherited = environment_of(plan, plan.jobs[1], plan.arms[1], {{"CLUSTAR_LINE_MBPS", "50"}});
  EXPECT_EQ(inherited.count("CLUSTAR_LINE_MBPS"), 0u);
}

TEST(Jobs, WhatDoesNotFitIsRefusedWithFileJobAndKey) {
  EXPECT_EQ(refusal(plan_of()), "");
  JobsPlan plan = plan_of();
  plan.fabric.hosts = 2;
  EXPECT_THAT(refusal(plan),
              HasSubstr("jobs.toml: job 'b': hosts: there is no host 2; allowed: 0 to 1, or more --hosts"));
  plan = plan_of();
  plan.training.train.batch = 1;
  EXPECT_THAT(refusal(plan), HasSubstr("job 'b': batch: 1 gives some of its 2 ranks nothing to do"));
  plan = plan_of();
  std::get<Training>(plan.jobs[0].work).steps = 1'000'000'000;
  EXPECT_THAT(refusal(plan),
              HasSubstr("job 'a': steps: 1000000000 are 40000000 passes over the examples; allowed: up"));
  plan = plan_of();
  plan.training.train.data = "MNIST";
  EXPECT_THAT(refusal(plan), HasSubstr("job 'a': examples: is for generated digits"));
  plan = plan_of("env = { CLUSTAR_SEND_ORDER = \"fifo\" }\n");
  EXPECT_THAT(refusal(plan), HasSubstr("job 'b': arm A sets CLUSTAR_SEND_ORDER, and so does the job"));
  plan = plan_of("env = { CLUSTAR_SEND_ORDRE = \"fifo\" }\n");
  EXPECT_THAT(refusal(plan), HasSubstr("job 'b': with arm A: "));
  const std::string trace = "[[jobs]]\nname = \"t\"\ntrace = \"/nowhere/t.csv\"\nsource = \"aicb\"\nhosts = 2\n";
  EXPECT_THAT(refusal(plan_of(trace)), HasSubstr("jobs.toml: job 't': trace: "));
  plan = plan_of(trace);
  plan.arms[1].plugin = "/lib/theirs.so";
  EXPECT_THAT(refusal(plan), HasSubstr("arm B has another plugin"));
  plan = plan_of(trace);
  plan.fabric.rate_bps = 0;
  EXPECT_THAT(refusal(plan), HasSubstr("allowed: --rate, not off"));
}

// Of 20 steps each.
Run made(const JobsPlan& plan, const Slot& slot, int round, double step_s) {
  Run run{.slot = slot, .round = round};
  for (std::size_t i = 0; i < plan.jobs.size(); ++i) {
    if (slot.alone && *slot.alone != i) continue;
    JobRun job;
    job.name = plan.jobs[i].name;
    job.per_step = 10;
    for (std::size_t step = 1; step <= 20; ++step) {
      job.step_s.push_back(step_s);
      job.marks.push_back({static_cast<double>(step) * step_s, step});
    }
    job.ended_s = 20 * step_s;
    run.jobs.push_back(job);
    run.details.push_back(json::object());
  }
  return run;
}

// Alone 0.1 s, under A 0.2 s, under B 0.125 s.
Run usual(const JobsPlan& plan, const Slot& slot, int round) {
  if (slot.alone) return made(plan, slot, round, 0.1);
  return made(plan, slot, round, slot.arm == 0 ? 0.2 : 0.125);
}

TEST(Jobs, FiguresAreMediansOverRounds) {
  const JobsPlan plan = plan_of();
  const auto outcomes = conduct(plan, [&](const Slot& slot, int round) { return usual(plan, slot, round); }, {});
  EXPECT_EQ(outcomes.runs.size(), 8u);
  const json outcome = to_json(plan, outcomes);
  const json& arms = outcome["figures"]["arms"];
  EXPECT_EQ(arms[0]["rounds"], 2);
  EXPECT_EQ(arms[0]["common_rounds"], 2);
  EXPECT_NEAR(arms[0]["jobs"][0]["per_second"]["median"], 50, 1e-6);
  EXPECT_NEAR(arms[1]["jobs"][1]["relative"]["median"], 0.8, 1e-6);
  EXPECT_NEAR(arms[0]["sum_relative"]["median"], 1.0, 1e-6);
  EXPECT_NEAR(arms[1]["least_relative"]["min"], 0.8, 1e-6);
  EXPECT_NEAR(arms[1]["jain"]["median"], 1, 1e-6);
  EXPECT_NEAR(outcome["figures"]["b_over_a"]["sum_per_second"]["ratio"], 1.6, 1e-6);
  EXPECT_NEAR(outcome["figures"]["b_over_a"]["jobs"][0]["ratio"], 1.6, 1e-6);
  EXPECT_EQ(outcome["failed_runs"], 0);
  const json all = rows(outcome);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1]["job"], "b");
  EXPECT_NEAR(all[1]["relative_a"], 0.5, 1e-6);
  EXPECT_THAT(table(outcome), HasSubstr("speed relative to alone"));
  json document{{"command", "ab"}, {"version", "1"}, {"machine", json::object()}, {"results", all}, {"jobs", outcome}};
  EXPECT_THAT(page(document), HasSubstr("Jain"));
}

TEST(Jobs, APageOfWhatIsIncompleteIsAnError) {
  const JobsPlan plan = plan_of();
  const auto outcomes = conduct(plan, [&](const Slot& slot, int round) { return usual(plan, slot, round); }, {});
  const json whole{{"command", "ab"}, {"jobs", to_json(plan, outcomes)}};
  ASSERT_NO_THROW(page(whole));
  const std::pair<const char*, std::size_t> lists[]{{"/arms", 0},
                                                    {"/arms", 1},
                                                    {"/figures/arms", 0},
                                                    {"/figures/arms", 1},
                                                    {"/figures/alone", 1},
                                                    {"/figures/arms/1/jobs", 1},
                                                    {"/figures/b_over_a/jobs", 0}};
  for (const auto& [path, left] : lists) {
    json document = whole;
    json& list = document["jobs"][json::json_pointer(path)];
    list.erase(list.begin() + static_cast<std::ptrdiff_t>(left), list.end());
    EXPECT_THROW(page(document), json::exception) << path << " with " << left;
  }
}

TEST(Jobs, BothArmsOfARoundAreMeasuredInTheSameWay) {
  const JobsPlan plan = plan_of();
  const auto outcomes = conduct(plan,
                                [&](const Slot& slot, int round) -> Ran {
                                  auto run = usual(plan, slot, round);
                                  if (round == 1 && slot == Slot{.arm = 1}) {
                                    for (Mark& mark : run.jobs[1].marks) mark.at_s += 1000;
                                  }
                                  return run;
                                },
                                {});
  const json outcome = to_json(plan, outcomes);
  for (const json& arm : outcome["figures"]["arms"]) {
    EXPECT_EQ(arm["rounds"], 2);
    EXPECT_EQ(arm["common_rounds"], 1);
  }
  for (const json& run : outcome["runs"]) {
    if (run["alone"]) continue;
    EXPECT_EQ(run["window_s"].is_null(), run["round"] == 2) << run["what"];
    EXPECT_EQ(run["jobs"][0]["counted_steps"], run["round"] == 2 ? 20 : 19) << run["what"];
  }
  EXPECT_THAT(table(outcome), HasSubstr("1 of 2 rounds of A: under an arm jobs had fewer than 5 steps together"));
}

TEST(Jobs, ARunsLineHasBothOfTheFiguresThatTheTableMayTake) {
  const JobsPlan plan = plan_of();
  auto run = usual(plan, Slot{.arm = 0}, 0);
  // A second in which the other one was not there yet, at twice the speed.
  for (double& step : run.jobs[0].step_s) step /= 2;
  run.jobs[0].step_s.insert(run.jobs[0].step_s.end(), 20, 0.2);
  run.jobs[0].marks.clear();
  for (std::size_t step = 1; step <= 20; ++step) run.jobs[0].marks.push_back({static_cast<double>(step) * 0.1, step});
  for (std::size_t step = 1; step <= 20; ++step) {
    run.jobs[0].marks.push_back({2 + static_cast<double>(step) * 0.2, 20 + step});
    run.jobs[1].marks[step - 1].at_s += 2;
  }
  EXPECT_THAT(run_line(plan, run, 1, 2),
              HasSubstr("a 50 images/s together (67 in all), b 50 images/s together (50 in"));
  EXPECT_THAT(run_line(plan, usual(plan, Slot{.alone = 1}, 0), 1, 2), HasSubstr("b 100 images/s"));
  EXPECT_THAT(run_line(plan, usual(plan, Slot{.alone = 1}, 0), 1, 2), Not(HasSubstr("in all")));
}

TEST(Jobs, AFailedRoundIsNamedAndTheOthersCount) {
  const JobsPlan plan = plan_of();
  const auto outcomes = conduct(plan,
                                [&](const Slot& slot, int round) -> Ran {
                                  auto run = usual(plan, slot, round);
                                  if (round == 0 && slot == Slot{.arm = 1})
                                    run.failure = "job 'a': rank 1 was killed by signal 9 (Killed)";
                                  return run;
                                },
                                {});
  const json outcome = to_json(plan, outcomes);
  EXPECT_EQ(outcome["failed_runs"], 1);
  EXPECT_EQ(outcome["figures"]["arms"][1]["rounds"], 1);
  EXPECT_EQ(outcome["figures"]["arms"][0]["rounds"], 2);
  EXPECT_THAT(table(outcome), HasSubstr("round 1, B, all jobs failed: job 'a': rank 1 was killed"));
}

TEST(Jobs, WhatFailsTwiceIsLeftOutAndNamed) {
  JobsPlan plan = plan_of();
  plan.rounds = 5;
  int tries = 0;
  const auto outcomes = conduct(plan,
                                [&](const Slot& slot, int round) -> Ran {
                                  auto run = usual(plan, slot, round);
                                  if (slot.alone == std::size_t{0}) {
                                    ++tries;
                                    run.failure = "job 'a': no";
                                  }
                                  return run;
                                },
                                {});
  EXPECT_EQ(tries, 2);
  EXPECT_THAT(outcomes.left_out, ElementsAre("a alone"));
  const json outcome = to_json(plan, outcomes);
  EXPECT_TRUE(outcome["figures"]["arms"][0]["sum_relative"].is_null());
  EXPECT_NEAR(outcome["figures"]["arms"][0]["jobs"][0]["per_second"]["median"], 50, 1e-6);
  EXPECT_THAT(table(outcome), HasSubstr("a alone failed twice"));
}

TEST(Jobs, AnErrorOrAnInterruptEndsItAndKeepsWhatIsThere) {
  const JobsPlan plan = plan_of();
  int runs = 0;
  const auto broken = conduct(plan,
                              [&](const Slot& slot, int round) -> Ran {
                                if (++runs == 3) return fail(ErrorCode::kSystem, "the fabric is gone");
                                return usual(plan, slot, round);
                              },
                              {});
  EXPECT_EQ(broken.runs.size(), 2u);
  EXPECT_EQ(broken.ended_by, "round 1 of 2, b alone: the fabric is gone");
  JobsEvents events;
  events.interrupted = [] { return 2; };
  const auto interrupted = conduct(
      plan, [&](const Slot& slot, int round) { return usual(plan, slot, round); }, events);
  EXPECT_TRUE(interrupted.runs.empty());
  EXPECT_THAT(interrupted.ended_by, HasSubstr("interrupted by signal 2"));
  EXPECT_THAT(table(to_json(plan, interrupted)), HasSubstr("ended early"));
}

JobSpec trace_job(const std::string& source) {
  JobSpec job;
  job.name = "t";
  job.hosts = {3, 1};
  Traffic traffic;
  traffic.path = "t.csv";
  traffic.source = source;
  traffic.gbps = 10;
  traffic.iterations = 4;
  if (source == "muri") traffic.id = "12";
  job.work = traffic;
  return job;
}

TEST(Jobs, ATraceIsPlayedBetweenTheJobsHostsInTheFabricsSizes) {
  const std::string muri =
      "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
      "7,1,0,100,bert,10,4\n12,8,500,3000,gpt2,100,40\n";
  const auto mix = mix_of(trace_job("muri"), 100'000'000, muri);
  ASSERT_TRUE(mix) << mix.error().message;
  ASSERT_EQ(mix->jobs.size(), 1u);
  EXPECT_EQ(mix->ports, 4u);
  EXPECT_EQ(mix->gpus_per_port, 0u);
  EXPECT_EQ(mix->jobs[0].iterations, 4u);
  EXPECT_EQ(mix->jobs[0].begins, TimePoint{});
  const auto& flows = mix->jobs[0].phases.at(0).flows;
  ASSERT_EQ(flows.size(), 2u);
  EXPECT_EQ(flows[0].src, 3u);
  EXPECT_EQ(flows[0].dst, 1u);
  EXPECT_NEAR(flows[0].bytes, 0.040 * 100e6 / 8, 1) << "40 ms of the fabric's line";
  EXPECT_TRUE(mix_of(trace_job("muri"), 100'000'000, muri + "13,8,600,1000000000000,gpt2,100,40\n"))
      << "how long the others are is nothing to it";
  JobSpec other = trace_job("muri");
  std::get<Traffic>(other.work).id = "13";
  EXPECT_THAT(mix_of(other, 100'000'000, muri).error().message, HasSubstr("no line has job_id 13"));
}

JobSpec queue_job() {
  JobSpec job = trace_job("muri");
  job.hosts = {0, 1};
  auto& traffic = std::get<Traffic>(job.work);
  traffic.id.reset();
  traffic.queue = Queue{.jobs = 3, .gpus_per_host = 8, .scale = 100};
  return job;
}

constexpr const char* kQueueTrace =
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
    "7,1,0,100,bert,10,4\n12,8,500,300,gpt2,100,40\n13,8,900,100,vgg16,20,20\n14,64,900,1,vgg16,20,20\n";

TEST(Jobs, AQueueIsTheFirstJobsOfTheTraceAtTheirTimes) {
  const auto mix = mix_of(queue_job(), 100'000'000, kQueueTrace);
  ASSERT_TRUE(mix) << mix.error().message;
  ASSERT_EQ(mix->jobs.size(), 3u) << "the fourth, too large for these hosts, is not asked for";
  EXPECT_EQ(mix->ports, 2u);
  EXPECT_EQ(mix->gpus_per_port, 8u);
  EXPECT_EQ(mix->jobs[1].begins, TimePoint(std::chrono::milliseconds(5)));
  EXPECT_EQ(mix->jobs[1].iterations, 3u);
  EXPECT_NEAR(mix->jobs[1].phases[0].ring_bytes, 0.040 * 100e6 / 8, 1) << "40 ms of the fabric's line";
  JobSpec large = queue_job();
  std::get<Traffic>(large.work).queue->jobs = 4;
  EXPECT_THAT(mix_of(large, 100'000'000, kQueueTrace).error().message, HasSubstr("num_gpu"));
  EXPECT_THAT(mix_of(queue_job(), 100'000'000, std::string(kQueueTrace).substr(0, 100)).error().message,
              HasSubstr("no job"));
}

// Iterations of 100 and 20 ms, three and one of them: the mean is 80 ms. One that took twice as long as alone counts
// with 160, whichever it is.
TEST(Jobs, AQueuesStepsAreItsMeanIterationSlowedAsEachWas) {
  const auto mix = mix_of(queue_job(), 100'000'000, kQueueTrace);
  ASSERT_TRUE(mix) << mix.error().message;
  Steps steps(*mix, 100e6 / 8);
  EXPECT_EQ(steps.total(), 4u) << "not those of the job that never sends";
  std::vector<coflow::JobResult> results(3);
  results[0].iterations_s = {0.010};
  results[1].iterations_s = {0.200};
  steps.look(results);
  ASSERT_EQ(steps.seconds().size(), 1u);
  EXPECT_NEAR(steps.seconds()[0], 0.160, 1e-6);
  results[2].iterations_s = {0.040};
  steps.look(results);
  ASSERT_EQ(steps.seconds().size(), 2u);
  EXPECT_NEAR(steps.seconds()[1], 0.160, 1e-6);
}

// A ring of 4 ranks sends each of its 2 * 3 quarters over each edge; as large as 10 Gbit/s are to the fabric's line.
TEST(Jobs, AnAicbJobSendsWhatItsCollectivesPutOnTheLine) {
  const std::string aicb =
      "[rank0 ~ rank3]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
      "CommType.all_reduce,CommGroup.dp_group,4,4000000,forward,None,None,,1\n"
      "CommType.all_gather,CommGroup.dp_group,4,8000000,forward,None,None,,2\n";
  const std::vector<std::vector<int>> hosts{{3, 1}, {0, 1, 2, 3}};
  for (const std::vector<int>& some : hosts) {
    JobSpec job = trace_job("aicb");
    job.hosts = some;
    const auto mix = mix_of(job, 100'000'000, aicb);
    ASSERT_TRUE(mix) << mix.error().message;
    std::map<std::uint32_t, double> sent;
    for (const coflow::Phase& phase : mix->jobs[0].phases) {
      for (const auto& flow : phase.flows) sent[flow.src] += flow.bytes;
    }
    ASSERT_EQ(sent.size(), some.size());
    for (const auto& [host, bytes] : sent) {
      EXPECT_NEAR(bytes, (4e6 * 2 * 3 / 4 + 2 * 8e6 * 3 / 4) / 100, 1) << some.size() << " hosts, host " << host;
    }
  }
}

TEST(Jobs, RanksOfATraceReachAllHosts) {
  const std::string aicb =
      "[rank0 ~ rank3]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
      "CommType.all_reduce,CommGroup.dp_group,4,4000000,forward,None,None,,1\n";
  JobSpec job = trace_job("aicb");
  const std::vector<std::vector<int>> good{{3, 1}, {0, 1, 2, 3}}, bad{{0, 1, 2}, {0, 1, 2, 3, 4}};
  for (const std::vector<int>& hosts : good) {
    job.hosts = hosts;
    EXPECT_TRUE(mix_of(job, 100'000'000, aicb)) << hosts.size();
  }
  for (const std::vector<int>& hosts : bad) {
    job.hosts = hosts;
    const auto mix = mix_of(job, 100'000'000, aicb);
    ASSERT_FALSE(mix) << hosts.size();
    EXPECT_THAT(mix.error().message, HasSubstr("job 't': hosts: the 4 ranks of t.csv"));
    EXPECT_THAT(mix.error().message, HasSubstr("allowed: 2, 4 hosts"));
  }
}

}  // namespace
}  // namespace clustar::bench::ab::jobs
