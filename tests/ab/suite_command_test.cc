// `clustar ab --scenario` as a user runs it: wrong usage, and one tiny run on a fabric of its own (needs root).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
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

Words suite(const Words& more) {
  Words words{"ab", "--scenario", "gray"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(SuiteCommand, WrongUsageIsStatusTwoAndSaysWhatIsAllowed) {
  const std::vector<std::pair<Words, std::string>> cases{
      {{"ab", "--scenario", "nonsense"}, "bursts-light"},
      {suite({"--arms", "udp"}), "tcp-cubic-rto5"},
      {suite({"--all-reduce", "tree"}), "all-to-all"},
      {suite({"--reference", "udp"}), "--reference"},
      {suite({"--missing", "pray"}), "rescale"},
      {suite({"--rate", "off"}), "--rate"},
      {suite({"--batch", "2"}), "--batch"},
      {suite({"--resume", "/nowhere/x.json"}), "--resume"},
      {suite({"--json", "/nowhere/x.json"}), "--json"},
      {suite({"--arms", "mlt-p11"}), "at most 10"},
      {suite({"--retry-failed"}), "--resume"},
      {suite({"--local"}), "--local"},
      {suite({"--candidate", "CLUSTAR_TRANSPORT=tcp"}), "--candidate"},
      {{"ab", "--arms", "mlt-p0"}, "--scenario"}};
  for (const auto& [words, expected] : cases) {
    const Outcome outcome = trainer::run_clustar(words);
    EXPECT_EQ(outcome.status, 2) << expected << ": " << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

class SuiteCommandOnFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make network namespaces";
    fabric::FabricSpec spec{.name = "absuite-test-" + std::to_string(getpid()), .hosts = 2};
    spec.rules.all.to_host.random = 0.5;
    const auto made = fabric::Fabric::up(spec);
    if (!made) GTEST_SKIP() << "no fabric that loses packets can be made here: " << made.error().message;
    EXPECT_TRUE(fabric::Fabric::remove(made->spec().name));
  }
};

TEST_F(SuiteCommandOnFabric, TrainsEveryArmAndLeavesNothing) {
  const TemporaryDirectory folder;
  const Words same{"--all-reduce", "ring", "--reference", "tcp-cubic",
                   "--ranks",      "2",    "--rounds",    "1",
                   "--model",      "lr",   "--examples",  "200",
                   "--epochs",     "1",    "--batch",     "32",
                   "--time-limit", "60",   "--json",      folder.file("ab.json")};
  Words words{"ab", "--scenario", "gray,incast", "--arms", "tcp-cubic,mlt-p0", "--report", folder.file("ab.html")};
  words.insert(words.end(), same.begin(), same.end());
  Command command(words);
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait();
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_THAT(outcome.err, HasSubstr("[4/4] round 1"));
  EXPECT_THAT(outcome.out, HasSubstr("mlt-p0/ring"));
  const nlohmann::json document = folder.read_json("ab.json");
  EXPECT_EQ(document["command"], "ab");
  EXPECT_EQ(document["suite"], "training");
  ASSERT_EQ(document["results"].size(), 2u) << "one arm against one reference, in two scenarios";
  EXPECT_GT(document["results"][0]["ratio"].get<double>(), 0);
  const nlohmann::json& scenarios = document["training"]["scenarios"];
  ASSERT_EQ(scenarios.size(), 2u);
  for (const auto& scenario : scenarios) {
    ASSERT_EQ(scenario["runs"].size(), 2u) << scenario;
    for (const auto& run : scenario["runs"]) {
      EXPECT_EQ(run["replicas_identical"], true);
      EXPECT_EQ(run["super_packets"], 0);
      EXPECT_GT(run["switch_packets"], 0);
    }
  }
  EXPECT_GT(scenarios[1]["runs"][0]["background"]["received_bytes"], 0);
  std::ifstream in(folder.file("ab.html"), std::ios::binary);
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  EXPECT_THAT(page, HasSubstr("<svg "));
  EXPECT_EQ(trainer::run_clustar({"report", folder.file("ab.json"), "-o", "-"}).out, page);
  EXPECT_TRUE(fabric::namespaces_of("ab-" + std::to_string(pid)).empty());

  // Into the same file: what is there stays.
  Words more{"ab", "--scenario", "lossy", "--arms", "mlt-p5", "--resume", folder.file("ab.json")};
  more.insert(more.end(), same.begin(), same.end());
  const Outcome resumed = trainer::run_clustar(more);
  ASSERT_EQ(resumed.status, 0) << resumed.err << resumed.out;
  const nlohmann::json after = folder.read_json("ab.json")["training"];
  ASSERT_EQ(after["scenarios"].size(), 3u);
  for (const int i : {0, 1}) EXPECT_EQ(after["scenarios"][i]["runs"], scenarios[i]["runs"]);
  EXPECT_EQ(after["scenarios"][2]["runs"][0]["arm"], "mlt-p5/ring");
  EXPECT_EQ(after["interrupted"], false);
}

}  // namespace
}  // namespace clustar::bench::ab
