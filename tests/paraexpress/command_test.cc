// `clustar plan` as a user runs it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::bench::paraexpress {
namespace {

using ::testing::HasSubstr;

tests::Outcome plan(const std::string& arguments) {
  return tests::run_command(std::string(CLUSTAR) + " plan " + arguments);
}

TEST(PlanCommand, shows_every_plan_and_the_choice) {
  const std::string file = tests::temp_path("plan", ".json");
  const auto outcome = plan(
      "--ranks 16 --helpers 2 --region-size 9 --oversubscription 4 --order random --size 4KiB,1MiB --json " + file);
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  for (const char* word : {"direct", "sharded", "server", "ring", "double-tree", "hierarchical", "ring by number",
                           "placement:", "modelled", "simulated"}) {
    EXPECT_THAT(outcome.text, HasSubstr(word));
  }
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  EXPECT_EQ(document["command"], "plan");
  const auto& results = document["results"];
  EXPECT_EQ(results["ranks"], 16);
  EXPECT_EQ(results["regions"].size(), 2u);
  ASSERT_EQ(results["sizes"].size(), 2u);
  for (const auto& size : results["sizes"]) {
    double least = 0, chosen = -1;
    for (const auto& row : size["plans"]) {
      EXPECT_GT(row["simulated_us"].get<double>(), 0);
      const double time = row["modelled_us"];
      if (row["candidate"] && (least == 0 || time < least)) least = time;
      if (row["plan"] == size["chosen"]) chosen = time;
    }
    EXPECT_EQ(chosen, least);
    EXPECT_TRUE(size["placement"].contains("hint"));
  }
  std::filesystem::remove(file);
}

TEST(PlanCommand, reads_a_file_of_regions_and_names_the_line_that_is_wrong) {
  const std::string file = tests::temp_path("regions", ".txt");
  std::ofstream(file) << "# two racks\na ranks=0-3 oversubscription=4 hosts=8\nb ranks=4-7 helpers=0\n";
  const auto good = plan("--ranks 8 --helpers 1 --size 1MiB --late 3=5ms --regions " + file);
  EXPECT_EQ(good.status, 0) << good.text;
  EXPECT_THAT(good.text, HasSubstr("2 regions"));
  const auto bad = plan("--ranks 9 --helpers 1 --regions " + file);
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.text, HasSubstr("rank 8 is in no region; allowed:"));
  std::ofstream(file) << "a ranks=0-8\n";
  EXPECT_THAT(plan("--ranks 8 --regions " + file).text,
              HasSubstr(file + ":1: ranks=0-8; allowed: numbers from 0 to 7"));
  std::filesystem::remove(file);
}

TEST(PlanCommand, refuses_wrong_values_with_what_is_allowed) {
  const auto refused = [](const std::string& arguments, const std::string& says) {
    const auto outcome = plan(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(says)) << arguments;
  };
  refused("--ranks 0", "a number from 1 to 4096");
  refused("--ranks 4097", "a number from 1 to 4096");
  refused("--oversubscription 0.5 --region-size 2", "a number from 1 to 1000");
  refused("--oversubscription 2", "allowed: with --region-size N");
  refused("--regions x --region-size 2", "allowed: without --region-size");
  refused("--regions /nowhere/regions", "/nowhere/regions");
  refused("--size 0", "allowed: up to 64 sizes");
  refused("--size 4KiB,", "not a size");
  for (const char* rate : {"off", "fast", "1", "999k", "1.7T", "-1G", "40Gx"}) {
    refused(std::string("--bandwidth=") + rate, "is not a rate of a NIC; allowed: 1M to 1.6T in bit/s, as 200M");
  }
  refused("--latency 1h", "--latency: '1h' is not a delay");
  refused("--late 8=1ms", "ranks 0 to 7");
  for (const char* late : {"1", "1=", "0=61s", "0=1h", "0=5", "=5ms", "-1=5ms"}) {
    refused(std::string("--late=") + late,
            fmt::format("--late: '{}' is no late rank; allowed: RANK=TIME, as 3=5ms, ranks 0 to 7, times 0 to 60s in",
                        late));
  }
  refused("--order sorted", "is none of given, random, in-turn");
  refused("--grid --ranks 4", "excludes");
}

TEST(PlanCommand, takes_fast_nics_and_ranks_that_are_very_late) {
  const auto outcome = plan("--ranks 4 --size 1MiB --bandwidth 1.6Tbit/s --late 0=1s --late 1=60S");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("NICs of 1600 Gbit/s"));
  EXPECT_THAT(outcome.text, HasSubstr("60.000 s"));
  EXPECT_THAT(plan("--bandwidth 800G --no-simulation").text, HasSubstr("NICs of 800 Gbit/s"));
}

TEST(PlanCommand, says_what_the_simulation_cuts_and_leaves_out) {
  const auto cut = plan("--ranks 64 --size 256MiB").text;
  EXPECT_THAT(cut, HasSubstr("double-tree: simulated with 64 chunks of 2097.2 kB per shard in place of 1024\n"));
  EXPECT_THAT(cut, HasSubstr("(now "));
  const auto left_out = plan("--ranks 2 --helpers 4096 --size 1024GiB").text;
  EXPECT_THAT(left_out, HasSubstr("sharded: not simulated: too many messages or members\n"));
  EXPECT_THAT(plan("--ranks 1 --size 1").text, HasSubstr("1 rank, 0 helpers, 1 region;"));
}

TEST(PlanCommand, one_rank_and_no_simulation) {
  EXPECT_EQ(plan("--ranks 1 --size 1").status, 0);
  const auto outcome = plan("--ranks 64 --no-simulation --json -");
  ASSERT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_TRUE(nlohmann::json::parse(outcome.text)["results"]["sizes"][0]["plans"][0]["simulated_us"].is_null());
  EXPECT_THAT(plan("--help").text, HasSubstr("Example: clustar plan"));
}

}  // namespace
}  // namespace clustar::bench::paraexpress
