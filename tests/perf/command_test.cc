// `clustar perf` as a user runs it: exit status, table, JSON, and what happens when a worker dies.
#include "tests/trainer/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/proxy/socket_io.h"

namespace clustar::bench::perf {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using trainer::children_of;
using trainer::Command;
using trainer::Outcome;
using trainer::run_clustar;
using trainer::TemporaryDirectory;

const std::string kOurs = CLUSTAR_PLUGIN;
const std::string kSample = SAMPLE_PLUGIN;
const std::string kOdd = ODD_PLUGIN;

class Perf : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("CLUSTAR_SOCKET_IFNAME", "lo", 1);
    unsetenv("SAMPLE_DEFECT");
    unsetenv("PERF_ODD");
    unsetenv("CLUSTAR_TRANSPORT");
  }
  static std::vector<std::string> with(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "perf");
    return arguments;
  }
  static Outcome perf(const std::vector<std::string>& arguments) { return run_clustar(with(arguments)); }
};

void expect_keys(const json& row, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) EXPECT_TRUE(row.contains(key)) << key << " in " << row.dump();
}

TEST_F(Perf, TwoPluginsAndTheLimitByEveryTest) {
  const TemporaryDirectory dir;
  const Outcome outcome = perf({"--plugin", kOurs, "--vs", kSample, "--limits", "--seconds", "0.01", "--bytes", "64K",
                                "--senders", "3", "--json", dir.file("p.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("latency"), HasSubstr("bandwidth"), HasSubstr("rate"), HasSubstr("incast"),
                                 HasSubstr("busbw"), HasSubstr("A/B")));
  const json document = dir.read_json("p.json");
  expect_keys(document, {"command", "version", "machine", "results", "command_line", "settings", "arms", "warnings"});
  EXPECT_EQ(document["command"], "perf");
  ASSERT_EQ(document["results"].size(), 5u);
  for (const json& row : document["results"]) {
    expect_keys(row, {"test",
                      "bytes",
                      "a",
                      "b",
                      "unit",
                      "ratio",
                      "p50_us",
                      "p99_us",
                      "p999_us",
                      "ratio_low",
                      "ratio_high",
                      "goodput_gbps",
                      "a_min",
                      "a_max",
                      "cpu_s_per_gbit",
                      "rounds",
                      "congestion_control",
                      "offload_mode",
                      "better",
                      "other_cpu",
                      "other_cpu_server",
                      "notes"});
    EXPECT_EQ(row["bytes"], 65536);
    EXPECT_EQ(row["a_samples"].size(), 6u);
    for (const char* key : {"a", "b", "ratio", "goodput_gbps"}) EXPECT_GT(row[key], 0) << row.dump();
    EXPECT_LE(row["ratio_low"], row["ratio"]);
    EXPECT_GE(row["ratio_high"], row["ratio"]);
    EXPECT_LE(row["a_min"], row["a"]);
    EXPECT_GE(row["a_max"], row["a"]);
    EXPECT_EQ(row["offload_mode"], "loopback");
    const std::string test = row["test"];
    EXPECT_EQ(row.contains("limit_ratio"), test == "latency" || test == "bandwidth") << test;
    EXPECT_EQ(row["p50_us"].is_number(), test == "latency" || test == "incast") << test;
    EXPECT_EQ(row["cpu_s_per_gbit"].is_number(), test == "bandwidth" || test == "rate") << test;
  }
}

TEST_F(Perf, AMixedLoadOfElephantsAndMice) {
  for (const std::string transport : {"tcp", "mlt"}) {
    const std::string arm = "CLUSTAR_LINE_MBPS=2000,CLUSTAR_SEND_ORDER=coflow,CLUSTAR_TRANSPORT=" + transport;
    const Outcome outcome = perf({"--plugin", kOurs, "--env", arm, "--test", "mixed", "--elephants", "2", "--gap",
                                  "0.5", "--seconds", "0.02", "--rounds", "5", "--json", "-"});
    ASSERT_EQ(outcome.status, 0) << arm << outcome.err;
    const json row = json::parse(outcome.out)["results"].at(0);
    EXPECT_EQ(row["test"], "mixed");
    EXPECT_EQ(row["elephants"], 2);
    EXPECT_EQ(row["unit"], "us");
    EXPECT_GT(row["a"], 0);
    EXPECT_GT(row["goodput_gbps"], 0);
  }
}

// reno is compiled into every kernel and nobody's default: what reads it back was set by us, in both plugins' sockets.
TEST_F(Perf, EveryArmUsesTheCongestionControl) {
  const Outcome outcome = perf({"--plugin", kOurs, "--vs", kSample, "--limits", "--congestion", "reno", "--test",
                                "bandwidth", "--bytes", "64K", "--seconds", "0.01", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  for (const char* arm : {"a", "b", "limit"}) {
    EXPECT_EQ(document["arms"][arm]["congestion_control"], "reno") << arm;
    EXPECT_GT(document["arms"][arm]["tcp_sockets"], 0) << arm;
  }
  EXPECT_EQ(document["results"][0]["congestion_control_b"], "reno");
}

// By one file of a plugin and an environment for each arm.
TEST_F(Perf, MltAgainstTcpAndBothLimits) {
  const Outcome outcome = perf({"--plugin", kOurs, "--env", "CLUSTAR_TRANSPORT=mlt", "--vs-env",
                                "CLUSTAR_TRANSPORT=tcp,CLUSTAR_TCP_CONGESTION=reno", "--limits=both", "--test",
                                "latency,bandwidth,rate", "--bytes", "64K", "--seconds", "0.01", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr("U  bare UDP"), HasSubstr("CLUSTAR_TRANSPORT=mlt"), HasSubstr("A/U [95 %]")));
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["arms"]["a"]["environment"], json({{"CLUSTAR_TRANSPORT", "mlt"}}));
  for (const char* end : {"receiver", "sender"}) {
    EXPECT_THAT(document["arms"]["a"][end]["last_words"].dump(), HasSubstr(" bytes copied")) << end;
  }
  EXPECT_EQ(document["arms"]["b"]["congestion_control"], "reno") << "an arm's own comes first";
  EXPECT_EQ(document["arms"]["limit_udp"]["tcp_sockets"], 0);
  EXPECT_TRUE(document["warnings"].empty()) << document["warnings"].dump();
  for (const json& row : document["results"]) {
    EXPECT_EQ(row["inject_loss"], 0.0);
    const bool limited = row["test"] != "rate";
    EXPECT_EQ(row.contains("limit_ratio"), limited);
    EXPECT_EQ(row.contains("limit_udp_ratio"), limited);
    if (!limited) continue;
    expect_keys(row,
                {"limit", "limit_udp", "limit_udp_ratio_low", "limit_udp_ratio_high", "goodput_gbps_limit_udp",
                 "cpu_s_per_gbit_limit_udp", "p99_us_limit_udp", "lost_packets_limit_udp", "lost_bytes_limit_udp"});
    EXPECT_GT(row["limit_udp"], 0);
  }
}

TEST_F(Perf, TheLimitAloneIsThatOfTheTransport) {
  for (const auto& [transport, limit, other] :
       {std::tuple("mlt", "limit_udp", "limit"), {"tcp", "limit", "limit_udp"}}) {
    const Outcome outcome = perf({"--plugin", kOurs, "--env", std::string("CLUSTAR_TRANSPORT=") + transport, "--limits",
                                  "--test", "latency", "--bytes", "8", "--seconds", "0.01", "--json", "-"});
    ASSERT_EQ(outcome.status, 0) << outcome.err;
    const json row = json::parse(outcome.out)["results"][0];
    EXPECT_TRUE(row.contains(limit)) << transport;
    EXPECT_FALSE(row.contains(other)) << transport;
  }
}

TEST_F(Perf, LossOnPurposeIsReported) {
  const Outcome outcome =
      perf({"--plugin", kOurs, "--env", "CLUSTAR_TRANSPORT=mlt", "--vs-env", "CLUSTAR_TRANSPORT=mlt", "--inject-loss",
            "0.05", "--test", "bandwidth", "--bytes", "1M", "--seconds", "0.01", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("faults injected into A, in both directions: loss=0.05"));
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["results"][0]["inject_loss"], 0.05);
  EXPECT_EQ(document["settings"]["inject_loss"], 0.05);
  EXPECT_EQ(document["settings"]["inject_faults"], "loss=0.05");
  EXPECT_EQ(document["arms"]["a"]["environment"]["CLUSTAR_INJECT_FAULTS"], "loss=0.05");
  EXPECT_FALSE(document["arms"]["b"]["environment"].contains("CLUSTAR_INJECT_FAULTS"));
}

TEST_F(Perf, LossOnPurposeInAnothersPluginIsAWarning) {
  const Outcome outcome = perf({"--plugin", kSample, "--env", "CLUSTAR_TRANSPORT=mlt", "--inject-loss", "0.05",
                                "--test", "latency", "--bytes", "8", "--seconds", "0.01"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("only clustar injects faults"));
}

TEST_F(Perf, SameAgainstSame) {
  const Outcome outcome = perf(
      {"--plugin", kSample, "--vs", kSample, "--test", "latency", "--bytes", "8", "--seconds", "0.02", "--json", "-"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json row = json::parse(outcome.out)["results"][0];
  // A busy machine moves single samples, and so the ratio, as far as its interval says; far off beyond that means that
  // the arms were not treated alike.
  EXPECT_FALSE(row["ratio"] < 0.4 && row["ratio_high"] < 1) << row.dump();
  EXPECT_FALSE(row["ratio"] > 2.5 && row["ratio_low"] > 1) << row.dump();
  EXPECT_LE(row["ratio_low"], row["ratio"]);
  EXPECT_GE(row["ratio_high"], row["ratio"]);
}

TEST_F(Perf, WrongUsage) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases{
      {{"--plugin", "/nonexistent/plugin.so", "--test", "rate"}, "/nonexistent/plugin.so"},
      {{"--plugin", "libm.so.6", "--test", "rate"}, "no net plugin"},
      {{"--plugin", kSample, "--vs", "/nonexistent/plugin.so", "--test", "rate"}, "arm B"},
      {{"--plugin", kSample, "--test", "speed"}, "latency, bandwidth, rate, incast, mixed, busbw"},
      {{"--plugin", kSample, "--bytes", "1G"}, "256M"},
      {{"--plugin", kSample, "--bytes", "0"}, "1 to 256M"},
      {{"--plugin", kSample, "--rounds", "4"}, "--rounds 4: 5 to 1000 are possible"},
      {{"--plugin", "nosuch", "--test", "rate"}, "LD_LIBRARY_PATH"},
      {{"--plugin", kSample, "--seconds", "0"}, "0.001"},
      {{"--plugin", kSample, "--senders", "0"}, "1"},
      {{"--plugin", kSample, "--device", "3", "--test", "rate"}, "device 3"},
      {{"--plugin", kSample, "--congestion", "nonsense"}, "this kernel offers"},
      {{"--plugin", kSample, "--plugin-version", "10", "--test", "rate"}, "v10"},
      {{"--plugin", kSample, "--port", "1"}, "--server"},
      {{"--plugin", kSample, "--server", "--client", "x"}, "--client"},
      {{"--plugin", kSample, "--json", "/nonexistent/p.json"}, "/nonexistent/p.json"},
      {{"--plugin", kSample, "--nonsense"}, "--nonsense"},
      {{"--plugin", kSample, "--limits=ip"}, "tcp,udp,both"},
      {{"--plugin", kSample, "--env", "NAME"}, "NAME=VALUE"},
      {{"--plugin", kSample, "--vs-env", "A=1,A=2"}, "'A' is set twice"},
      {{"--plugin", kSample, "--env", "plugin=x.so"}, "--plugin"},
      {{"--plugin", kOurs, "--inject-loss", "0.6"}, "from 0 to 0.5"},
      {{"--plugin", kOurs, "--inject-loss", "-1"}, "from 0 to 0.5"},
      {{"--plugin", kOurs, "--inject-loss", "0.1"}, "CLUSTAR_TRANSPORT=mlt"},
      {{"--plugin", kOurs, "--env", "CLUSTAR_TRANSPORT=tcp", "--inject-loss", "0.1"}, "the transport is tcp"},
      {{"--plugin", kOurs, "--env", "CLUSTAR_TRANSPORT=mlt", "--inject-faults", "lose=1"}, "loss, burst"},
      {{"--plugin", kOurs, "--inject-loss", "0.1", "--inject-faults", "loss=0.1"}, "exclude each other"},
  };
  for (const auto& [arguments, expected] : cases) {
    const Outcome outcome = perf(arguments);
    EXPECT_EQ(outcome.status, 2) << expected << "\n" << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
  const Outcome help = perf({"--help"});
  EXPECT_EQ(help.status, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("5 to 1000"), ::testing::Not(HasSubstr("[1 - 1000000]"))));
}

// The plugin of this build is measured where none is named, and a log shows each row as it begins.
TEST_F(Perf, WithoutAPluginOursAndALineForEachRowThatBegins) {
  const Outcome outcome = perf({"--test", "latency,rate", "--bytes", "64,1K", "--rounds", "5", "--seconds", "0.01"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("libnccl-net-clustar.so"));
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("[1/4] latency 64 B\n"), HasSubstr("[4/4] rate 1 KiB\n")));
}

TEST_F(Perf, MltIsNotLabelledWithTheCongestionControlOfItsControlConnections) {
  const TemporaryDirectory dir;
  const Outcome outcome =
      perf({"--plugin", kOurs, "--env", "CLUSTAR_TRANSPORT=tcp", "--vs-env", "CLUSTAR_TRANSPORT=mlt", "--congestion",
            "reno", "--test", "latency", "--bytes", "64", "--seconds", "0.01", "--json", dir.file("p.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("CLUSTAR_TRANSPORT=tcp; congestion control reno"),
                                 HasSubstr("CLUSTAR_TRANSPORT=mlt; congestion control mlt's own")));
  const json document = dir.read_json("p.json");
  EXPECT_EQ(document["results"][0]["congestion_control"], "reno");
  EXPECT_EQ(document["results"][0]["congestion_control_b"], "mlt's own");
}

// Another plugin may read variables of the same names, and knows nothing of mlt.
TEST_F(Perf, AnotherPluginIsLabelledByItsSockets) {
  const TemporaryDirectory dir;
  const Outcome outcome = perf({"--plugin", kSample, "--env", "CLUSTAR_TRANSPORT=mlt", "--congestion", "reno", "--test",
                                "latency", "--bytes", "64", "--seconds", "0.01", "--json", dir.file("p.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_NE(dir.read_json("p.json")["results"][0]["congestion_control"], "mlt's own");
}

// A port that takes connections and says nothing.
TEST_F(Perf, AServerThatSaysNothingIsNamedInTime) {
  auto listener = proxy::tcp_listen({"127.0.0.1", "0"});
  ASSERT_TRUE(listener);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(getsockname(listener->fd(), reinterpret_cast<sockaddr*>(&address), &length), 0);
  const std::string server = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const Outcome outcome = perf({"--plugin", kOurs, "--client", server, "--test", "latency", "--timeout", "1"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err,
              AllOf(HasSubstr(server), HasSubstr("does not answer as 'clustar perf --server' within 1 s")));
  EXPECT_LT(outcome.seconds, 8);
}

TEST_F(Perf, CorruptedDataIsFound) {
  setenv("SAMPLE_DEFECT", "corrupt_large", 1);
  const Outcome outcome = perf({"--plugin", kSample, "--test", "bandwidth", "--bytes", "256K", "--seconds", "0.01"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("wrong data"), HasSubstr("byte 65536")));
}

TEST_F(Perf, AWrongSizeIsAnErrorInEveryTest) {
  setenv("SAMPLE_DEFECT", "wrong_sizes", 1);
  for (const auto& [test, expected] :
       {std::pair("bandwidth", "wrong data: test reported"), {"busbw", "completed with"}}) {
    const Outcome outcome = perf({"--plugin", kSample, "--test", test, "--bytes", "64K", "--seconds", "0.01"});
    EXPECT_EQ(outcome.status, 1) << test;
    EXPECT_THAT(outcome.err, HasSubstr(expected));
  }
}

TEST_F(Perf, APluginThatReportsNoSizesIsMeasured) {
  const TemporaryDirectory dir;
  setenv("PERF_ODD", "no_sizes", 1);
  const Outcome outcome = perf({"--plugin", kSample, "--vs", kOdd, "--seconds", "0.01", "--bytes", "64K", "--senders",
                                "2", "--json", dir.file("p.json")});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("arm B: test does not report received sizes"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("arm A: test does not")));
  const json document = dir.read_json("p.json");
  EXPECT_EQ(document["results"].size(), 5u);
  EXPECT_TRUE(document["warnings"].empty()) << document["warnings"].dump();
  EXPECT_TRUE(document["arms"]["a"]["notes"].empty());
  EXPECT_EQ(document["arms"]["b"]["notes"], json::array({"test does not report received sizes"}));
}

// The receiver's plugin calls it ncclSystemError that the sender has given up.
TEST_F(Perf, TheFindingIsNamedAndNotWhatItDidToThePeer) {
  setenv("PERF_ODD", "wrong_go", 1);
  const Outcome outcome = perf({"--plugin", kOdd, "--test", "bandwidth", "--bytes", "64K", "--seconds", "0.01"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("arm A, sender 1"), HasSubstr("wrong data: test reported 0 bytes")));
}

TEST_F(Perf, ABusyMachineIsNoted) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 2; ++i) {
    others.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {
      }
    });
  }
  const TemporaryDirectory dir;
  const Outcome outcome = perf({"--plugin", kSample, "--test", "bandwidth", "--bytes", "64K,128K", "--seconds", "0.1",
                                "--json", dir.file("p.json")});
  stop = true;
  for (std::thread& other : others) other.join();
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::size_t note = outcome.out.find("* other processes used up to ");
  ASSERT_NE(note, std::string::npos) << outcome.out;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("in 2 of 2 rows: repeat on an idle machine"), HasSubstr("]  *\n")));
  EXPECT_EQ(outcome.out.find("other processes used", note + 4), std::string::npos) << "once for all rows";
  const json report = dir.read_json("p.json");
  for (const json& row : report["results"]) {
    EXPECT_GT(row["other_cpu"], 0.05) << row.dump();
    EXPECT_TRUE(row["other_cpu_server"].is_null());
    ASSERT_EQ(row["notes"].size(), 1u);
  }
}

class PerfDeath : public Perf {
 protected:
  // A run that is in the middle of measuring, and its workers.
  static std::vector<trainer::Process> wait_for_workers(const Command& command, std::size_t count) {
    std::vector<trainer::Process> workers;
    for (int i = 0; i < 1000 && workers.size() < count; ++i) {
      usleep(10'000);
      workers = children_of(command.pid());
    }
    usleep(500'000);
    return workers;
  }
  static bool is_gone(pid_t pid) {
    for (int i = 0; i < 300 && kill(pid, 0) == 0; ++i) {
      // One whose parent died may stay a zombie where nobody reaps.
      for (const auto& process : children_of(1)) {
        if (process.pid == pid && process.command_line.empty()) return true;
      }
      usleep(10'000);
    }
    return kill(pid, 0) != 0;
  }
  // Signals one worker of a long run: the run must fail with `text`, name that worker, and leave nobody behind.
  static void expect_failure(const std::vector<std::string>& run, std::size_t victim, int signal,
                             std::chrono::seconds limit, const char* text) {
    Command command(run);
    const auto workers = wait_for_workers(command, 4);
    ASSERT_EQ(workers.size(), 4u);
    kill(workers[victim].pid, signal);
    const Outcome outcome = command.wait(limit);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr(text), HasSubstr(std::to_string(workers[victim].pid))));
    for (const auto& worker : workers) EXPECT_TRUE(is_gone(worker.pid)) << worker.pid;
  }
  const std::vector<std::string> long_run_ = with({"--plugin", kOurs, "--vs", kSample, "--test", "bandwidth", "--bytes",
                                                   "64K", "--seconds", "5", "--timeout", "1"});
};

TEST_F(PerfDeath, AKilledWorkerIsNamedAndNobodyIsLeft) {
  expect_failure(long_run_, 1, SIGKILL, std::chrono::seconds(15), "was killed by signal 9");
}

TEST_F(PerfDeath, AStoppedWorkerIsAnErrorWithinTheBound) {
  expect_failure(long_run_, 0, SIGSTOP, std::chrono::seconds(30), "no sign of life");
}

TEST_F(PerfDeath, WorkersAreRecognisable) {
  Command command(long_run_);
  for (const auto& worker : wait_for_workers(command, 4)) {
    std::ifstream file("/proc/" + std::to_string(worker.pid) + "/comm");
    std::string name;
    std::getline(file, name);
    EXPECT_EQ(name, "clustar-perf");
  }
}

TEST_F(PerfDeath, WorkersEndWithTheCoordinator) {
  std::vector<trainer::Process> workers;
  {
    Command command(long_run_);
    workers = wait_for_workers(command, 4);
    ASSERT_EQ(workers.size(), 4u);
  }
  for (const auto& worker : workers) EXPECT_TRUE(is_gone(worker.pid)) << worker.pid;
}

TEST_F(Perf, ServerAndClient) {
  const auto root = proxy::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(root);
  const std::string port = root->substr(root->rfind(':') + 1);
  Command server(with({"--server", "--bind", "127.0.0.1", "--port", port, "--plugin", kSample}));
  ASSERT_TRUE(server.wait_for_error_text("listening"));
  const std::vector<std::string> client{
      "--client", "127.0.0.1:" + port, "--plugin", kSample, "--test", "latency,busbw", "--bytes", "4K", "--seconds",
      "0.01",     "--limits=both",     "--json",   "-"};
  const Outcome outcome = perf(client);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json document = json::parse(outcome.out);
  EXPECT_EQ(document["results"].size(), 2u);
  EXPECT_EQ(document["settings"]["server"], "127.0.0.1:" + port);
  // One machine, though the receiver belongs to the server.
  EXPECT_TRUE(document["results"][0]["other_cpu"].is_number());
  EXPECT_TRUE(document["results"][0]["other_cpu_server"].is_null());
  // Nor does it run it with other settings.
  auto with_environment = client;
  with_environment.insert(with_environment.end(), {"--env", "SAMPLE=1"});
  const Outcome differs = perf(with_environment);
  EXPECT_EQ(differs.status, 1);
  EXPECT_THAT(differs.err, AllOf(HasSubstr("--env is SAMPLE=1"), HasSubstr("this server's nothing")));
  // A server loads only what it was started with.
  auto with_b = client;
  with_b.insert(with_b.end(), {"--vs", kSample});
  const Outcome refused = perf(with_b);
  EXPECT_EQ(refused.status, 1);
  EXPECT_THAT(refused.err, HasSubstr("no plugin for arm 'B'"));
  kill(server.pid(), SIGTERM);
  EXPECT_EQ(server.wait().status, 0);
  const Outcome nobody = perf(client);
  EXPECT_EQ(nobody.status, 1);
  EXPECT_THAT(nobody.err, HasSubstr("start 'clustar perf --server' there"));
}

}  // namespace
}  // namespace clustar::bench::perf
