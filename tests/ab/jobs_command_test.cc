// `clustar ab --jobs` as a user runs it: wrong usage, and tiny jobs on a fabric of their own (needs root).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/fabric/fabric.h"
#include "bench/fabric/namespaces.h"
#include "tests/trainer/command.h"

namespace clustar::bench::ab {
namespace {

using testing::HasSubstr;
using trainer::Command;
using trainer::Outcome;
using trainer::TemporaryDirectory;
using Words = std::vector<std::string>;

const std::string kTwoJobs = R"([[jobs]]
name = "one"
model = "mlp-small"
epochs = 2
batch = 16
examples = 400
hosts = 2
urgency = "background"

[[jobs]]
name = "two"
model = "lr"
epochs = 2
batch = 16
examples = 400
hosts = [1, 0]
start = 0.1
weight = 2
)";

std::string without(std::string text, const std::string& line) {
  for (std::size_t at = 0; (at = text.find(line, at)) != std::string::npos;) text.erase(at, line.size());
  return text;
}

TEST(JobsCommand, WrongUsageIsStatusTwoAndSaysWhatIsAllowed) {
  const TemporaryDirectory folder;
  folder.write("jobs.toml", kTwoJobs);
  folder.write("wrong.toml", kTwoJobs + "wieght = 3\n");
  folder.write("soon.toml", kTwoJobs + "urgency = \"soon\"\n");
  folder.write("none.toml", without(kTwoJobs, "urgency = \"background\"\n"));
  const std::string good = folder.file("jobs.toml");
  const std::vector<std::pair<Words, std::string>> cases{
      {{"ab", "--jobs", "/nowhere/jobs.toml"}, "cannot read '/nowhere/jobs.toml'"},
      {{"ab", "--jobs", folder.file("wrong.toml")}, "job 'two': unknown key 'wieght'; did you mean weight?; allowed: "},
      {{"ab", "--jobs", folder.file("soon.toml")}, "job 'two': with arm A: CLUSTAR_SEND_URGENCY: rule 1 ('soon')"},
      {{"ab", "--jobs", good, "--scenario", "gray"}, "--scenario"},
      {{"ab", "--jobs", good, "--local"}, "--local"},
      {{"ab", "--jobs", good, "--target-accuracy", "0.9"}, "--target-accuracy"},
      {{"ab", "--jobs", good, "--model", "cnn"}, "--model is not for --jobs"},
      {{"ab", "--play", "two"}, "--jobs"},
      {{"ab", "--jobs", folder.file("none.toml"), "--candidate", "CLUSTAR_SEND_URGENCY=soon"},
       "--candidate: CLUSTAR_SEND_URGENCY: rule 1 ('soon')"},
      {{"ab", "--jobs", good, "--baseline", "CLUSTAR_SEND_ORDER=up"}, "--baseline"},
      {{"ab", "--jobs", good, "--candidate", "collective=paraexpress"}, "collective=paraexpress is not for --jobs"},
      {{"ab", "--jobs", good, "--baseline", "collective=ps"}, "collective=ps is not for --jobs"},
      {{"ab", "--jobs", good, "--baseline", "CLUSTAR_JOB_WEIGHT=3"}, "job 'two': arm A sets CLUSTAR_JOB_WEIGHT"},
      {{"ab", "--time-limit", "3"}, "--time-limit is for --scenario, --jobs and --launcher"}};
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = trainer::run_clustar(words);
    EXPECT_EQ(outcome.status, 2) << expected << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

TEST(JobsCommand, AnUrgencyThatIsInheritedIsChecked) {
  const TemporaryDirectory folder;
  folder.write("jobs.toml", kTwoJobs);
  setenv("CLUSTAR_SEND_URGENCY", "soon", 1);
  const Outcome outcome = trainer::run_clustar({"ab", "--jobs", folder.file("jobs.toml")});
  unsetenv("CLUSTAR_SEND_URGENCY");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("CLUSTAR_SEND_URGENCY: rule 1 ('soon')"));
}

TEST(JobsCommand, UnusableDataIsSaidBeforeThereIsAFabric) {
  const TemporaryDirectory folder;
  folder.write("jobs.toml", without(kTwoJobs, "examples = 400\n"));
  folder.write("digits", "none");
  const Outcome outcome =
      trainer::run_clustar({"ab", "--jobs", folder.file("jobs.toml"), "--data", folder.file("digits")});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("job 'one': --data: "));
}

