// `clustar coflow` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "coflow/registry.h"
#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::bench::coflow {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using tests::Outcome;

Outcome run(const std::string& arguments) {
  return tests::run_command(std::string(CLUSTAR) + " coflow replay " + arguments);
}

Outcome run_sweep(const std::string& arguments) {
  return tests::run_command(std::string(CLUSTAR) + " coflow sweep " + arguments);
}

std::string content(const std::string& path) {
  std::ifstream stream(path);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(CoflowCommand, ComparesAllPolicies) {
  const std::string file = tests::temp_path("coflow", ".json");
  const Outcome outcome =
      run("--generate ports=8,coflows=30,load=0.9 --policy all --policy dclas:factor=8 --no-progress --json " + file);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  EXPECT_EQ(document["command"], "coflow replay");
  ASSERT_EQ(document["results"].size(), clustar::coflow::policies().size() + 1);
  for (const auto& row : document["results"]) {
    EXPECT_THAT(outcome.text, HasSubstr(row["policy"].get<std::string>()));
    EXPECT_EQ(row["coflows"], 30);
    for (const char* key : {"average_cct_s", "median_cct_s", "p95_cct_s", "p99_cct_s", "makespan_s", "sum_cct_ms"}) {
      EXPECT_GT(row[key].get<double>(), 0) << key;
    }
    EXPECT_EQ(row["rules"], "exact");
  }
  std::filesystem::remove(file);
}

TEST(CoflowCommand, ReadsATraceAndSaysWhatItsLoadIs) {
  const std::string file = tests::temp_path("trace", ".txt");
  std::ofstream(file) << "3 2\n1 0 1 0 1 1:10\n2 1000 1 0 1 2:10\n";
  for (const char* rules : {"exact", "coflowsim", "coflowsim-stock"}) {
    const Outcome outcome = run(file + " --policy sebf --no-progress --rules " + rules);
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("3 ports of 1"));
    EXPECT_THAT(outcome.text, HasSubstr("at the busiest port"));
  }
  std::filesystem::remove(file);
}

constexpr const char* kSmallAicb =
    "[rank0 ~ rank3]\ncomm_type,comm_group,comm_group_size,msg_size,stage,count\n"
    "CommType.all_reduce,CommGroup.dp_group,4,1000000,backward,1\n";

TEST(CoflowCommand, TakesAJobsFileAsATrace) {
  const std::string job = tests::temp_path("job", ".csv");
  std::ofstream(job) << "[rank0 ~ rank15]\ncomm_type,comm_group,comm_group_size,msg_size,stage,count\n"
                        "CommType.all_reduce,CommGroup.dp_group,16,1000000,backward,1\n";
  const Outcome outcome = run(job + " --policy turns --no-progress");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("1 job: "));
  const Outcome with_keys = run(job + " --muri ports=2 --no-progress");
  EXPECT_EQ(with_keys.status, 2) << with_keys.text;
  std::filesystem::remove(job);
}

