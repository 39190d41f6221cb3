// The file of `clustar ab --jobs`: what it says, and what it may not.
#include "bench/ab/jobs/jobs_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace clustar::bench::ab::jobs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kTwo = R"(
[[jobs]]
name = "big"
model = "mlp"
steps = 100
batch = 64
hosts = 4
start = 3
weight = 3
env = { CLUSTAR_TCP_SOCKETS = "2" }

[[jobs]]
name = "small"
model = "mlp-small"
epochs = 2
examples = 500
all_reduce = "all-to-all"
hosts = [2, 0]
start = 1.5
job = 7
urgency = "blocking"
)";

TEST(JobsFile, SaysWhatJobsRunWhereAndWhen) {
  const auto jobs = parse_jobs(kTwo, "jobs.toml");
  ASSERT_TRUE(jobs) << jobs.error().message;
  ASSERT_EQ(jobs->size(), 2u);
  const JobSpec& big = (*jobs)[0];
  EXPECT_EQ(big.name, "big");
  EXPECT_THAT(big.hosts, ElementsAre(0, 1, 2, 3));
  EXPECT_DOUBLE_EQ(big.start_s, 1.5) << "after the first one's";
  EXPECT_EQ(big.settings, (Settings{{"CLUSTAR_JOB", "1"}, {"CLUSTAR_JOB_WEIGHT", "3"}, {"CLUSTAR_TCP_SOCKETS", "2"}}));
  const auto& training = std::get<Training>(big.work);
  EXPECT_EQ(training.model, "mlp");
  EXPECT_EQ(training.steps, 100);
  EXPECT_EQ(training.batch, 64);
  EXPECT_FALSE(training.epochs || training.examples);
  EXPECT_EQ(training.all_reduce, "ring");
  const JobSpec& small = (*jobs)[1];
  EXPECT_THAT(small.hosts, ElementsAre(2, 0));
  EXPECT_DOUBLE_EQ(small.start_s, 0);
  EXPECT_EQ(small.settings, (Settings{{"CLUSTAR_JOB", "7"}, {"CLUSTAR_SEND_URGENCY", "blocking"}}));
  EXPECT_EQ(std::get<Training>(small.work).all_reduce, "all-to-all");
  EXPECT_EQ(hosts_of(*jobs), 4);
}

TEST(JobsFile, TakesTracesFromItsOwnFolder) {
  const std::string traces = R"([[jobs]]
name = "gpt"
trace = "gpt.csv"
source = "aicb"
iterations = 20
gbps = 40
duty = 0.4
hosts = 2
[[jobs]]
name = "muri"
trace = "/traces/muri.csv"
source = "muri"
id = "12"
hosts = 2
)";
  const auto jobs = parse_jobs(traces, "some/where/jobs.toml");
  ASSERT_TRUE(jobs) << jobs.error().message;
  const auto& gpt = std::get<Traffic>((*jobs)[0].work);
  EXPECT_EQ(gpt.path, "some/where/gpt.csv");
  EXPECT_EQ(gpt.iterations, 20);
  EXPECT_DOUBLE_EQ(gpt.gbps, 40);
  EXPECT_EQ(gpt.duty, 0.4);
  const auto& muri = std::get<Traffic>((*jobs)[1].work);
  EXPECT_EQ(muri.path, "/traces/muri.csv");
  EXPECT_EQ(muri.id, "12");
  EXPECT_STREQ((*jobs)[1].unit(), "iterations");
}

