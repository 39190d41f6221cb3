// `clustar ab --launcher`: Open MPI's mpirun on the hosts of a fabric, torchrun on loopback, and a stand-in for srun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "bench/fabric/fabric.h"
#include "bench/fabric/namespaces.h"
#include "tests/run_command.h"
#include "tests/trainer/command.h"

namespace clustar::bench::ab {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trainer::Command;
using trainer::Outcome;
using trainer::plus;
using trainer::run_clustar;
using trainer::TemporaryDirectory;
using trainer::Words;

const Words kTiny{"--rounds", "1", "--examples", "100", "--epochs", "1", "--batch", "32", "--model", "mlp-small"};

bool is_there(const std::string& program, const std::string& says) {
  const auto said = tests::run_command("timeout 60 " + program + " 2>&1 </dev/null");
  return said.text.find(says) != std::string::npos;
}

void write_program(const TemporaryDirectory& folder, const std::string& name, const std::string& script) {
  folder.write(name, "#!/bin/sh\n" + script);
  std::filesystem::permissions(folder.file(name), std::filesystem::perms::owner_all);
}

TEST(AbLauncher, RefusesWhatShapesAFabricAndSaysWhatItNeeds) {
  const auto refused = [](const Words& more) {
    const Outcome outcome = run_clustar(plus({"ab", "--launcher", "mpirun"}, more));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  };
  const std::string real = "with --launcher mpirun the network is the real one";
  EXPECT_THAT(refused({"--root", "h", "--rate", "100M"}), HasSubstr(real));
  EXPECT_THAT(refused({"--root", "h", "--uplink", "100M"}), HasSubstr(real));
  EXPECT_THAT(refused({"--scenario", "clean"}), AllOf(HasSubstr("--scenario"), HasSubstr(real)));
  EXPECT_THAT(refused({}), HasSubstr("needs --root HOST[:PORT]"));
  EXPECT_THAT(refused({"--root", "h:x"}), HasSubstr("--root 'h:x'; allowed: HOST or HOST:PORT"));
  EXPECT_THAT(refused({"--root", "h", "--launcher-args", "'"}), HasSubstr("no end"));
  EXPECT_THAT(refused({"--root", "h", "--local"}), HasSubstr("--local"));
  EXPECT_THAT(refused({"--root", "h", "--candidate", "collective=paraexpress,plan=sharded,helpers=1"}),
              HasSubstr("helpers are not for --launcher"));
  const Outcome torchrun = run_clustar({"ab", "--launcher", "torchrun", "--root", "h"});
  EXPECT_EQ(torchrun.status, 2);
  EXPECT_THAT(torchrun.err, HasSubstr("use mpirun or srun for several"));
  EXPECT_THAT(run_clustar({"ab", "--launcher", "ssh"}).err, HasSubstr("mpirun"));
}

// Two hosts, mpirun on the first of them. It cannot ssh to the second; its agent enters that namespace, with an
// environment as empty as ssh's.
class AbMpirun : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make network namespaces";
    if (!is_there("mpirun --version", "Open MPI")) {
      GTEST_SKIP() << "there is no mpirun of Open MPI here (Debian: openmpi-bin)";
    }
    auto made =
        fabric::Fabric::up({.name = "ab-mpi-" + std::to_string(getpid()), .hosts = 2, .rate_bps = 1'000'000'000});
    if (!made) GTEST_SKIP() << "no fabric can be made here: " << made.error().message;
    fabric_ = std::make_unique<fabric::Fabric>(std::move(*made));
    folder_.write("hosts", fabric_->address(0) + " slots=1\n" + fabric_->address(1) + " slots=1\n");
    write_program(folder_, "agent",
                  "[ \"$1\" = " + fabric_->address(1) + " ] || { echo \"agent: no host $1\" >&2; exit 1; }\nshift\n" +
                      "exec env -i PATH=\"$PATH\" HOME=/ " + std::string(CLUSTAR_EXECUTABLE) + " fabric exec --name " +
                      fabric_->spec().name + " 1 -- sh -c \"$*\"\n");
  }
  void TearDown() override {
    if (fabric_) {
      EXPECT_TRUE(fabric_->down());
    }
  }

  Words on_hosts(const Words& more) const {
    const Words start{"fabric",
                      "exec",
                      "--name",
                      fabric_->spec().name,
                      "0",
                      "--",
                      CLUSTAR_EXECUTABLE,
                      "ab",
                      "--launcher",
                      "mpirun",
                      "--root",
                      fabric_->address(0),
                      "--launcher-args",
                      "--allow-run-as-root --mca oob_tcp_if_include eth0 --mca plm_rsh_agent " + folder_.file("agent") +
                          " --hostfile '" + folder_.file("hosts") + "'"};
    return plus(start, more);
  }
  std::size_t inhabitants() const {
    return fabric::inhabitants({fabric_->namespace_of(0), fabric_->namespace_of(1)}).size();
  }

  TemporaryDirectory folder_;
  std::unique_ptr<fabric::Fabric> fabric_;
};

TEST_F(AbMpirun, RanksOnTwoHostsSendOverTheirNetwork) {
  const auto before = fabric_->status();
  ASSERT_TRUE(before);
  const Outcome outcome = run_clustar(
      on_hosts(plus(kTiny, {"--ranks", "2", "--baseline", "CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=cubic",
                            "--candidate", "CLUSTAR_TRANSPORT=mlt,CLUSTAR_INJECT_FAULTS=loss=0.001\\,delay=100us",
                            "--json", folder_.file("ab.json"), "--report", folder_.file("ab.html")})));
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const auto after = fabric_->status();
  ASSERT_TRUE(after);
  const nlohmann::json result = folder_.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["kind"], "cluster");
  EXPECT_THAT(result["place"]["text"].get<std::string>(), HasSubstr("2 ranks on 2 hosts, by mpirun (Open MPI)"));
  const nlohmann::json& hosts = result["place"]["hosts"];
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_NE(hosts[0]["network"], hosts[1]["network"]) << "each in a namespace of its own";
  EXPECT_TRUE(result["parameters_equal"].get<bool>());
  double sent = 0;
  for (const auto& run : result["runs"]) {
    sent += run["bytes_sent"].get<double>();
    if (run["arm"] == "no communication") continue;
    // A rank without its arm's variables would be over the other transport, or none.
    EXPECT_EQ(run["transport"]["transport"], run["arm"] == "baseline" ? "tcp" : "mlt");
    EXPECT_TRUE(run["replicas_identical"].get<bool>());
  }
  EXPECT_GT(sent, 1e6);
  // Half of it each way, and headers.
  for (std::size_t port = 0; port < 2; ++port) {
    const double passed = static_cast<double>(after->ports[port].to_host.bytes - before->ports[port].to_host.bytes);
    EXPECT_GT(passed, sent / 2) << port;
    EXPECT_LT(passed, sent) << port;
  }
  std::ifstream page(folder_.file("ab.html"));
  EXPECT_THAT((std::string{std::istreambuf_iterator<char>(page), {}}), HasSubstr("2 hosts, by mpirun (Open MPI)"));
  EXPECT_EQ(inhabitants(), 0u);
}

