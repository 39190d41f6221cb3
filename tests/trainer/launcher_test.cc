// The launcher with shell scripts for ranks: every way a rank can end.
#include "bench/trainer/launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Clock = std::chrono::steady_clock;

constexpr const char* kSleepLong = "exec sleep 60";
constexpr const char* kIgnoreTerm = "trap '' TERM; while :; do sleep 0.05; done";
constexpr const char* kReportRemote = R"(sleep 0.1; echo '{"error":{"code":4,"message":"lost its peer"}}' >&3; exit 1)";

LaunchOptions scripts(const std::vector<std::string>& by_rank) {
  LaunchOptions options;
  options.ranks = static_cast<int>(by_rank.size());
  options.executable = "/bin/sh";
  options.arguments = [by_rank](int rank) {
    return std::vector<std::string>{"sh", "-c", by_rank[static_cast<std::size_t>(rank)]};
  };
  options.settle = std::chrono::milliseconds(300);
  options.terminate = std::chrono::milliseconds(300);
  return options;
}

std::string error_of(const LaunchOptions& options) {
  const auto start = Clock::now();
  const auto result = launch(options);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  // All ranks are gone, and none is a zombie: this process has no child left.
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
  return result ? "" : result.error().message;
}

TEST(Launcher, AllWell) { EXPECT_EQ(error_of(scripts({"exit 0", "exit 0", "exit 0"})), ""); }

TEST(Launcher, RecordsArriveInOrderAndRubbishIsLeftOut) {
  std::map<int, std::vector<int>> seen;
  LaunchOptions options = scripts({R"(echo '{"n":1}' >&3; echo rubbish >&3; echo '[7]' >&3; printf '{"n"' >&3;
                                     sleep 0.1; echo ':2}' >&3)",
                                   R"(echo '{"n":3}' >&3)"});
  options.on_record = [&](int rank, const nlohmann::json& record) { seen[rank].push_back(record["n"].get<int>()); };
  EXPECT_EQ(error_of(options), "");
  EXPECT_THAT(seen[0], ::testing::ElementsAre(1, 2));
  EXPECT_THAT(seen[1], ::testing::ElementsAre(3));
}

TEST(Launcher, AKilledRankEndsTheOthersAndIsNamed) {
  EXPECT_THAT(error_of(scripts({kSleepLong, kSleepLong, "kill -9 $$"})),
              AllOf(HasSubstr("rank 2 was killed by signal 9"), HasSubstr("the other ranks were ended")));
}

TEST(Launcher, TheCauseIsNamedRatherThanThoseWhoLostIt) {
  LaunchOptions killed = scripts({kReportRemote, "sleep 0.2; kill -SEGV $$", kReportRemote});
  LaunchOptions full =
      scripts({kReportRemote, R"(sleep 0.2; echo '{"error":{"code":3,"message":"disk full"}}' >&3; exit 1)"});
  killed.settle = full.settle = std::chrono::seconds(5);
  EXPECT_THAT(error_of(killed), AllOf(HasSubstr("rank 1 was killed by signal 11"), Not(HasSubstr("lost its peer"))));
  EXPECT_THAT(error_of(full), AllOf(HasSubstr("rank 1 failed (exit status 1): disk full")));
}

TEST(Launcher, AnErrorWithoutReportHasTheExitStatus) {
  EXPECT_THAT(error_of(scripts({kSleepLong, "exit 7"})), HasSubstr("rank 1 ended with exit status 7 and no report"));
}

TEST(Launcher, ARankThatIgnoresTermIsKilled) {
  EXPECT_THAT(error_of(scripts({kIgnoreTerm, "exit 3"})), HasSubstr("rank 1 ended with exit status 3"));
}

TEST(Launcher, ARankThatDoesNotEndWithTheOthersIsNamed) {
  LaunchOptions options = scripts({"exit 0", kSleepLong});
  options.finish = std::chrono::milliseconds(200);
  EXPECT_THAT(error_of(options), HasSubstr("rank 1 did not end"));
}

TEST(Launcher, AnExecutableThatIsNotThere) {
  LaunchOptions options = scripts({"", ""});
  options.executable = "/nonexistent/clustar";
  EXPECT_THAT(error_of(options), AllOf(HasSubstr("cannot start rank 0"), HasSubstr("No such file")));
}

TEST(Launcher, AnInterruptEndsAll) {
  LaunchOptions options = scripts({"echo '{}' >&3; exec sleep 60", kSleepLong, kIgnoreTerm});
  options.on_record = [](int, const nlohmann::json&) { raise(SIGINT); };
  EXPECT_THAT(error_of(options), HasSubstr("interrupted by signal 2"));
}

TEST(Launcher, TheEnvironmentAndTheSignalMaskReachTheRanks) {
  setenv("CLUSTAR_LAUNCHER_TEST", "as it is", 1);
  std::vector<nlohmann::json> seen;
  LaunchOptions options = scripts(
      {R"sh(printf '{"env":"%s","mask":"%s"}\n' "$CLUSTAR_LAUNCHER_TEST" "$(grep SigBlk /proc/self/status | cut -f2)" >&3)sh"});
  options.on_record = [&](int, const nlohmann::json& record) { seen.push_back(record); };
  EXPECT_EQ(error_of(options), "");
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0]["env"], "as it is");
  EXPECT_EQ(seen[0]["mask"], "0000000000000000");
  unsetenv("CLUSTAR_LAUNCHER_TEST");
}

}  // namespace
}  // namespace clustar::bench::trainer
