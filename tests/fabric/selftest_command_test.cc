// `clustar fabric selftest` as a user runs it.
#include <signal.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/fabric/selftest/selftest.h"
#include "tests/fabric/fabric_under_test.h"
#include "tests/trainer/command.h"

namespace clustar::bench::fabric {
namespace {

using trainer::Command;
using trainer::Outcome;
using trainer::run_clustar;
using trainer::TemporaryDirectory;

class SelftestCommand : public FabricTest {};

// Every row of a full run; `true`: a count, which a busy machine cannot spoil.
const std::map<std::pair<std::string, std::string>, bool>& all_rows() {
  static const std::map<std::pair<std::string, std::string>, bool> rows{
      {{"marking", "first packet marked"}, false},
      {{"marking", "unmarked above the threshold"}, false},
      {{"marking", "marked without ECT or of another class"}, false},
      {{"red", "marks between Kmin and Kmax"}, false},
      {{"selective-drop", "of its class passed, only below"}, false},
      {{"selective-drop", "lost of the other class"}, false},
      {{"trimming", "packets trimmed to headers and 96 B"}, false},
      {{"trimming", "packets lost"}, false},
      {{"trimming", "wrong length, checksum or class"}, false},
      {{"trimming", "seen trimmed by a raw socket"}, false},
      {{"order", "packets that a lower class overtook"}, false},
      {{"order", "packets lost"}, false},
      {{"buffer", "packets of a burst that it held"}, false},
      {{"rate", "under steady overload"}, false},
      {{"drain", "of a full buffer"}, false},
      {{"isolation", "class 5 lost beside an overload of class 1"}, false},
      {{"packets", "largest one that passed the switch"}, true},
      {{"packets", "super-packets among those that passed"}, true},
      {{"loss", "lost at random"}, true},
      {{"gilbert-elliott", "lost share"}, true},
      {{"gilbert-elliott", "mean length of a run of losses"}, true},
      {{"dead-link", "arrived over it"}, true},
      {{"dead-link", "arrived after the repair"}, true},
      {{"ecmp", "flows lost without a dead way"}, true},
      {{"ecmp", "flows that keep to one spine"}, true},
      {{"ecmp", "on the spine that has fewest"}, true},
      {{"ecmp", "on the spine that has most"}, true},
      {{"delay", "least on one way, two cables"}, false},
      {{"delay", "median of the round trip"}, false},
      {{"backstop", "drops behind the switch program"}, false},
      {{"counters", "experiments in which they agree with the probes"}, true},
  };
  return rows;
}

// What a machine may lack, by the check and a part of the reason; whatever else is skipped is a fault of the selftest.
bool may_be_skipped(const std::string& check, const std::string& reason) {
  static const std::multimap<std::string, std::string> reasons{
      {"rate", "this machine sent"},
      {"drain", "this machine sent"},
      {"isolation", "this machine sent"},
      {"order", "packets still waited when all had come"},
      {"bursts", "the machine was too busy to tell packets within a burst"},
      {"ecmp", "needs a kernel with CONFIG_IP_ROUTE_MULTIPATH"},
  };
  const bool timed = std::any_of(all_rows().begin(), all_rows().end(),
                                 [&](const auto& row) { return row.first.first == check && !row.second; });
  if (timed && reason.starts_with("the machine was busy")) return true;
  const auto [begin, end] = reasons.equal_range(check);
  return std::any_of(begin, end, [&](const auto& one) { return contains(reason, one.second); });
}

TEST_F(SelftestCommand, NothingFailsOnThisMachine) {
  const TemporaryDirectory folder;
  Outcome outcome;
  for (int i = 0; i < kPatience && (i == 0 || outcome.status != 0); ++i) {
    outcome = run_clustar({"fabric", "selftest", "--quick", "--json", folder.file("selftest.json")});
  }
  ASSERT_EQ(outcome.status, 0) << outcome.out << outcome.err;
  std::printf("%s", outcome.out.c_str());
  EXPECT_TRUE(contains(outcome.out, " passed, 0 failed, ")) << outcome.out;
  EXPECT_TRUE(contains(outcome.err, "clustar fabric selftest: ")) << "progress";
  const auto document = folder.read_json("selftest.json");
  EXPECT_EQ(document["command"], "fabric");
  const auto& results = document["results"];
  EXPECT_EQ(results["failed"], 0);
  EXPECT_GT(results["passed"], 0);
  EXPECT_EQ(results["rate_bps"], 200'000'000);
  for (const char* key : {"skipped", "load_average", "others_used_cores", "cores", "seconds", "mtu", "buffer_bytes"}) {
    EXPECT_TRUE(results[key].is_number()) << key;
  }
  EXPECT_EQ(results["checks"].size(), results["passed"].get<std::size_t>() + results["skipped"].get<std::size_t>());
  std::map<std::pair<std::string, std::string>, std::string> seen;
  std::set<std::string> names;
  for (const auto& check : results["checks"]) {
    seen[{check["name"], check["what"]}] = check["outcome"];
    names.insert(check["name"]);
  }
  EXPECT_EQ(names.size(), selftest::check_names().size());
  EXPECT_TRUE(results["without_row"].empty()) << results["without_row"];
  const std::string without_program = results["without_switch_program"];
  for (const auto& [row, is_count] : all_rows()) {
    // A check that is skipped as a whole has one row without a text; for what reason is looked at below.
    if (!without_program.empty() || seen.contains({row.first, ""})) continue;
    EXPECT_TRUE(seen.contains(row)) << row.first << ", " << row.second;
    EXPECT_TRUE(!is_count || seen[row] == "passed") << row.first << ", " << row.second << ": " << seen[row];
  }
  for (const auto& check : results["checks"]) {
    for (const char* key : {"name", "what", "unit", "outcome", "reason"}) EXPECT_TRUE(check[key].is_string()) << key;
    if (check["outcome"] == "skipped") {
      const std::string reason = check["reason"];
      const bool lacks_program = !without_program.empty() && reason == without_program;
      EXPECT_TRUE(lacks_program || may_be_skipped(check["name"], reason)) << check;
      continue;
    }
    EXPECT_EQ(check["reason"], "");
    ASSERT_TRUE(check["measured"].is_number() && check["asked"].is_number() && check["allowed"].size() == 2) << check;
    EXPECT_GE(check["measured"], check["allowed"][0]);
    EXPECT_LE(check["measured"], check["allowed"][1]);
  }
}

TEST_F(SelftestCommand, WrongUsage) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong{
      {{"--rate", "off"}, "--rate"},
      {{"--rate", "fast"}, "--rate"},
      {{"--buffer", "0"}, "--buffer"},
      {{"--buffer", "1k"}, "24 frames"},
      {{"--mtu", "100"}, "--mtu"},
      {{"--only", "rate,speed"}, "no check 'speed'; allowed: marking"},
      {{"--only", "backstop"}, "name one"},
      {{"--strict", "--mtu", "100"}, "--mtu"},
      {{"--json", "/no/such/folder/x"}, "--json"},
  };
  for (const auto& [arguments, message] : wrong) {
    std::vector<std::string> all{"fabric", "selftest"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Outcome outcome = run_clustar(all);
    EXPECT_EQ(outcome.status, 2) << message;
    EXPECT_TRUE(contains(outcome.err, message)) << outcome.err;
  }
}

TEST_F(SelftestCommand, CtrlCLeavesNothing) {
  Command command({"fabric", "selftest", "--quick", "--only", "order,rate,isolation"});
  ASSERT_TRUE(command.wait_for_error_text(" order"));  // judged, or skipped on a busy machine
  const std::string name = "selftest-" + std::to_string(command.pid());
  // One fabric may have gone and the next not be there yet.
  EXPECT_TRUE(eventually([&] { return !namespaces_of(name).empty(); }));
  kill(command.pid(), SIGINT);
  const Outcome outcome = command.wait(std::chrono::seconds(40));
  EXPECT_EQ(outcome.status, 128 + SIGINT) << outcome.err;
  EXPECT_TRUE(namespaces_of(name).empty());
}

}  // namespace
}  // namespace clustar::bench::fabric