TEST(JobsFile, AQueueIsSeveralJobsAndMayBeAlone) {
  const std::string queue =
      "[[jobs]]\nname = \"q\"\ntrace = \"muri.csv\"\nsource = \"muri\"\nqueue = 12\nscale = 5e4\nhosts = 4\n";
  const auto jobs = parse_jobs(queue + "gpus_per_host = 4\n", "jobs.toml");
  ASSERT_TRUE(jobs) << jobs.error().message;
  EXPECT_TRUE((*jobs)[0].is_queue());
  const auto& traffic = std::get<Traffic>((*jobs)[0].work);
  EXPECT_EQ(traffic.queue->jobs, 12u);
  EXPECT_EQ(traffic.queue->gpus_per_host, 4u);
  EXPECT_DOUBLE_EQ(traffic.queue->scale, 5e4);
  for (const auto& [lines, expected] : {std::pair<std::string, std::string>{"id = \"3\"\n", "id: is for one job"},
                                        {"iterations = 3\n", "iterations: is for one job"},
                                        {"gpus_per_host = 0\n", "gpus_per_host: allowed: a whole number from 1"},
                                        {"job = 0\n", "job: allowed: a whole number from 1 to 2000000"},
                                        {"job = 2000001\n", "job: allowed: a whole number from 1 to 2000000"},
                                        {"env = { CLUSTAR_JOB = \"3\" }\n", "follows from job"}}) {
    EXPECT_THAT(parse_jobs(queue + lines, "jobs.toml").error().message, HasSubstr(expected));
  }
}

TEST(JobsFile, JobsOfAQueueHaveNumbersThatNoOtherHas) {
  const std::string rest = "trace = \"muri.csv\"\nsource = \"muri\"\nhosts = 4\n";
  const std::string queue = "[[jobs]]\nname = \"q\"\nqueue = 12\njob = 3\n" + rest;
  const std::string one = "[[jobs]]\nname = \"x\"\nid = \"7\"\n" + rest;
  const std::string other = "[[jobs]]\nname = \"r\"\nqueue = 5\n" + rest;
  for (const std::string& good : {one + "job = 3\n", one + "job = 3000\n", one + "job = 3013\n", other}) {
    const auto jobs = parse_jobs(queue + good, "jobs.toml");
    EXPECT_TRUE(jobs) << good << jobs.error().message;
  }
  const std::string taken = "is taken by queue 'q', whose jobs have 3001 to 3012; allowed: another job = N";
  EXPECT_THAT(parse_jobs(queue + one + "job = 3001\n", "jobs.toml").error().message,
              HasSubstr("job 'x': CLUSTAR_JOB 3001 " + taken));
  EXPECT_THAT(parse_jobs(one + "env = { CLUSTAR_JOB = \"3012\" }\n" + queue, "jobs.toml").error().message,
              HasSubstr("job 'x': CLUSTAR_JOB 3012 " + taken));
  EXPECT_THAT(parse_jobs(queue + other + "job = 3\n", "jobs.toml").error().message,
              HasSubstr("job 'r': CLUSTAR_JOB 3 " + taken));
}

std::string with(const std::string& lines) { return kTwo + "[[jobs]]\n" + lines; }

