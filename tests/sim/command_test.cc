// clustar-sim as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/run_command.h"
#include "tests/temp_path.h"

namespace clustar::bench::sim {
namespace {

using ::testing::HasSubstr;

using tests::Outcome;

Outcome run(const std::string& arguments) { return tests::run_command(std::string(CLUSTAR_SIM) + " " + arguments); }

TEST(SimCommand, ExperimentsRunAndTheTableAndTheJsonSayTheSame) {
  const auto file = std::filesystem::path(tests::temp_path("sim", ".json"));
  const Outcome outcome = run("--quick --experiment incast,mice,micro-bursts,plans,scale --json " + file.string());
  EXPECT_EQ(outcome.status, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("posted before"));
  EXPECT_THAT(outcome.text, HasSubstr(": met]"));
  std::ifstream stream(file);
  const auto document = nlohmann::json::parse(stream);
  EXPECT_EQ(document["command"], "sim");
  EXPECT_TRUE(document.contains("version") && document.contains("machine"));
  std::set<std::string> seen;
  for (const auto& row : document["results"]) {
    seen.insert(row["experiment"].get<std::string>());
    EXPECT_THAT(outcome.text, HasSubstr(row["situation"].get<std::string>()));
    EXPECT_FALSE(row["figures"].empty());
  }
  EXPECT_EQ(seen, (std::set<std::string>{"incast", "mice", "micro-bursts", "plans", "scale"}));
  std::filesystem::remove(file);
}

TEST(SimCommand, TheSameSeedGivesTheSameFigures) {
  const std::string arguments = "--quick --experiment incast --seed 7 --json -";
  const Outcome first = run(arguments);
  EXPECT_EQ(first.text, run(arguments).text);
  EXPECT_NE(first.text, run("--quick --experiment incast --seed 8 --json -").text);
}

TEST(SimCommand, AMissedBarIsAFailureOnlyUnderCheck) {
  // A burst in every message leaves nothing to choose: its bar is out of reach.
  const std::string arguments = "--quick --experiment micro-bursts --burst-gap-us 100";
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.text, HasSubstr("MISSED"));
  EXPECT_EQ(run(arguments + " --check").status, 1);
  EXPECT_EQ(run("--quick --experiment mice --check").status, 0);
}

TEST(SimCommand, WrongUseSaysWhatIsAllowed) {
  EXPECT_EQ(run("--help").status, 0);
  EXPECT_THAT(run("--list").text, HasSubstr("bad-path"));
  const Outcome unknown = run("--experiment loss,nothing");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.text, HasSubstr("'nothing'"));
  EXPECT_THAT(unknown.text, HasSubstr("micro-bursts"));
  EXPECT_EQ(run("--seeds 0").status, 2);
  EXPECT_EQ(run("--seeds").status, 2);
  EXPECT_EQ(run("--burst-gap-us=1").status, 2);
  EXPECT_EQ(run("--no-such-option").status, 2);
  EXPECT_EQ(run("loss").status, 2);
  EXPECT_EQ(run("--quick --experiment mice --json /nowhere/sim.json").status, 1);
}

}  // namespace
}  // namespace clustar::bench::sim
