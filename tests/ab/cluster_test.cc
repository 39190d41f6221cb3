// What mpirun, torchrun and srun are told, and a program of somebody else's that is run to its end.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/ab/cluster/program.h"
#include "bench/ab/cluster/ranks.h"
#include "bench/ab/cluster/starter.h"
#include "tests/trainer/command.h"

namespace clustar::bench::ab::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

TEST(AbClusterWords, AreTakenApartAsByAShell) {
  EXPECT_EQ(split_words("").value(), Words{});
  EXPECT_EQ(split_words("  a  b\tc ").value(), (Words{"a", "b", "c"}));
  EXPECT_EQ(split_words(R"(--mca x 'a b' "c \" d"e f\ g '' '\')").value(),
            (Words{"--mca", "x", "a b", "c \" de", "f g", "", "\\"}));
  const auto open = split_words("--mca 'x");
  ASSERT_FALSE(open);
  EXPECT_THAT(open.error().message, HasSubstr("no end"));
}

TEST(AbClusterRoot, IsAHostAndMayHaveAPort) {
  Spec spec;
  ASSERT_TRUE(set_root("node1", spec));
  EXPECT_EQ(spec.root_host, "node1");
  EXPECT_EQ(spec.root_port, 29500);
  ASSERT_TRUE(set_root("10.0.0.1:5000", spec));
  EXPECT_EQ(spec.root_host, "10.0.0.1");
  EXPECT_EQ(spec.root_port, 5000);
  ASSERT_TRUE(set_root("[fd00::1]:6000", spec));
  EXPECT_EQ(spec.root_host, "[fd00::1]");
  ASSERT_TRUE(set_root("[fd00::1]", spec));
  EXPECT_EQ(spec.root_host, "[fd00::1]");
  for (const char* wrong : {"node1:", "node1:0", "node1:65536", "node1:x", ":29500", "fd00::1", "[fd00::1", ""}) {
    EXPECT_FALSE(set_root(wrong, spec)) << wrong;
  }
}

TEST(AbClusterWords, OfEachLauncher) {
  const Spec mpirun{.starter = Starter::kMpirun, .version = {}, .more = {"--hostfile", "f"}, .root_host = "h"};
  EXPECT_THAT(words_of(mpirun, 8, {"A", "B"}, ""),
              ElementsAre("mpirun", "-n", "8", "-x", "A", "-x", "B", "--hostfile", "f"));
  const Spec torchrun{.starter = Starter::kTorchrun, .version = {}, .more = {}, .root_host = {}};
  EXPECT_THAT(words_of(torchrun, 2, {"A"}, "1234"),
              ElementsAre("torchrun", "--nnodes=1", "--nproc_per_node=2", "--max_restarts=0", "--master_addr=127.0.0.1",
                          "--master_port=1234", "--no_python"));
  const Spec srun{.starter = Starter::kSrun, .version = {}, .more = {"-p", "gpu"}, .root_host = "h"};
  EXPECT_THAT(words_of(srun, 4, {"A"}, ""),
              ElementsAre("srun", "--ntasks=4", "--export=ALL", "--kill-on-bad-exit=1", "-p", "gpu"));
  const Training training{.program = "/opt/clustar",
                          .arguments = {"--model", "lr"},
                          .environment = {{"CLUSTAR_X", "1,2"}},
                          .ranks = 2,
                          .root = "h:7",
                          .port = {}};
  EXPECT_THAT(command_of(mpirun, training),
              ElementsAre("mpirun", "-n", "2", "-x", "CLUSTAR_X", "--hostfile", "f", "/opt/clustar", "train",
                          "--launcher", "env", "--root", "h:7", "--report-fd", "1", "--model", "lr"));
}

TEST(AbClusterRemedy, KnowsTheLaunchersWords) {
  EXPECT_THAT(remedy(Starter::kMpirun, "There are not enough slots available in the system"), HasSubstr("slots="));
  EXPECT_THAT(remedy(Starter::kMpirun, "mpirun has detected ... --allow-run-as-root option"), HasSubstr("as root"));
  EXPECT_EQ(remedy(Starter::kSrun, "There are not enough slots available"), "");
  EXPECT_EQ(remedy(Starter::kMpirun, "something else"), "");
}

ProgramOptions shell(const std::string& script) {
  return {.words = {"sh", "-c", script}, .environment = {}, .on_line = {}, .limit = std::chrono::seconds(20)};
}

TEST(AbClusterProgram, LinesLastWordsEnvironmentAndStatus) {
  ProgramOptions options = shell("echo one; echo \"$CLUSTAR_TEST_X\"; echo wrong >&2; echo -----; printf last; exit 3");
  options.environment = {{"CLUSTAR_TEST_X", "a;b,c"}};
  Words lines;
  options.on_line = [&](const std::string& line) {
    lines.push_back(line);
    return line != "last";
  };
  const auto end = run_program(options);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status, 3);
  EXPECT_EQ(lines, (Words{"one", "a;b,c", "-----", "last"}));
  EXPECT_THAT(end->last_words, AllOf(HasSubstr("wrong\n"), HasSubstr("last\n")));
  EXPECT_FALSE(end->over_time);
}

TEST(AbClusterProgram, MuchIsReadAndTheLastOfItKept) {
  ProgramOptions options =
      shell("head -c 3000000 /dev/zero | tr '\\0' x; echo; yes nonsense | head -n 100000 >&2; echo end >&2");
  std::size_t longest = 0;
  options.on_line = [&](const std::string& line) {
    longest = std::max(longest, line.size());
    return true;
  };
  const auto end = run_program(options);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status, 0);
  EXPECT_EQ(longest, 3000000u);
  EXPECT_LT(end->last_words.size(), 9000u);
  EXPECT_TRUE(end->last_words.ends_with("nonsense\nend\n"));
}