TEST(CoflowCommand, RunsJobsAgainstEachOther) {
  const std::string job = tests::temp_path("job:a", ".csv"), json = tests::temp_path("jobs", ".json");
  std::ofstream(job) << kSmallAicb;
  const Outcome outcome = run(
      "--job " + job + ":ranks_per_port=2,iterations=5 --job " + job +
      ":ranks_per_port=1,duty=1,first_port=1 --policy maxmin --policy match --no-progress --per-coflow --json " + json);
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("2 jobs: 5 ports of 1 Gbit/s, rules exact, load 1.50 at the busiest port"));
  std::ifstream stream(json);
  const auto document = nlohmann::json::parse(stream);
  EXPECT_GT(document["workload"]["load"]["busiest"].get<double>(), 1);
  ASSERT_EQ(document["results"].size(), 2u);
  for (const auto& row : document["results"]) {
    ASSERT_EQ(row["jobs"].size(), 2u);
    EXPECT_EQ(row["jobs"][0]["iterations"], 5);
    EXPECT_EQ(row["jobs"][1]["iterations"], 10);
    EXPECT_NEAR(row["jobs"][0]["isolated_iteration_s"].get<double>(), 0.024, 1e-6);
    EXPECT_NEAR(row["jobs"][1]["isolated_iteration_s"].get<double>(), 0.012, 1e-6);
    for (const auto& one : row["jobs"]) {
      EXPECT_GE(one["slowdown"].get<double>(), 0.999);
      EXPECT_GE(one["p95_iteration_s"].get<double>(), one["mean_iteration_s"].get<double>() * 0.99);
      EXPECT_THAT(outcome.text, HasSubstr(one["name"].get<std::string>() + ": "));
    }
    ASSERT_EQ(row["per_coflow"].size(), 15u) << "one in each iteration";
    double first = 0;
    for (const auto& one : row["per_coflow"]) {
      first += one["label"] == 1 ? 1 : 0;
      EXPECT_GE(one["slowdown"].get<double>(), 0.999);
    }
    EXPECT_EQ(first, 5);
  }
  std::filesystem::remove(job);
  std::filesystem::remove(json);
}

TEST(CoflowCommand, RunsMurisTracesByTheirHeader) {
  const std::string file = tests::temp_path("muri", ".csv");
  std::ofstream(file) << "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
                         "1,2,0,50,bert,100,40\n2,2,0,50,vgg,100,40\n3,4,10,5,gpt,100,40\n4,1,0,9,idle,5,5\n";
  const Outcome outcome =
      run(file + " --muri ports=2,gpus_per_port=2,scale=10 --policy maxmin --policy match --no-progress");
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("2 ports of 1 Gbit/s and 2 GPUs, rules exact, load "));
  EXPECT_THAT(outcome.text, HasSubstr("4 jobs, first come first served"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("nan"))) << "a job that sends on one port only takes no time";
  const Outcome wrong = run(file + " --muri ports=1,gpus_per_port=2");
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.text, HasSubstr(":4: num_gpu is '4'; allowed: whole numbers from 1 to 2"));
  std::filesystem::remove(file);
}

TEST(CoflowCommand, WrongUsageOfJobsIsToldWithWhatIsAllowed) {
  const std::string job = tests::temp_path("wrong", ".csv"), trace = tests::temp_path("wrong", ".txt");
  std::ofstream(job) << kSmallAicb;
  std::ofstream(trace) << "2 1\n1 0 1 0 1 1:1\n";
  const std::string good = job + ":ranks_per_port=1";
  const struct {
    std::string arguments;
    const char* says;
  } cases[] = {
      {"--job /nowhere/a:b.csv:duty=1", "cannot read '/nowhere/a:b.csv': No such file"},
      {"--job " + good + " " + trace, "name a trace or --generate one, or name jobs"},
      {"--job " + good + " --generate ports=8", "name a trace or --generate one, or name jobs"},
      {"--job " + job + ":duty=2", "'duty=2' cannot be; allowed: ranks_per_port (whole, 1 to 65536)"},
      {"--job " + job, "ranks_per_port=8; allowed: 1 to 4, its ranks"},
      {"--job " + good + " --rules coflowsim", "--rules coflowsim; allowed with jobs: exact"},
      {"--job " + good + " --refill-ms 1", "--refill-ms is not for jobs"},
      {"--job " + good + " --muri ports=2", "--muri is for a trace of Muri"},
      {"--job " + good + " --policy sebf:deadlines=1", "no coflow has a deadline"},
      {"--job " + good + ",tflop=5 --job " + good, "tflop for 1 of 2 jobs; allowed: for all or none"},
      {"--job " + good + ",iterations=1000000,compute_ms=1000000000", "of simulated time; allowed: 1e+09"},
      {"--job " + trace, ":1: '2 1' where the ranks were expected"},
      {trace + " --muri ports=2", "--muri is for a trace of Muri"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = run(one.arguments + " --no-progress");
    EXPECT_EQ(outcome.status, 2) << one.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(one.says)) << one.arguments;
  }
  std::filesystem::remove(job);
  std::filesystem::remove(trace);
}

