// `clustar ab` on a fabric of its own, which is gone afterwards however it ends. Needs root.
#include "bench/fabric/fabric.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/fabric/namespaces.h"
#include "tests/trainer/command.h"

namespace clustar::bench::ab {
namespace {

using trainer::Command;
using trainer::Outcome;
using trainer::TemporaryDirectory;
using Words = std::vector<std::string>;

std::string fabric_of(pid_t pid) { return "ab-" + std::to_string(pid); }

bool is_left(pid_t pid) { return !fabric::namespaces_of(fabric_of(pid)).empty(); }

class AbFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make network namespaces";
    const auto made = fabric::Fabric::up({.name = "ab-test-" + std::to_string(getpid()), .hosts = 2});
    if (!made) GTEST_SKIP() << "no fabric can be made here: " << made.error().message;
    EXPECT_TRUE(fabric::Fabric::remove(made->spec().name));
  }
};

Words long_run() { return {"ab", "--hosts", "2", "--rate", "100M", "--epochs", "1000"}; }

std::vector<trainer::Process> wait_for_training(const Command& command) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    const auto ranks = trainer::children_of(command.pid());
    std::size_t training = 0;
    for (const auto& rank : ranks) training += rank.command_line.find(" train --rank") != std::string::npos ? 1 : 0;
    if (training == 2) return ranks;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

TEST_F(AbFabric, MeasuresOnHostsThatAreGoneAfterwards) {
  const TemporaryDirectory folder;
  Command command({"ab", "--hosts", "2", "--rate", "200M", "--rounds", "2", "--examples", "200", "--epochs", "1",
                   "--batch", "32", "--json", folder.file("ab.json")});
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait();
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["kind"], "fabric");
  EXPECT_EQ(result["place"]["rate_bps"], 200'000'000);
  EXPECT_EQ(result["place"]["oversized_packets"], 0);
  EXPECT_GT(result["ceiling_ratio"].get<double>(), 1.5) << "at this rate the line is the limit";
  EXPECT_LT(result["ratio"], result["ceiling_ratio"]);
  for (const auto& run : result["runs"]) {
    if (run["arm"] == "no communication") continue;
    EXPECT_GT(run["switch_bytes"], run["bytes_sent"]) << "payload and headers pass the switch";
    EXPECT_NE(run["transport"]["device"].get<std::string>().find("eth0"), std::string::npos) << run["transport"];
  }
  EXPECT_FALSE(is_left(pid));
  EXPECT_EQ(outcome.err.find("cannot remove"), std::string::npos) << outcome.err;
}

TEST_F(AbFabric, HelpersHaveHostsOfTheirOwnAndAParameterServerNeedsNone) {
  const TemporaryDirectory folder;
  const Outcome outcome =
      trainer::run_clustar({"ab", "--hosts", "2", "--rate", "200M", "--rounds", "1", "--examples", "200", "--epochs",
                            "1", "--batch", "32", "--baseline", "collective=ps", "--candidate",
                            "collective=paraexpress,plan=sharded,helpers=1", "--json", folder.file("ab.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["ranks"], 2);
  const std::string place = result["place"]["text"];
  EXPECT_EQ(place.rfind("3 hosts, ", 0), 0u) << place;
  EXPECT_NE(place.find("; 1 of the hosts for helpers"), std::string::npos) << place;
  EXPECT_TRUE(result["parameters_equal"].get<bool>()) << "two numbers have one sum";
  for (const auto& run : result["runs"]) {
    if (run["arm"] == "no communication") continue;
    EXPECT_GT(run["switch_bytes"], run["bytes_sent"]) << "payload and headers pass the switch";
    if (run["arm"] == "candidate") {
      EXPECT_EQ(run["helpers"], (nlohmann::json{{"given", 1}, {"left", 1}}));
    }
  }
}

TEST_F(AbFabric, AKilledRankLeavesNothing) {
  Command command(long_run());
  const pid_t pid = command.pid();
  const auto ranks = wait_for_training(command);
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_TRUE(is_left(pid));
  kill(ranks[1].pid, SIGKILL);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("killed by signal 9"), std::string::npos) << outcome.err;
  EXPECT_FALSE(is_left(pid));
  for (const auto& rank : ranks) EXPECT_NE(kill(rank.pid, 0), 0) << rank.command_line;
}

TEST_F(AbFabric, AnInterruptLeavesNothing) {
  Command command(long_run());
  const pid_t pid = command.pid();
  ASSERT_EQ(wait_for_training(command).size(), 2u);
  kill(pid, SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  EXPECT_FALSE(is_left(pid));
}

TEST_F(AbFabric, TheNextOneRemovesWhatAKilledOneLeft) {
  pid_t pid = -1;
  {
    Command command(long_run());
    pid = command.pid();
    ASSERT_EQ(wait_for_training(command).size(), 2u);
    kill(pid, SIGKILL);
    EXPECT_EQ(command.wait().status, 128 + SIGKILL);
  }
  EXPECT_TRUE(is_left(pid));
  EXPECT_EQ(trainer::run_clustar({"ab", "--hosts", "2", "--rate", "off", "--rounds", "1", "--examples", "50",
                                  "--epochs", "1", "--model", "lr"})
                .status,
            0);
  EXPECT_FALSE(is_left(pid));
}

TEST(AbWithoutRoot, NamesTheFixAndTheAlternative) {
  if (geteuid() == 0) GTEST_SKIP() << "root can make a fabric";
  const Outcome outcome = trainer::run_clustar({"ab", "--hosts", "2"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("sudo"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("--local"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace clustar::bench::ab
