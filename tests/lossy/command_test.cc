// `clustar perf --suite lossy` on fabrics of its own, which are gone afterwards however it ends. Needs root.
#include "tests/trainer/command.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tests/lossy/needs_fabric.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;
using trainer::Command;
using trainer::Outcome;
using trainer::TemporaryDirectory;
using Words = std::vector<std::string>;

bool is_left(pid_t pid) { return !fabric::namespaces_of("lossy-" + std::to_string(pid)).empty(); }

using LossyCommand = NeedsLossyFabric;

Words long_run() {
  return {"perf", "--suite", "lossy", "--scenario", "loss", "--arms", "tcp-cubic", "--rounds", "100000"};
}

// Receiver and sender of long_run()'s arm, not those of the one-way time; empty when they do not come.
std::vector<trainer::Process> wait_for_workers(const Command& command) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < until) {
    std::vector<trainer::Process> workers;
    for (const auto& child : trainer::children_of(command.pid())) {
      if (child.command_line.find("clustar:tcp-cubic perf --suite-worker") != std::string::npos)
        workers.push_back(child);
    }
    if (workers.size() == 2) return workers;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return {};
}

TEST_F(LossyCommand, MeasuresArmsThatLosePacketsAndDeliverEveryByte) {
  const TemporaryDirectory folder;
  const bool short_rto = access("/proc/sys/net/ipv4/tcp_rto_min_us", F_OK) == 0;  // Linux 6.11
  const std::string tcp = short_rto ? "tcp-cubic-rto5" : "tcp-cubic";
  Command command({"perf", "--suite", "lossy", "--scenario", "loss", "--arms", tcp + ",mlt-p0", "--rounds", "3",
                   "--seed", "11", "--json", folder.file("r.json"), "--report", folder.file("r.html")});
  const pid_t pid = command.pid();
  const Outcome outcome = command.wait();
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  EXPECT_FALSE(is_left(pid));
  EXPECT_NE(outcome.err.find("this takes about"), std::string::npos) << outcome.err;
  const json document = folder.read_json("r.json");
  EXPECT_EQ(document["suite"], "lossy");
  const json& results = document["results"];
  EXPECT_EQ(results["load_average_before"].size(), 3u);
  EXPECT_TRUE(results.contains("load_average_after"));
  EXPECT_TRUE(results.contains("other_cpu"));
  EXPECT_EQ(results["interrupted"], false);
  ASSERT_EQ(results["scenarios"].size(), 1u);
  const json& scenario = results["scenarios"][0];
  EXPECT_EQ(scenario["rounds"], 3);
  EXPECT_EQ(scenario["fabric"]["seed"], 11);
  EXPECT_EQ(scenario["delay_mode"], "queueing only");
  std::ifstream page(folder.file("r.html"));
  const std::string html{std::istreambuf_iterator<char>(page), {}};
  EXPECT_NE(html.find(scenario["title"]), std::string::npos) << html.substr(0, 500);
  EXPECT_GT(scenario["one_way_ms"].get<double>(), 0);
  ASSERT_EQ(scenario["arms"].size(), 2u);
  for (const json& arm : scenario["arms"]) {
    EXPECT_EQ(arm["rounds"], 3) << arm;
    const unsigned all = 3 + arm["stalled_rounds"].get<unsigned>();  // which are repeated
    EXPECT_EQ(arm["delivered_bytes"], all << 20) << arm;
    EXPECT_EQ(arm["missing_bytes"], 0) << arm;
    // Of some 3,000 packets; none at all has a chance of 1e-13.
    EXPECT_GT(arm["lost_packets"], 0) << arm;
    EXPECT_GT(arm["retransmitted"], 0) << arm;
    EXPECT_GT(arm["min_ms"].get<double>(), 30) << "1 MiB at 200 Mbit/s: the line is the limit";
    EXPECT_EQ(arm["lost_packets"], arm["switch"]["dropped_loss"]) << arm;
    EXPECT_GT(arm["switch"]["packets"], 2000) << arm;
    EXPECT_LT(arm["switch"]["packets"], all * 1150)
        << "some 770 per round; not each block's first, which is not counted";
    EXPECT_TRUE(arm["host_drops"]["interfaces"].is_number() && arm["host_drops"]["softnet"].is_number()) << arm;
    EXPECT_EQ(arm["switch"]["super_packets"], 0) << arm;
    EXPECT_LE(arm["switch"]["largest_bytes"], 1514) << "each packet is one of the wire";
    EXPECT_LE(arm["switch"]["deepest_bytes"], 125'000) << "the buffer";
    EXPECT_GT(arm["cpu_s_per_gbit"].get<double>(), 0) << arm;
  }
  const json& facts = scenario["arms"][0]["facts"][0]["sender"];
  EXPECT_EQ(facts["congestion"], "cubic");
  EXPECT_EQ(facts["rto_us"] < 150'000, short_rto) << facts;
}

TEST_F(LossyCommand, TwoJobsShareALine) {
  const TemporaryDirectory folder;
  const Outcome outcome = trainer::run_clustar({"perf", "--suite", "lossy", "--scenario", "shared", "--arms",
                                                "clustar-tcp", "--rounds", "1", "--json", folder.file("r.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const json scenario = folder.read_json("r.json")["results"]["scenarios"][0];
  const json& jobs = scenario["arms"][0]["jobs"];
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0]["share_by_round"].size(), 1u);
  EXPECT_NEAR(jobs[0]["share_of_fair"].get<double>() + jobs[1]["share_of_fair"].get<double>(), 2, 1e-6);
}

TEST_F(LossyCommand, AKilledWorkerIsNamed) {
  Command command(long_run());
  const pid_t pid = command.pid();
  const auto workers = wait_for_workers(command);
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1].pid, SIGKILL);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("killed by signal 9"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("(pid " + std::to_string(workers[1].pid) + ")"), std::string::npos) << outcome.err;
  EXPECT_FALSE(is_left(pid));
  for (const auto& worker : workers) EXPECT_NE(kill(worker.pid, 0), 0) << worker.command_line;
}

TEST_F(LossyCommand, WithoutAOneWayTimeTheRunGoesOn) {
  const TemporaryDirectory folder;
  Words words = long_run();
  words.back() = "1";
  words.insert(words.end(), {"--json", folder.file("r.json")});
  Command command(words);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  bool killed = false;
  while (!killed && std::chrono::steady_clock::now() < until) {
    for (const auto& child : trainer::children_of(command.pid())) {
      if (child.command_line.find("clustar:mlt-p0 perf") != std::string::npos) killed = kill(child.pid, SIGKILL) == 0;
      if (killed) break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(killed);
  const Outcome outcome = command.wait();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json scenario = folder.read_json("r.json")["results"]["scenarios"][0];
  EXPECT_EQ(scenario["one_way_ms"], 0);
  EXPECT_EQ(scenario["arms"][0]["rounds"], 1);
  ASSERT_FALSE(scenario["notes"].empty());
  EXPECT_NE(scenario["notes"][0].get<std::string>().find("one-way time could not be measured"), std::string::npos);
}

TEST_F(LossyCommand, AnInterruptLeavesNothing) {
  Command command(long_run());
  const pid_t pid = command.pid();
  const auto workers = wait_for_workers(command);
  ASSERT_EQ(workers.size(), 2u);
  kill(pid, SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_NE(outcome.err.find("interrupted"), std::string::npos) << outcome.err;
  EXPECT_FALSE(is_left(pid));
  for (const auto& worker : workers) EXPECT_NE(kill(worker.pid, 0), 0) << worker.command_line;
}

// What is complete was worth its time.
TEST_F(LossyCommand, AnInterruptKeepsTheScenariosThatAreComplete) {
  const TemporaryDirectory folder;
  Command command({"perf", "--suite", "lossy", "--scenario", "loss,incast", "--arms", "tcp-cubic", "--rounds", "60",
                   "--json", folder.file("r.json"), "--report", folder.file("r.html")});
  const pid_t pid = command.pid();
  // Only the incast has more than one sender.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::size_t workers = 0;
  while (workers < 10 && std::chrono::steady_clock::now() < until) {
    workers = 0;
    for (const auto& child : trainer::children_of(pid)) {
      workers += child.command_line.find("clustar:tcp-cubic perf --suite-worker") != std::string::npos ? 1 : 0;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_GE(workers, 10u);
  kill(pid, SIGINT);
  const Outcome outcome = command.wait();
  EXPECT_EQ(outcome.status, 1);
  EXPECT_FALSE(is_left(pid));
  EXPECT_NE(outcome.err.find("complete and kept: 1 scenarios, not measured: incast"), std::string::npos) << outcome.err;
  const json results = folder.read_json("r.json")["results"];
  EXPECT_EQ(results["interrupted"], true);
  EXPECT_EQ(results["unfinished"], json({"incast"}));
  ASSERT_EQ(results["scenarios"].size(), 1u);
  EXPECT_EQ(results["scenarios"][0]["name"], "loss");
  EXPECT_EQ(results["scenarios"][0]["arms"][0]["rounds"], 60);
  std::ifstream page(folder.file("r.html"));
  const std::string html{std::istreambuf_iterator<char>(page), {}};
  EXPECT_NE(html.find("Ended early"), std::string::npos) << html.substr(0, 500);
}

TEST(LossyUsage, WrongNamesSayWhatIsAllowed) {
  const Outcome arm = trainer::run_clustar({"perf", "--suite", "lossy", "--arms", "tcp"});
  EXPECT_EQ(arm.status, 2);
  EXPECT_NE(arm.err.find("tcp-cubic-rto5"), std::string::npos) << arm.err;
  const Outcome scenario = trainer::run_clustar({"perf", "--suite", "lossy", "--scenario", "lost"});
  EXPECT_EQ(scenario.status, 2);
  EXPECT_NE(scenario.err.find("micro-bursts"), std::string::npos) << scenario.err;
  const Outcome absent =
      trainer::run_clustar({"perf", "--suite", "lossy", "--scenario", "loss", "--arms", "tcp-cubic,mptcp"});
  EXPECT_EQ(absent.status, 2) << "it would have been left out without a word";
  EXPECT_NE(absent.err.find("no scenario of this run has the arm 'mptcp'; their arms are: clustar-tcp, mlt-deadline"),
            std::string::npos)
      << absent.err;
  EXPECT_EQ(trainer::run_clustar({"perf", "--suite", "other"}).status, 2);
  EXPECT_EQ(trainer::run_clustar({"perf", "--quick"}).status, 2) << "options of the suite need --suite";
}

}  // namespace
}  // namespace clustar::bench::lossy