TEST(CoflowCommand, WrongUsageIsToldWithWhatIsAllowed) {
  const struct {
    const char* arguments;
    const char* says;
  } cases[] = {
      {"", "name a trace or --generate one"},
      {"/nowhere/trace.txt", "cannot read '/nowhere/trace.txt': No such file"},
      {"--generate ports=8 --policy varys", "there is no policy 'varys'; allowed: fifo"},
      {"--generate ports=1", "allowed: ports (2 to 4096)"},
      {"--policy match /nowhere/trace.txt", "cannot read '/nowhere/trace.txt'"},
      {"/tmp", "cannot read '/tmp'"},
      {"/dev/null", "empty; expected: ports coflows"},
      {"--generate ports=8 --rules coflowsim --gbps 10", "--gbps is for --rules exact"},
      {"--generate ports=8 --policy sebf:deadlines=1", "no coflow has a deadline"},
      {"--generate ports=8 --rules java", "--rules"},
      {"--generate ports=8 --gbps 0", "--gbps"},
      {"--generate ports=8 --json /nowhere/x.json", "/nowhere"},
      {"--generate ports=8 --report /nowhere/x.html", "/nowhere"},
      {"--generate ports=8 --json - --report -", "both name '-'"},
      {"--generate ports=8 --per-coflow", "--per-coflow is for what --json writes"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = run(one.arguments);
    EXPECT_EQ(outcome.status, 2) << one.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(one.says)) << one.arguments;
  }
  const std::string file = tests::temp_path("trace", ".txt");
  std::ofstream(file) << "2 1\n1 1 1 0 1 1:1e12\n";
  EXPECT_THAT(run(file).text, HasSubstr("of simulated time; allowed: 1e+09"));
  std::ofstream(file) << "3 1\n1 0 1 0 1 5:10\n";
  const Outcome outcome = run(file);
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.text, HasSubstr(":2: the rack of a reducer is '5'; allowed: whole numbers from 0 to 2"));
  std::filesystem::remove(file);
}

TEST(CoflowCommand, ReportDrawsTheSamePage) {
  const std::string json = tests::temp_path("coflow_page", ".json"), html = tests::temp_path("coflow_page", ".html");
  const std::string files = " --no-progress --json " + json + " --report " + html;
  for (const auto& outcome : {run("--generate ports=8,coflows=30 --policy match --policy maxmin --per-coflow" + files),
                              run_sweep("--generate ports=8,coflows=30 --loads 0.5,3 --seeds 2" + files)}) {
    EXPECT_EQ(outcome.status, 0) << outcome.text;
  }
  EXPECT_THAT(content(html), HasSubstr("coflow sweep --generate ports=8"));
  const Outcome drawn = tests::run_command(std::string(CLUSTAR) + " report " + json + " -o -");
  EXPECT_EQ(drawn.status, 0);
  EXPECT_EQ(drawn.text, content(html));
  std::filesystem::remove(json);
  std::filesystem::remove(html);
}

// The same page of jobs, too, which stays away from coflows.
TEST(CoflowCommand, ReportDrawsThePageOfJobs) {
  const std::string job = tests::temp_path("page_job", ".csv"), muri = tests::temp_path("page_muri", ".csv");
  const std::string json = tests::temp_path("job_page", ".json"), html = tests::temp_path("job_page", ".html");
  std::ofstream(job) << kSmallAicb;
  std::ofstream(muri) << "job_id,num_gpu,submit_time,iterations,model_name,iteration_time,resource_time_2\n"
                         "1,2,0,50,bert,100,40\n2,2,0,50,vgg,100,40\n3,4,10,5,gpt,100,40\n";
  const struct {
    std::string arguments;
    const char* says;
  } cases[] = {{"--job " + job + ":ranks_per_port=1 --job " + job + ":ranks_per_port=1", "2 training jobs"},
               {muri + " --muri ports=2,gpus_per_port=2,scale=10", "3 training jobs, first come first served"}};
  for (const auto& one : cases) {
    const Outcome made =
        run(one.arguments + " --policy maxmin --policy match --no-progress --json " + json + " --report " + html);
    EXPECT_EQ(made.status, 0) << made.text;
    EXPECT_THAT(content(html), HasSubstr(one.says));
    EXPECT_THAT(content(html), Not(HasSubstr("coflows")));
    const Outcome drawn = tests::run_command(std::string(CLUSTAR) + " report " + json + " -o -");
    EXPECT_EQ(drawn.status, 0);
    EXPECT_EQ(drawn.text, content(html));
  }
  for (const std::string& file : {job, muri, json, html}) std::filesystem::remove(file);
}

