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
      {"--generate ports=8 --html /nowhere/x.html", "/nowhere"},
      {"--generate ports=8 --json - --html -", "both name '-'"},
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
  const std::string files = " --no-progress --json " + json + " --html " + html;
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

TEST(CoflowCommand, SweepsAndSaysWhatIsAllowed) {
  const Outcome good = run_sweep("--generate ports=6,coflows=20 --loads 0.9,3 --seeds 2 --policy match --json -");
  EXPECT_EQ(good.status, 0) << good.text;
  EXPECT_THAT(good.text, HasSubstr("\"command\": \"coflow sweep\""));
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
      {"--html /nowhere/x.html", "/nowhere"},
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
                                             " coflow sweep --seeds 1000 --json " + json + " --html " + html);
  EXPECT_EQ(outcome.status, 124) << outcome.text;
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  EXPECT_FALSE(std::filesystem::exists(json));
  EXPECT_FALSE(std::filesystem::exists(html));
}

TEST(CoflowCommand, HelpNamesThePoliciesAndHasAnExample) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.text, HasSubstr("Example: clustar coflow replay"));
  for (const auto& one : clustar::coflow::policies()) EXPECT_THAT(outcome.text, HasSubstr(std::string(one.name)));
}

}  // namespace
}  // namespace clustar::bench::coflow