TEST(JobsCommand, WhatPlaysATraceRefusesAFileThatHasChanged) {
  const TemporaryDirectory folder;
  folder.write("jobs.toml", kTwoJobs);
  const Outcome outcome = trainer::run_clustar({"ab", "--jobs", folder.file("jobs.toml"), "--play", "one", "--fabric",
                                                "none", "--report-fd", "1", "--digest", "1"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.out, HasSubstr("jobs.toml has changed since the comparison began"));
}

TEST(JobsCommand, AReportOfHalfAFileIsAnError) {
  const TemporaryDirectory folder;
  folder.write("half.json", R"({"command": "ab", "jobs": {"arms": [], "jobs": [{"job": "one"}], "options": {}}})");
  const Outcome outcome = trainer::run_clustar({"report", folder.file("half.json"), "-o", folder.file("half.html")});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("it is not as clustar ab --json writes it"));
}

class JobsOnFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make network namespaces";
    const auto made = fabric::Fabric::up({.name = "abjobs-test-" + std::to_string(getpid()), .hosts = 2});
    if (!made) GTEST_SKIP() << "no fabric can be made here: " << made.error().message;
    EXPECT_TRUE(fabric::Fabric::remove(made->spec().name));
  }

  static bool is_left(pid_t pid) { return !fabric::namespaces_of("ab-" + std::to_string(pid)).empty(); }

  // The ranks of all jobs, as soon as there are so many.
  static std::vector<trainer::Process> wait_for_ranks(const Command& command, std::size_t count) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < until) {
      std::vector<trainer::Process> ranks;
      for (const auto& child : trainer::children_of(command.pid())) {
        if (child.command_line.find(" train --rank") != std::string::npos) ranks.push_back(child);
      }
      if (ranks.size() == count) return ranks;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return {};
  }
};

TEST_F(JobsOnFabric, MeasuresJobsTogetherAndAloneAndLeavesNothing) {
  const TemporaryDirectory folder;
  folder.write("jobs.toml", kTwoJobs);
  Command command({"ab", "--jobs", folder.file("jobs.toml"), "--rate", "200M", "--rounds", "1", "--time-limit", "60",
                   "--json", folder.file("ab.json"), "--report", folder.file("ab.html")});
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait(std::chrono::seconds(110));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("Jain's fairness"));
  const nlohmann::json document = folder.read_json("ab.json");
  const nlohmann::json& jobs = document["jobs"];
  EXPECT_EQ(jobs["runs"].size(), 4u);
  EXPECT_EQ(jobs["failed_runs"], 0);
  EXPECT_EQ(jobs["arms"][1]["settings"]["CLUSTAR_SEND_ORDER"], "coflow");
  for (const nlohmann::json& row : document["results"]) {
    EXPECT_GT(row["per_second_a"], 0);
    EXPECT_GT(row["relative_b"], 0);
  }
  const Outcome again = trainer::run_clustar({"report", folder.file("ab.json"), "-o", folder.file("again.html")});
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_FALSE(is_left(pid));
}

TEST_F(JobsOnFabric, PlaysTracesBesideAJobThatTrains) {
  const TemporaryDirectory folder;
  folder.write("t.csv",
               "[rank0 ~ rank3]\n"
               "comm_type,comm_group,comm_group_size,msg_size,stage,dst,src,additional,count\n"
               "CommType.all_reduce,CommGroup.dp_group,4,4000000,forward,None,None,,1\n");
  folder.write("muri.csv",
               "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
               "12,8,500,3000,gpt2,20,5\n");
  folder.write("jobs.toml",
               "[[jobs]]\nname = \"train\"\nmodel = \"lr\"\nepochs = 2\nbatch = 16\nexamples = 400\nhosts = 2\n"
               "[[jobs]]\nname = \"aicb\"\ntrace = \"t.csv\"\nsource = \"aicb\"\nhosts = [1, 0]\niterations = 12\n"
               "gbps = 10\n"
               "[[jobs]]\nname = \"muri\"\ntrace = \"muri.csv\"\nsource = \"muri\"\nid = \"12\"\nhosts = 2\n");
  Command command({"ab", "--jobs", folder.file("jobs.toml"), "--rate", "100M", "--rounds", "1", "--time-limit", "60",
                   "--json", folder.file("ab.json")});
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait(std::chrono::seconds(110));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json document = folder.read_json("ab.json");
  for (const nlohmann::json& row : document["results"]) {
    EXPECT_GT(row["per_second_a"], 0);
    EXPECT_GT(row["relative_b"], 0);
  }
  EXPECT_EQ(document["results"][1]["unit"], "iterations");
  // What they take alone follows from their sizes: 60 kB a host and iteration at 100 Mbit/s and as long a pause, and
  // 5 ms of 20 on the network. A busy machine takes longer.
  const nlohmann::json& alone = document["jobs"]["figures"]["alone"];
  for (const auto& [job, least_s] : std::map<std::size_t, double>{{1, 0.0096}, {2, 0.020}}) {
    EXPECT_GT(alone[job]["step_s"]["median"], 0.95 * least_s) << alone[job];
    EXPECT_LT(alone[job]["step_s"]["median"], 6 * least_s) << alone[job];
  }
  EXPECT_EQ(document["jobs"]["runs"][0]["jobs"][1]["steps"], 12);
  EXPECT_TRUE(document["jobs"]["figures"]["b_over_a"]["sum_per_second"].is_null()) << "images and iterations";
  EXPECT_FALSE(is_left(pid));
}