TEST(JobsFile, WhatIsWrongNamesFileJobKeyAndWhatIsAllowed) {
  const std::string train = "name = \"x\"\nmodel = \"mlp\"\nhosts = 2\n";
  const std::string trace = "name = \"x\"\ntrace = \"t.csv\"\nhosts = 2\nsource = \"aicb\"\n";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "allowed: 2 to 32 of [[jobs]], or one that is a queue"},
      {kTwo.substr(0, kTwo.find("[[jobs]]", 1)), "allowed: 2 to 32 of [[jobs]]"},
      {"jobs = 3", "allowed: 2 to 32 of [[jobs]]"},
      {"job = 3\n" + kTwo, "unknown key 'job'; did you mean jobs?; allowed: jobs"},
      {"[[jobs]\n", "jobs.toml"},
      {with(train + "modle = 1\n"), "job 'x': unknown key 'modle'; did you mean model?; allowed: name, hosts"},
      {with(train + "gbps = 1\n"), "job 'x': unknown key 'gbps'"},
      {with(trace + "batch = 1\n"), "job 'x': unknown key 'batch'"},
      {with(train + "trace = \"t.csv\"\n"), "model, which it trains, or trace"},
      {with("name = \"x\"\nhosts = 2\n"), "model, which it trains, or trace"},
      {with("name = \"a b\"\n"), "job 3: name: allowed: 1 to 32"},
      {with("model = \"mlp\"\n"), "job 3: name: allowed"},
      {with("name = \"big\"\nmodel = \"mlp\"\nhosts = 2\n"), "job 'big': name: another job has it"},
      {with("name = \"x\"\nmodel = \"mpl\"\nhosts = 2\n"), "job 'x': model: 'mpl'; did you mean mlp?; allowed: lr"},
      {with("name = \"x\"\nmodel = \"mlp\"\n"), "job 'x': hosts: is missing; allowed"},
      {with("name = \"x\"\nmodel = \"mlp\"\nhosts = 1\n"), "job 'x': hosts: allowed"},
      {with("name = \"x\"\nmodel = \"mlp\"\nhosts = [1]\n"), "job 'x': hosts: allowed"},
      {with("name = \"x\"\nmodel = \"mlp\"\nhosts = [1, 1]\n"), "job 'x': hosts: allowed"},
      {with("name = \"x\"\nmodel = \"mlp\"\nhosts = [1, 250]\n"), "job 'x': hosts: allowed"},
      {with("name = \"x\"\nmodel = \"mlp\"\nhosts = \"all\"\n"), "job 'x': hosts: allowed"},
      {with(train + "epochs = 0\n"), "epochs: allowed: a whole number from 1"},
      {with(train + "epochs = 100001\n"), "epochs: allowed: a whole number from 1 to 100000"},
      {with(train + "batch = 1048577\n"), "batch: allowed: a whole number from 1 to 1048576"},
      {with(train + "epochs = 1\nsteps = 1\n"), "job 'x': steps: says how long the job trains, as epochs does"},
      {with(train + "start = -1\n"), "start: allowed: a number from 0 to 3600"},
      {with(train + "weight = 0\n"), "weight: allowed: a whole number from 1 to 1000"},
      {with(train + "urgency = 3\n"), "urgency: must be a text"},
      {with(train + "all_reduce = \"tree\"\n"), "allowed: ring, all-to-all"},
      {with(train + "env = 3\n"), "job 'x': env: must be a table"},
      {with(train + "env = { A = 3 }\n"), "job 'x': env: A: must be a text"},
      {with(train + "env = { \"A-B\" = \"3\" }\n"), "'A-B' is no variable's name"},
      {with(train + "weight = 2\nenv = { CLUSTAR_JOB_WEIGHT = \"3\" }\n"),
       "weight: sets CLUSTAR_JOB_WEIGHT, which env"},
      {with("name = \"x\"\ntrace = \"t.csv\"\nhosts = 2\n"), "source: is missing; allowed: aicb, muri"},
      {with(trace + "id = \"3\"\n"), "id: is for source = \"muri\""},
      {with(trace + "queue = 3\n"), "queue: is for source = \"muri\""},
      {with(trace + "scale = 3\n"), "scale: is for a queue"},
      {with("name = \"x\"\ntrace = \"t.csv\"\nhosts = [1, 0]\nsource = \"muri\"\nqueue = 3\n"),
       "hosts: of a queue allowed: a number"},
      {with("name = \"x\"\ntrace = \"t.csv\"\nhosts = 2\nsource = \"muri\"\n"), "id: is missing"},
      {with(trace + "duty = 0.5\ncompute_ms = 3\n"), "compute_ms: says how long it computes, as duty does"},
      {with(trace + "urgency = \"background\"\n"), "urgency: is for jobs that train"},
      {"x = \"\"\"a\"\"\"\n", "jobs.toml:1: a text of several lines"},
      {"x = " + std::string(70, '['), "jobs.toml:1: more than 64 levels"}};
  for (const auto& [content, expected] : cases) {
    const auto jobs = parse_jobs(content, "jobs.toml");
    ASSERT_FALSE(jobs) << content;
    EXPECT_EQ(jobs.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(jobs.error().message, HasSubstr(expected));
    EXPECT_THAT(jobs.error().message, HasSubstr("jobs.toml"));
  }
  EXPECT_THAT(parse_jobs(with(train + "modle = 1\n"), "jobs.toml").error().message, StartsWith("jobs.toml:26: "));
  const auto missing = read_jobs_text("/nowhere/jobs.toml");
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("cannot read '/nowhere/jobs.toml'"));
}

}  // namespace
}  // namespace clustar::bench::ab::jobs
