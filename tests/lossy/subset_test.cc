// All scenarios of `clustar perf --suite lossy` with few rounds: that each measures, loses nothing and can be drawn.
// What it says about speed is worth nothing.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/lossy/scenario.h"
#include "tests/lossy/needs_fabric.h"
#include "tests/trainer/command.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

using LossySubset = NeedsLossyFabric;

void check_arm(const json& arm) {
  ASSERT_FALSE(arm.contains("failure")) << arm;
  // A kernel without bbr, or whose minimum RTO cannot be set, leaves those arms out, and says so.
  if (arm.contains("skipped")) {
    EXPECT_FALSE(arm["skipped"].get<std::string>().empty());
    EXPECT_NE(arm["transport"], "mlt") << arm;
    return;
  }
  EXPECT_GT(arm["rounds"], 0) << arm;
  for (const char* key : {"p50_ms", "p99_ms", "goodput_gbps", "cpu_s_per_gbit", "delivered_bytes"}) {
    ASSERT_TRUE(arm[key].is_number()) << key << ": " << arm;
    EXPECT_GT(arm[key].get<double>(), 0) << key << ": " << arm;
  }
  EXPECT_TRUE(arm["p999_ms"].is_null()) << arm;
  EXPECT_EQ(arm["indicative"], true) << arm;
  EXPECT_EQ(arm["switch"]["super_packets"], 0) << "the hosts' packets are those of the wire";
  EXPECT_LE(arm["switch"]["largest_bytes"], 1514) << arm;
  if (arm["eligible_bytes"] == 0) {
    EXPECT_EQ(arm["missing_bytes"], 0) << "it is reliable: " << arm;
  }
}

TEST_F(LossySubset, EveryScenarioHasItsFigures) {
  const trainer::TemporaryDirectory folder;
  const trainer::Outcome outcome =
      trainer::run_clustar({"perf", "--suite", "lossy", "--quick", "--rounds", "2", "--json", folder.file("r.json"),
                            "--report", folder.file("r.html")});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const json results = folder.read_json("r.json")["results"];
  const auto wanted = scenarios(false);
  ASSERT_EQ(results["scenarios"].size(), wanted.size());
  std::ifstream page(folder.file("r.html"));
  const std::string html{std::istreambuf_iterator<char>(page), {}};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE(wanted[i].name);
    const json& scenario = results["scenarios"][i];
    EXPECT_EQ(scenario["name"], wanted[i].name);
    EXPECT_NE(html.find(wanted[i].title), std::string::npos);
    // A kernel without routers leaves one out, and says so.
    if (scenario.contains("skipped")) {
      EXPECT_FALSE(scenario["skipped"].get<std::string>().empty());
      continue;
    }
    EXPECT_EQ(scenario["rounds"], 2);
    EXPECT_GT(scenario["ideal_ms"].get<double>(), 0);
    EXPECT_EQ(scenario["bars"].size(), wanted[i].bars.size());
    ASSERT_EQ(scenario["arms"].size(), wanted[i].quick_arms.size());
    for (const json& arm : scenario["arms"]) check_arm(arm);
  }
}

}  // namespace
}  // namespace clustar::bench::lossy