TEST(AbClusterProgram, EndsAtItsLimitEvenIfItIgnoresSigterm) {
  ProgramOptions options = shell("trap '' TERM; echo begun >&2; while :; do sleep 0.1; done");
  options.limit = std::chrono::seconds(1);
  options.patience = std::chrono::milliseconds(300);
  const Clock::time_point begin = Clock::now();
  const auto end = run_program(options);
  ASSERT_TRUE(end);
  EXPECT_TRUE(end->over_time);
  EXPECT_EQ(end->signal, SIGKILL);
  EXPECT_THAT(end->last_words, HasSubstr("begun"));
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(10));
}

TEST(AbClusterProgram, AnInterruptEndsItInItsOwnWay) {
  ProgramOptions options = shell("trap 'echo ended in order >&2; exit 9' TERM; while :; do sleep 0.05; done");
  const Clock::time_point begin = Clock::now();
  options.interrupted = [&] { return Clock::now() - begin > std::chrono::milliseconds(300) ? SIGINT : 0; };
  const auto end = run_program(options);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->interrupted, SIGINT);
  EXPECT_EQ(end->status, 9);
  EXPECT_THAT(end->last_words, HasSubstr("ended in order"));
}

TEST(AbClusterProgram, WhatItLeavesBehindDoesNotHoldUsUp) {
  // The sleeper has its pipes.
  ProgramOptions options = shell("sleep 5 & echo done");
  const Clock::time_point begin = Clock::now();
  const auto end = run_program(options);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status, 0);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(4));
}

TEST(AbClusterProgram, OneThatIsNotThere) {
  const auto end = run_program({.words = {"clustar-no-such-program"}, .environment = {}, .on_line = {}});
  ASSERT_TRUE(end);
  EXPECT_EQ(end->status, 127);
  EXPECT_THAT(end->last_words, HasSubstr("cannot start clustar-no-such-program"));
  EXPECT_FALSE(on_path("clustar-no-such-program"));
  EXPECT_TRUE(on_path("sh"));
}

// A launcher that writes what the script says, and nothing else: what becomes of records, errors and last words.
class AbClusterTraining : public testing::Test {
 protected:
  void SetUp() override { path_ = std::getenv("PATH"); }
  void TearDown() override { setenv("PATH", path_.c_str(), 1); }

  Result<nlohmann::json> train_by(const std::string& script) {
    folder_.write("mpirun", "#!/bin/sh\n" + script + "\n");
    std::filesystem::permissions(folder_.file("mpirun"), std::filesystem::perms::owner_all);
    setenv("PATH", (folder_.path() + ":" + path_).c_str(), 1);
    const Spec spec{.starter = Starter::kMpirun, .version = {}, .more = {}, .root_host = "h"};
    return train(spec, {.program = "clustar",
                        .arguments = {},
                        .environment = {},
                        .ranks = 2,
                        .root = "h:1",
                        .port = {},
                        .limit = std::chrono::seconds(20)});
  }

  trainer::TemporaryDirectory folder_;
  std::string path_;
};

TEST_F(AbClusterTraining, GivesResultsAndPlaces) {
  const auto results = train_by(R"(echo '{"place":{"rank":1,"host":"b","network":7}}'
echo a banner
echo '{"place":{"rank":0,"host":"a","network":7}}'
echo '{"results":{"images_per_second":5}}')");
  ASSERT_TRUE(results);
  EXPECT_EQ((*results)["images_per_second"], 5);
  EXPECT_EQ((*results)["hosts"][0]["host"], "a");
  EXPECT_EQ((*results)["hosts"][1]["host"], "b");
  EXPECT_EQ(count_places((*results)["hosts"]), 2u);
}

TEST_F(AbClusterTraining, NamesTheRankThatFailedAndNotTheOneThatLostIt) {
  const auto lost = fmt::format(R"(echo '{{"error":{{"code":{},"message":"lost rank 1"}},"rank":0}}')",
                                static_cast<int>(ErrorCode::kRemote));
  const auto cause = fmt::format(R"(echo '{{"error":{{"code":{},"message":"no such device"}},"rank":1}}')",
                                 static_cast<int>(ErrorCode::kUnavailable));
  for (const std::string& script : {lost + "\n" + cause, cause + "\n" + lost}) {
    const auto results = train_by(script + "\nexit 1");
    ASSERT_FALSE(results);
    EXPECT_EQ(results.error().message, "rank 1 failed: no such device");
  }
}

TEST_F(AbClusterTraining, ReportsTheLaunchersLastWordsAndWhatToDo) {
  const auto refused = train_by("for i in $(seq 100); do echo line $i >&2; done; echo not enough slots >&2; exit 213");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("mpirun ended with exit status 213; its last words:\nline 90\n"),
                                             HasSubstr("not enough slots\nWhat to do: "), HasSubstr("slots=")));
  const auto silent = train_by("exit 0");
  ASSERT_FALSE(silent);
  EXPECT_THAT(silent.error().message, HasSubstr("exit status 0, and rank 0 reported no results"));
  // Results before a rank failed are of no run.
  EXPECT_FALSE(train_by(R"(echo '{"results":{"images_per_second":5}}'; exit 1)"));
}

}  // namespace
}  // namespace clustar::bench::ab::cluster