TEST(CoflowCommand, SweepsAndSaysWhatIsAllowed) {
  const Outcome good = run_sweep(
      "--generate ports=6,coflows=20 --loads 0.9,3 --seeds 2 --policy match "
      "--refill-ms 7 --json -");
  EXPECT_EQ(good.status, 0) << good.text;
  EXPECT_THAT(good.text, HasSubstr("\"command\": \"coflow sweep\""));
  EXPECT_THAT(good.text, HasSubstr("\"refill_ms\": 7.0"));
  EXPECT_THAT(good.text, HasSubstr("[4/4] load 3, seed 2: maxmin/ match"));
  const struct {
    const char* arguments;
    const char* says;
  } cases[] = {
      {"--loads 0.5,200", "'200' cannot be; allowed: numbers from 0.001 to 100"},
      {"--seeds 0", "'0' is not a number from 1 to 1000"},
      {"--seeds 2000", "'2000' is not a number from 1 to 1000"},
      {"--policy varys", "there is no policy 'varys'; allowed: fifo"},
      {"--generate ports=8,load=0.9", "'load=0.9' contradicts --loads"},
      {"--generate seed=3", "'seed=3' contradicts --seeds"},
      {"--generate ports=8,coflows=0", "allowed: ports (2 to 4096)"},
      {"--report /nowhere/x.html", "/nowhere"},
      {"--refill-ms -1", "'-1' is not a number from 0 to"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = run_sweep(one.arguments);
    EXPECT_EQ(outcome.status, 2) << one.arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(one.says)) << one.arguments;
  }
}

// Ctrl-C ends it at once, and nothing is written.
TEST(CoflowCommand, AnInterruptedSweepLeavesNoFile) {
  const std::string json = tests::temp_path("interrupted", ".json"), html = tests::temp_path("interrupted", ".html");
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = tests::run_command("timeout -s INT 0.5 " + std::string(CLUSTAR) +
                                             " coflow sweep --seeds 1000 --json " + json + " --report " + html);
  EXPECT_EQ(outcome.status, 124) << outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(std::filesystem::exists(json));
  EXPECT_FALSE(std::filesystem::exists(html));
}

TEST(CoflowCommand, AnUnknownCommandIsToldWhatThereIs) {
  for (const char* words : {"", " coflow", " coflow x", " coflw"}) {
    const Outcome outcome = tests::run_command(std::string(CLUSTAR) + words);
    EXPECT_EQ(outcome.status, 2) << words;
    EXPECT_THAT(outcome.text, HasSubstr(" allowed: ")) << words;
    EXPECT_THAT(outcome.text, HasSubstr("Example: clustar ")) << words;
  }
  EXPECT_THAT(tests::run_command(std::string(CLUSTAR) + " coflow").text, HasSubstr("Example: clustar coflow replay "));
  EXPECT_THAT(tests::run_command(std::string(CLUSTAR) + " coflow x").text,
              HasSubstr("clustar coflow: there is no command 'x'; allowed: play, replay, sweep\n"));
}

TEST(CoflowCommand, HelpNamesThePoliciesAndHasAnExample) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.text, HasSubstr("Example: clustar coflow replay"));
  for (const auto& one : clustar::coflow::policies()) EXPECT_THAT(outcome.text, HasSubstr(std::string(one.name)));
}

}  // namespace
}  // namespace clustar::bench::coflow