TEST_F(JobsOnFabric, PlaysAQueueOfMurisJobs) {
  const TemporaryDirectory folder;
  folder.write("muri.csv",
               "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
               "1,8,0,10000,bert,40,20\n2,8,0,20000,gpt2,40,20\n3,8,100000,8000,vgg16,40,20\n");
  folder.write("jobs.toml",
               "[[jobs]]\nname = \"queue\"\ntrace = \"muri.csv\"\nsource = \"muri\"\nqueue = 3\nscale = 1000\n"
               "hosts = 2\n");
  Command command({"ab", "--jobs", folder.file("jobs.toml"), "--rate", "50M", "--rounds", "1", "--time-limit", "60",
                   "--json", folder.file("ab.json"), "--report", folder.file("ab.html")});
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait(std::chrono::seconds(110));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("1/1000 of the trace's, sizes 1/2000"));
  EXPECT_THAT(outcome.out, HasSubstr("mean completion, s"));
  const nlohmann::json document = folder.read_json("ab.json");
  ASSERT_EQ(document["jobs"]["runs"].size(), 2u) << "A and B: alone is the same as together";
  for (const nlohmann::json& run : document["jobs"]["runs"]) {
    EXPECT_EQ(run["jobs"][0]["steps"], 38);
    const nlohmann::json& queued = run["jobs"][0]["train"]["queue"]["jobs"];
    ASSERT_EQ(queued.size(), 3u);
    EXPECT_GE(queued[2]["began_s"].get<double>(), queued[0]["ended_s"].get<double>()) << "it waits for GPUs";
  }
  EXPECT_GT(document["jobs"]["figures"]["b_over_a"]["completion"][0]["ratio"].get<double>(), 0);
  EXPECT_TRUE(document["results"][0]["per_second_a"].is_null()) << "its iterations overlap";
  EXPECT_FALSE(is_left(pid));
}

TEST_F(JobsOnFabric, ADeadRankEndsTheRunAndTheErrorNamesItsJob) {
  const TemporaryDirectory folder;
  std::string endless = kTwoJobs;
  for (std::size_t at = 0; (at = endless.find("epochs = 2", at)) != std::string::npos; ++at) {
    endless.replace(at, 10, "epochs = 9000");
  }
  folder.write("jobs.toml", endless);
  Command command({"ab", "--jobs", folder.file("jobs.toml"), "--rounds", "1"});
  const pid_t pid = command.pid();
  const auto ranks = wait_for_ranks(command, 4);
  ASSERT_EQ(ranks.size(), 4u);
  for (const auto& rank : ranks) {
    if (rank.command_line.find("--rank 1") != std::string::npos &&
        rank.command_line.find("--model lr") != std::string::npos) {
      kill(rank.pid, SIGKILL);
    }
  }
  EXPECT_TRUE(command.wait_for_error_text("FAILED: job 'two': rank 1 was killed by signal 9"));
  // The next run, of one job alone, is ended by an interrupt.
  EXPECT_EQ(wait_for_ranks(command, 2).size(), 2u);
  kill(pid, SIGTERM);
  const Outcome outcome = command.wait(std::chrono::seconds(60));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("interrupted by signal 15"));
  EXPECT_THAT(outcome.out, HasSubstr("round 1, A, all jobs failed: job 'two': rank 1 was killed"));
  EXPECT_TRUE(trainer::children_of(pid).empty());
  EXPECT_FALSE(is_left(pid));
}

}  // namespace
}  // namespace clustar::bench::ab
