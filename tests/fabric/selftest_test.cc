// The selftest can fail: what is sabotaged under it is named, and nothing else. And its intervals are what they say.
#include "bench/fabric/selftest/selftest.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <map>
#include <set>

#include "bench/fabric/selftest/intervals.h"
#include "bench/fabric/selftest/lab.h"
#include "bench/fabric/selftest/render.h"
#include "bench/fabric/switch/switch_program.h"
#include "tests/fabric/fabric_under_test.h"
#include "tests/fabric/forbid_bpf.h"

namespace clustar::bench::fabric::selftest {
namespace {

using Names = std::set<std::string>;

TEST(SelftestIntervals, Binomial) {
  const Interval one = binomial_interval(20'000, 0.01);
  EXPECT_EQ(one.low, 165);
  EXPECT_EQ(one.high, 237);
  // By hand: (1/2)^7 = 0.0078 is more than half a percent, (1/2)^8 = 0.0039 is not.
  EXPECT_EQ(binomial_interval(7, 0.5).low, 0);
  EXPECT_EQ(binomial_interval(8, 0.5).low, 1);
  EXPECT_EQ(binomial_interval(8, 0.5).high, 7);
  EXPECT_EQ(binomial_interval(100, 0).high, 0);
  EXPECT_EQ(binomial_interval(100, 1).low, 100);
  EXPECT_LT(binomial_interval(256, 0.25, 0.9999).low, binomial_interval(256, 0.25).low);
}

TEST(SelftestIntervals, SumsAndRuns) {
  const Interval sum = sum_interval(std::vector<double>(400, 0.5), std::vector<double>(400, 0.5));
  EXPECT_EQ(sum.low, std::floor(200 - kDeviations * 10));
  EXPECT_EQ(sum.high, std::ceil(200 + kDeviations * 10));
  EXPECT_EQ(sum_interval({0, 1}, {1, 1}).low, 1);
  // States that do not depend on the one before are independent draws.
  const Interval independent = gilbert_loss_interval(10'000, 0.1, 0.9);
  EXPECT_NEAR(independent.high - 0.1, kDeviations * std::sqrt(0.09 / 10'000), 1e-9);
  EXPECT_GT(gilbert_loss_interval(10'000, 0.01, 0.09).high, independent.high);
  EXPECT_EQ(gilbert_run_interval(100, 1).low, 1);
  EXPECT_NEAR(gilbert_run_interval(400, 0.2).high, 5 + kDeviations * std::sqrt(0.8) / 0.2 / 20, 1e-9);
}

// A process that does not run is as late as one in a machine that does not.
TEST(SelftestBusyWatch, NamesLateTimers) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    const BusyWatch watch;
    poll(nullptr, 0, 50);  // it has begun
    raise(SIGSTOP);
    poll(nullptr, 0, 50);
    const std::string reason = watch.reason();
    std::puts(reason.c_str());
    std::fflush(stdout);
    _exit(contains(reason, "timers were late") ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  poll(nullptr, 0, 200);
  ASSERT_EQ(kill(child, SIGCONT), 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SelftestOptions, SaysWhatIsAllowed) {
  const auto error = [](const Options& options) {
    const auto done = checked(options);
    return done ? std::string() : done.error().message;
  };
  EXPECT_EQ(error({}), "");
  EXPECT_EQ(checked({}).value().buffer_bytes, 125'000U);
  EXPECT_EQ(checked({.mtu = 9000}).value().buffer_bytes, kLeastBufferFrames * 9014);
  EXPECT_NE(error({.rate_bps = 0}).find("--rate"), std::string::npos);
  EXPECT_NE(error({.mtu = 100}).find("--mtu"), std::string::npos);
  EXPECT_NE(error({.buffer_bytes = 1000}).find("24 frames"), std::string::npos);
  EXPECT_NE(error({.only = {"rate", "speed"}}).find("no check 'speed'; allowed: marking"), std::string::npos);
  EXPECT_NE(error({.only = {"counters"}}).find("name one of those"), std::string::npos);
}

Names names_of(const Report& report, Outcome outcome) {
  Names names;
  for (const Check& one : report.checks) {
    if (one.outcome == outcome) names.insert(one.name);
  }
  return names;
}

class SelftestTest : public FabricTest {
 protected:
  void SetUp() override {
    FabricTest::SetUp();
    if (IsSkipped()) return;
    static const std::string reason = [this] {
      UpReport report;
      must_up(spec(2, 0), &report);
      return report.note;
    }();
    if (!reason.empty()) GTEST_SKIP() << reason;
  }
  void TearDown() override {
    FabricTest::TearDown();
    EXPECT_TRUE(namespaces_of("selftest-" + std::to_string(getpid())).empty());
  }
};

template <class Edit>
void edit_port(const Fabric& fabric, const Edit& edit) {
  const auto done = run_inside(fabric.switch_namespaces().front(), [&]() -> Result<void> {
    const auto ports = read_switch();
    if (!ports) return tl::unexpected(ports.error());
    for (const ProgramPort& port : *ports) {
      PortRules rules = port.rules;
      edit(rules);
      if (port.interface == "port0") return change_port(port.interface, rules);
    }
    return {};
  });
  ASSERT_TRUE(done) << done.error().message;
}

// The program again, with half of the buffer.
void halve_buffer(const Fabric& fabric) {
  std::vector<PortPlan> plans;
  for (const SwitchPort& port : fabric.ports()) {
    plans.push_back({port.interface, {port.rate_bps, port.buffer_bytes / 2}, {}, port.peer});
    shell("tc -n " + port.switch_namespace + " qdisc del dev " + port.interface + " clsact");
  }
  const auto done = run_inside(fabric.switch_namespaces().front(), [&] { return attach_switch(plans); });
  ASSERT_TRUE(done) << done.error().message;
}

// One packet that the probes know nothing of.
void slip_one_in(const Fabric& fabric) {
  on_host(fabric, 1, [&] {
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(9);
    inet_pton(AF_INET, fabric.address(0).c_str(), &to.sin_addr);
    EXPECT_EQ(sendto(fd, "x", 1, 0, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 1);
    close(fd);
  });
}

void set_rate(const Fabric& fabric, std::uint64_t bps) {
  shell(
      fmt::format("tc -n {} class change dev port0 parent 1: classid 1:1 htb rate {}bit ceil {}bit burst 15140 "
                  "cburst 15140 quantum 1514",
                  fabric.switch_namespaces().front(), bps, bps));
  for (int c = 0; c < kClasses; ++c) {
    shell(
        fmt::format("tc -n {} class change dev port0 parent 1:1 classid 1:1{} htb rate 8kbit ceil {}bit burst 1600 "
                    "cburst 15140 prio {} quantum 1514",
                    fabric.switch_namespaces().front(), c, bps, kClasses - 1 - c));
  }
}

TEST_F(SelftestTest, NamesWhatWasSabotagedAndNothingElse) {
  const std::map<std::string, std::function<void(const Fabric&)>> sabotage{
      {"marking",
       [](const Fabric& fabric) {
         edit_port(fabric, [](PortRules& rules) {
           rules.classes[0].mark_min_bytes = rules.classes[0].mark_max_bytes = rules.classes[0].mark_min_bytes * 5 / 4;
         });
       }},
      {"selective-drop", slip_one_in},
      {"trimming",
       [](const Fabric& fabric) { edit_port(fabric, [](PortRules& rules) { rules.classes[1].trim = false; }); }},
      {"order",
       [](const Fabric& fabric) {
         shell("tc -n " + fabric.switch_namespaces().front() +
               " class change dev port0 parent 1:1 classid 1:16 htb rate 8kbit ceil 50mbit burst 1600 cburst 15140 "
               "prio 7 quantum 1514");
       }},
      {"buffer", halve_buffer},
      {"drain", [](const Fabric& fabric) { set_rate(fabric, 150'000'000); }},
      {"isolation", [](const Fabric& fabric) { edit_port(fabric, [](PortRules& rules) { rules.classes = {}; }); }},
      {"loss", [](const Fabric& fabric) { edit_port(fabric, [](PortRules& rules) { rules.to_host.random = 0.015; }); }},
      {"dead-link",
       [](const Fabric& fabric) { edit_port(fabric, [](PortRules& rules) { rules.to_host.dead = false; }); }},
      {"ecmp",
       [](const Fabric& fabric) {
         shell("ip netns exec " + fabric.switch_namespaces().front() +
               " sh -c 'echo 0 > /proc/sys/net/ipv4/fib_multipath_hash_policy'");
       }},
  };
  Hooks hooks;
  hooks.before_check = [&](const Fabric& fabric, const std::string& check) {
    const auto found = sabotage.find(check);
    if (found != sabotage.end()) found->second(fabric);
  };
  Names wanted;
  for (const auto& [check, how] : sabotage) wanted.insert(check);
  // What the packet that was slipped in shows is the counters' word against the probes'.
  wanted.erase("selective-drop");
  wanted.insert("counters");
  Names found;
  std::string reports;
  for (int i = 0; i < kPatience && found != wanted; ++i) {
    const auto report = run({.rate_bps = 50'000'000, .quick = true}, {}, hooks);
    ASSERT_TRUE(report) << report.error().message;
    found = names_of(*report, Outcome::kFailed);
    // What needs a machine that keeps up with it.
    for (const Check& one : report->checks) {
      const bool busy = contains(one.reason, "the machine was busy") || contains(one.reason, "this machine sent");
      if (one.outcome == Outcome::kSkipped && busy && sabotage.contains(one.name)) found.insert(one.name);
    }
    reports += text(*report);
  }
  EXPECT_EQ(found, wanted) << reports;
}

// A burst that takes longer than the queue stands still shows nothing, whatever the switch does.
TEST_F(SelftestTest, ABurstThatWasTooSlowNeitherPassesNorFails) {
  Hooks hooks;
  hooks.burst_sent = [](const std::string&) { poll(nullptr, 0, 50); };
  // One of two is wrong.
  hooks.before_check = [](const Fabric& fabric, const std::string& check) {
    if (check == "buffer") halve_buffer(fabric);
  };
  const auto report =
      run({.rate_bps = 50'000'000, .only = {"selective-drop", "buffer"}, .quick = true, .strict = true}, {}, hooks);
  ASSERT_TRUE(report) << report.error().message;
  EXPECT_EQ(report->count(Outcome::kSkipped), static_cast<int>(report->checks.size())) << text(*report);
  EXPECT_TRUE(contains(report->checks.front().reason, "of the buffer")) << report->checks.front().reason;
  EXPECT_FALSE(report->good());
  EXPECT_TRUE(contains(text(*report), "strict: ")) << text(*report);
}

// A line that empties its queue at once leaves nothing that could be in order.
TEST_F(SelftestTest, AnOrderOfFewPacketsIsNotMeasured) {
  Hooks hooks;
  hooks.before_check = [](const Fabric& fabric, const std::string&) { set_rate(fabric, 100'000'000'000); };
  const auto report = run({.rate_bps = 50'000'000, .only = {"order"}, .quick = true}, {}, hooks);
  ASSERT_TRUE(report) << report.error().message;
  int seen = 0;
  for (const Check& one : report->checks) {
    if (one.what != "packets that a lower class overtook") continue;
    ++seen;
    EXPECT_EQ(one.outcome, Outcome::kSkipped) << text(*report);
    EXPECT_TRUE(contains(one.reason, "still waited") || contains(one.reason, "the machine was busy")) << one.reason;
  }
  EXPECT_EQ(seen, 1);
  EXPECT_TRUE(report->good()) << "but not where all must be measured";
}

TEST(SelftestReport, StrictTakesWhatWasSkippedForFailed) {
  Report report;
  report.options.only = {"rate"};
  EXPECT_TRUE(report.good());
  report.checks.emplace_back();
  report.checks.back().name = "rate";
  EXPECT_TRUE(report.good());
  report.options.strict = true;
  EXPECT_FALSE(report.good());
  report.checks.back().outcome = Outcome::kPassed;
  EXPECT_TRUE(report.good());
  report.options.strict = false;
  report.checks.back().outcome = Outcome::kFailed;
  EXPECT_FALSE(report.good());
}

TEST(SelftestReport, StrictMissesACheckWithoutARow) {
  Report report;
  for (const std::string& name : check_names()) {
    EXPECT_TRUE(report.good());
    report.options.strict = true;
    EXPECT_FALSE(report.good());
    EXPECT_TRUE(contains(text(report), "strict: no row of " + name)) << text(report);
    report.options.strict = false;
    report.checks.emplace_back();
    report.checks.back().name = name;
    report.checks.back().outcome = Outcome::kPassed;
  }
  EXPECT_TRUE(report.without_row().empty());
  report.options.strict = true;
  EXPECT_TRUE(report.good());
  report.options.only = {"rate", "nothing"};
  EXPECT_EQ(report.without_row(), (std::vector<std::string>{"nothing"}));
}

TEST_F(SelftestTest, ALineThatIsTooSlowNeverPasses) {
  Hooks hooks;
  hooks.before_check = [](const Fabric& fabric, const std::string&) { set_rate(fabric, 40'000'000); };
  const auto report =
      run({.rate_bps = 50'000'000, .buffer_bytes = 40'000, .only = {"rate", "backstop"}, .quick = true}, {}, hooks);
  ASSERT_TRUE(report) << report.error().message;
  ASSERT_EQ(report->checks.size(), 2U);
  for (const Check& one : report->checks) {
    EXPECT_NE(one.outcome, Outcome::kPassed) << text(*report);
    EXPECT_TRUE(one.outcome == Outcome::kFailed || one.reason.find("busy") != std::string::npos) << one.reason;
  }
}

// For this process, and the threads and processes that it starts from now on.
bool forbid_settings() {
  return unshare(CLONE_NEWNS) == 0 && mount(nullptr, "/proc", nullptr, MS_PRIVATE, nullptr) == 0 &&
         mount("/proc/sys", "/proc/sys", nullptr, MS_BIND, nullptr) == 0 &&
         mount(nullptr, "/proc/sys", nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

TEST_F(SelftestTest, WhatNeedsAFabricThatTheMachineCannotMakeIsSkippedByName) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    Hooks hooks;
    hooks.before_check = [](const Fabric&, const std::string&) {
      if (!forbid_settings()) _exit(1);
    };
    auto report = run({.rate_bps = 50'000'000, .only = {"dead-link", "ecmp"}, .quick = true}, {}, hooks);
    if (!report) _exit(2);
    std::fputs(text(*report).c_str(), stdout);
    std::fflush(stdout);
    if (names_of(*report, Outcome::kPassed) != Names{"dead-link"}) _exit(3);
    if (names_of(*report, Outcome::kSkipped) != Names{"ecmp"}) _exit(4);
    if (!contains(report->checks.back().reason, "CONFIG_IP_ROUTE_MULTIPATH")) _exit(5);
    if (!report->good()) _exit(6);
    report->options.strict = true;
    if (report->good()) _exit(7);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(namespaces_of("selftest-" + std::to_string(child)).empty());
}

int status_without_ebpf() {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    if (!forbid_bpf()) _exit(1);
    const auto report =
        run({.rate_bps = 50'000'000, .only = {"buffer", "rate", "marking", "ecmp", "counters"}, .quick = true}, {});
    if (!report) _exit(2);
    std::fputs(text(*report).c_str(), stdout);
    std::fflush(stdout);
    const Names skipped = names_of(*report, Outcome::kSkipped);
    if (names_of(*report, Outcome::kFailed) != Names()) _exit(3);
    if (!names_of(*report, Outcome::kPassed).contains("buffer")) _exit(4);
    for (const char* one : {"marking", "ecmp", "counters"}) {
      if (!skipped.contains(one)) _exit(5);
    }
    if (report->without_program.find("CONFIG_BPF_SYSCALL") == std::string::npos) _exit(6);
    for (const Check& one : report->checks) {
      if (one.name == "marking" && one.reason != report->without_program) _exit(7);
    }
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

TEST_F(SelftestTest, WithoutEbpfRateAndBufferAreStillMeasured) {
  int status = -1;
  for (int i = 0; i < kPatience && status != 0; ++i) status = status_without_ebpf();
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace clustar::bench::fabric::selftest