TEST_F(AbMpirun, SaysWhatFailedAndWhatToDo) {
  const Outcome crowded = run_clustar(on_hosts(plus(kTiny, {"--ranks", "3"})));
  EXPECT_EQ(crowded.status, 1);
  EXPECT_THAT(crowded.err, AllOf(HasSubstr("round 1 of 1, baseline: mpirun ended with exit status"),
                                 HasSubstr("What to do: give the hosts more slots")));
  const Outcome refused = run_clustar(on_hosts(plus(kTiny, {"--ranks", "2", "--plugin", CLUSTAR_EXECUTABLE})));
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("baseline: rank "), HasSubstr("clustar'")));
  EXPECT_EQ(inhabitants(), 0u);
}

TEST_F(AbMpirun, AnInterruptEndsRanksOnAllHosts) {
  Command command(on_hosts({"--ranks", "2", "--epochs", "1000", "--model", "lr"}));
  // Rank 1 with its orted, mpirun, its agent, rank 0 and the command.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto on_second = [&] { return fabric::inhabitants({fabric_->namespace_of(1)}).size(); };
  while (on_second() < 2 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  ASSERT_GE(on_second(), 2u);
  kill(command.pid(), SIGINT);
  const Outcome outcome = command.wait(std::chrono::seconds(40));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("interrupted by signal 2"));
  EXPECT_LT(outcome.seconds, 35);
  // orted notices that mpirun is gone, and ends.
  const auto gone = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (inhabitants() > 0 && std::chrono::steady_clock::now() < gone) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_EQ(inhabitants(), 0u);
}

