// `clustar plan --live` as a user runs it: real bytes on a small fabric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/left_hosts.h"
#include "tests/run_command.h"
#include "tests/sanitized.h"
#include "tests/temp_path.h"

namespace clustar::bench::paraexpress {
namespace {

using ::testing::HasSubstr;

tests::Outcome plan(const std::string& arguments, const std::string& before = "") {
  return tests::run_command(before + std::string(CLUSTAR) + " plan " + arguments);
}

bool can_make_hosts() { return tests::run_command("unshare --net true").status == 0; }

TEST(PlanLive, measures_every_plan_on_a_fabric_of_its_own) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  for (const char* transport : {"tcp", "mlt"}) {
    const std::string file = tests::temp_path("live", ".json");
    const auto outcome = plan(
        std::string("--ranks 4 --region-size 2 --oversubscription 2 --size 4,100KiB --bandwidth 100M --live 2 --delay "
                    "100us --env CLUSTAR_TRANSPORT=") +
        transport + " --json " + file);
    ASSERT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("measured: real bytes, 100M per host, 2 rounds"));
    std::ifstream stream(file);
    const auto live = nlohmann::json::parse(stream)["results"]["live"];
    std::filesystem::remove(file);
    EXPECT_EQ(live["rate_bps"], 100'000'000);
    ASSERT_EQ(live["sizes"].size(), 2U);
    for (const auto& size : live["sizes"]) {
      ASSERT_EQ(size["plans"].size(), 6U) << "all but sharded, and auto";
      for (const auto& one : size["plans"]) {
        ASSERT_EQ(one["seconds"].size(), 2U) << one["plan"];
        // Nothing is faster than its line, but for what the shaper lets through at once.
        const double bytes = size["bytes"];
        EXPECT_GT(one["seconds"][0].get<double>(), (bytes - 60'000) / 12.5e6) << one["plan"];
        EXPECT_EQ(one["chosen"].is_null(), one["plan"] != "auto");
      }
    }
  }
}

TEST(PlanLive, HelpersHaveHostsOfTheirOwn) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string file = tests::temp_path("helped", ".json");
  const auto outcome = plan(
      "--ranks 3 --helpers 2 --size 4,100KiB --bandwidth 100M --live 2 --plans direct,sharded,auto --no-simulation "
      "--env CLUSTAR_TRANSPORT=tcp --json " +
      file);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  std::ifstream stream(file);
  const auto results = nlohmann::json::parse(stream)["results"];
  std::filesystem::remove(file);
  EXPECT_EQ(results["helpers"], 2);
  for (const auto& size : results["live"]["sizes"]) {
    ASSERT_EQ(size["plans"].size(), 3U);
    EXPECT_EQ(size["plans"][1]["plan"], "sharded");
    for (const auto& one : size["plans"]) EXPECT_EQ(one["seconds"].size(), 2U) << one["plan"];
  }
  EXPECT_EQ(tests::left_hosts("plan"), "");
}

// On a busy machine the times may be unclear, which gives one region; a wrong map is never right.
TEST(PlanLive, ProbingNeverGivesAWrongMap) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const std::string file = tests::temp_path("probe", ".json");
  const auto outcome = plan(
      "--ranks 8 --region-size 4 --oversubscription 4 --order in-turn --regions probe --size 4 --bandwidth 50M --delay "
      "1ms --live 1 --plans ring --no-simulation --env CLUSTAR_TRANSPORT=tcp --json " +
      file);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("regions found"));
  std::ifstream stream(file);
  const auto regions = nlohmann::json::parse(stream)["results"]["live"]["regions"];
  std::filesystem::remove(file);
  EXPECT_THAT(regions["true"], HasSubstr("ranks=0,2,4,6 hosts=4 oversubscription=4.0"));
  const std::string found = regions["found"];
  const auto lines = std::count(found.begin(), found.end(), '\n');
  EXPECT_EQ(regions["right"], lines == 2) << found;
  EXPECT_THAT(lines, ::testing::AnyOf(1, 2)) << found;
}

// That order has a file per NIC in shared memory while it is in force.
TEST(PlanLive, the_order_of_coflows_reaches_the_ranks) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  for (const char* order : {"coflow", "fifo"}) {
    const auto outcome =
        plan(std::string("--ranks 2 --size 4 --live 1 --plans ring --no-simulation --env CLUSTAR_TRANSPORT=tcp,"
                         "CLUSTAR_SEND_ORDER=") +
                 order,
             "unshare --mount sh -c 'mount -t tmpfs none /dev/shm; \"$@\" & seen=no; while kill -0 $! 2>/dev/null; do "
             "test -z \"$(ls /dev/shm)\" || seen=yes; done; wait $! && echo shared: $seen' x ");
    EXPECT_EQ(outcome.status, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(std::string(order) == "coflow" ? "shared: yes" : "shared: no"));
  }
}

TEST(PlanLive, CtrlCEndsItAndLeavesNothing) {
  if (!can_make_hosts()) GTEST_SKIP() << "network namespaces need root";
  const auto outcome = plan(
      "--ranks 3 --size 64MiB --bandwidth 20M --live 50 --no-simulation",
      tests::kSanitized ? "timeout --preserve-status -s INT -k 30 8 " : "timeout --preserve-status -s INT -k 30 3 ");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, HasSubstr("interrupted"));
  EXPECT_EQ(tests::left_hosts("plan"), "");
}

TEST(PlanLive, wrong_usage_says_what_is_allowed) {
  const auto refused = [](const std::string& arguments, const std::string& says) {
    const auto outcome = plan(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
  };
  refused("--live 0", "a number from 1 to 1000");
  refused("--live 1 --ranks 33", "allowed with --live: 2 to 32");
  refused("--live 1 --ranks 1", "allowed with --live: 2 to 32");
  refused("--live 1 --helpers 17", "17 helpers; allowed with --live: 0 to 16");
  refused("--live 1 --helpers 1 --regions probe", "and none with --regions probe");
  refused("--live 1 --size 2", "allowed with --live: 4 to");
  refused("--live 1 --region-size 4 --oversubscription 1000 --bandwidth 1M", "the uplink of region");
  refused("--live 1 --delay long", "--delay");
  refused("--live 1 --env CLUSTAR_TRANSPRT=mlt", "CLUSTAR_TRANSPORT");
  refused("--live 1 --plans ring,tree --ranks 4", "allowed for these ranks: direct, server, ring, double-tree, auto");
  refused("--delay 1ms", "--live");
  refused("--regions probe", "allowed: with --live");
  refused("--live 2 --grid", "excludes");
}

}  // namespace
}  // namespace clustar::bench::paraexpress
