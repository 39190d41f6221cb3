// Several jobs under two arms, without a fabric: order, arguments, settings, failures, results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/ab/jobs/conduct.h"
#include "bench/ab/jobs/jobs_file.h"
#include "bench/ab/jobs/results.h"
#include "bench/ab/jobs/traffic.h"
#include "tests/temp_path.h"

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

constexpr const char* kQueueHeader =
    "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n";

// Queues of so many jobs, which all send from each of the first hosts, beside plan_of()'s ranks on 0 and 1, and 1
// and 2.
JobsPlan plan_of_queues(const std::vector<int>& queues, int hosts, const std::string& trace) {
  std::string text;
  for (std::size_t i = 0; i < queues.size(); ++i) {
    text += "[[jobs]]\nname = \"q" + std::to_string(i) + "\"\ntrace = \"" + trace +
            "\"\nsource = \"muri\"\nqueue = " + std::to_string(queues[i]) + "\nhosts = " + std::to_string(hosts) + "\n";
  }
  JobsPlan plan = plan_of(text);
  plan.fabric.hosts = std::max(hosts, 3);
  return plan;
}

TEST(Jobs, ProcessesOfAllJobsOfAHostAreBounded) {
  const std::string trace = tests::temp_path("muri", ".csv");
  std::ofstream out(trace);
  out << kQueueHeader;
  for (int job = 1; job <= 40; ++job) out << job << ",4,0,1000,bert,40,20\n";
  out.close();
  const auto fits = check(plan_of_queues({20, 30}, 2, trace), kPlugin);
  ASSERT_TRUE(fits) << fits.error().message;
  EXPECT_EQ(*fits, 2 * 50u + 4) << "and four ranks";
  EXPECT_THAT(refusal(plan_of_queues({40, 40}, 2, trace)),
              HasSubstr("jobs.toml: jobs: 82 processes send from host 1 ('a' 1, 'b' 1, 'q0' 40, 'q1' 40), 164 in all; "
                        "allowed: 60 and 256"));
  EXPECT_THAT(refusal(plan_of_queues({25, 30}, 5, trace)), HasSubstr("279 in all; allowed: 60 and 256"));
  std::filesystem::remove(trace);
}

TEST(Jobs, OfAQueueThereAreStepsAndCompletionsButNothingBySecond) {
  JobsPlan plan = plan_of_queues({3}, 2, "muri.csv");
  plan.processes = 100'000;
  const auto run = [&](const Slot& slot, int round) {
    auto ran = usual(plan, slot, round);
    for (std::size_t i = 0; i < ran.jobs.size(); ++i) {
      if (ran.jobs[i].name != "q0") continue;
      ran.jobs[i].per_step.reset();
      const double mean = slot.arm == 0 ? 8 : 6;
      ran.details[i]["queue"] = {{"mean_completion_s", mean}, {"mean_waited_s", 1}, {"makespan_s", 9}};
    }
    return ran;
  };
  const json outcome = to_json(plan, conduct(plan, run, {}));
  const json& figures = outcome["figures"];
  EXPECT_TRUE(figures["alone"][2]["per_second"].is_null());
  EXPECT_TRUE(figures["arms"][0]["jobs"][2]["per_second"].is_null());
  EXPECT_NEAR(figures["arms"][0]["jobs"][2]["step_s"]["median"], 0.2, 1e-6);
  EXPECT_NEAR(figures["arms"][0]["jobs"][2]["relative"]["median"], 0.5, 1e-6);
  EXPECT_TRUE(figures["b_over_a"]["jobs"][2].is_null());
  EXPECT_TRUE(figures["b_over_a"]["sum_per_second"].is_null());
  EXPECT_NEAR(figures["b_over_a"]["completion"][2]["ratio"], 0.75, 1e-6);
  EXPECT_TRUE(rows(outcome)[2]["per_second_a"].is_null());
  EXPECT_THAT(table(outcome), Not(HasSubstr("iterations/s")));
  EXPECT_THAT(table(outcome), HasSubstr("100000 processes share"));
  EXPECT_THAT(run_line(plan, run(Slot{.alone = 2}, 0), 1, 2), HasSubstr("q0 0.1000 s a step"));
  const json document{
      {"command", "ab"}, {"version", "1"}, {"machine", json::object()}, {"results", rows(outcome)}, {"jobs", outcome}};
  EXPECT_THAT(page(document), HasSubstr("q0 0.2000 s a step"));
  EXPECT_THAT(page(document), Not(HasSubstr("iterations/s")));
}

}  // namespace
}  // namespace clustar::bench::ab::jobs