TEST(AbTorchrun, StartsRanksOnThisMachine) {
  if (!is_there("torchrun --help", "no_python")) {
    GTEST_SKIP() << "there is no torchrun that works here (Debian: python3-torch)";
  }
  const TemporaryDirectory folder;
  setenv("CLUSTAR_SOCKET_IFNAME", "lo", 1);
  // What Debian 12's, under Python 3.11, needs to start anything.
  const Words start{"ab", "--launcher", "torchrun", "--launcher-args", "--redirects 9:1 --tee 9:1", "--ranks", "2"};
  const Outcome outcome = run_clustar(plus(plus(start, kTiny), {"--json", folder.file("ab.json")}));
  unsetenv("CLUSTAR_SOCKET_IFNAME");
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["launcher"], "torchrun");
  EXPECT_EQ(result["place"]["hosts"].size(), 2u);
  EXPECT_TRUE(result["parameters_equal"].get<bool>());
  EXPECT_THAT(outcome.out, HasSubstr("all ranks ran on one host"));
}

// Of no real Slurm: a script in its place writes down what it was told, and starts the ranks here.
TEST(AbSrun, ItsWordsAndEnvironmentWithAStandIn) {
  const TemporaryDirectory folder;
  write_program(folder, "srun",
                R"([ "$1" != --version ] || { echo 'slurm 0.0-stand-in'; exit; }
echo "$CLUSTAR_TCP_SOCKETS $*" >>)" +
                    folder.file("words") + R"(
n=${1#--ntasks=}
while [ "${1#-}" != "$1" ]; do shift; done
for r in $(seq 0 $((n - 1))); do SLURM_PROCID=$r SLURM_NTASKS=$n "$@" & done
for r in $(seq $n); do wait -n 2>/dev/null || wait; done
)");
  const std::string path = std::getenv("PATH");
  setenv("PATH", (folder.path() + ":" + path).c_str(), 1);
  setenv("CLUSTAR_SOCKET_IFNAME", "lo", 1);
  // Out of the way of those that other tests draw and the kernel gives.
  const int root = 10'000 + getpid() % 6'000;
  const Outcome outcome =
      run_clustar(plus(plus({"ab", "--launcher", "srun", "--launcher-args", "--partition='a b'", "--root",
                             "127.0.0.1:" + std::to_string(root), "--ranks", "2", "--baseline", "CLUSTAR_TCP_SOCKETS=1",
                             "--candidate", "CLUSTAR_TCP_SOCKETS=3"},
                            kTiny),
                       {"--json", folder.file("ab.json")}));
  setenv("PATH", path.c_str(), 1);
  unsetenv("CLUSTAR_SOCKET_IFNAME");
  ASSERT_EQ(outcome.status, 0) << outcome.err << outcome.out;
  const nlohmann::json result = folder.read_json("ab.json")["results"].at(0);
  EXPECT_EQ(result["place"]["launcher_version"], "slurm 0.0-stand-in");
  EXPECT_EQ(result["place"]["launcher_arguments"], nlohmann::json::array({"--partition=a b"}));
  std::ifstream words(folder.file("words"));
  int port = root;
  for (const std::string sockets : {"1", "1", "3"}) {  // the ceiling has the baseline's settings
    std::string line;
    ASSERT_TRUE(std::getline(words, line));
    EXPECT_THAT(line, testing::StartsWith(sockets + " --ntasks=2 --export=ALL --kill-on-bad-exit=1 --partition=a b /"));
    EXPECT_THAT(line, HasSubstr("train --launcher env --root 127.0.0.1:" + std::to_string(port++) + " --report-fd 1"));
  }
}

}  // namespace
}  // namespace clustar::bench::ab
