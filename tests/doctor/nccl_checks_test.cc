// What is said of facts: all is well once, then each thing that is not.
#include "bench/doctor/nccl_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/doctor/nccl_report.h"

namespace clustar::bench::doctor {
namespace {

using ::testing::HasSubstr;

Search found(const std::string& entry, const std::string& path) {
  return {.entry = entry,
          .tried = {{entry, "no such file"}, {"libnccl-net-clustar.so", ""}},
          .path = path,
          .versions = {12, 11, 10, 9, 8},
          .name = "clustar",
          .clustar = true,
          .build_id = "abc"};
}

Search foreign(const std::string& path) { return {.path = path, .versions = {8}, .name = "Foreign"}; }

// A machine on which nothing is wrong.
NcclFacts well(std::vector<std::string> more = {}) {
  std::vector<std::string> environment = {"NCCL_NET_PLUGIN=clustar", "NCCL_NET=clustar", "NCCL_NET_PLUGIN_REF_COUNT=1"};
  // The later of two counts.
  for (const std::string& one : more) {
    std::erase_if(environment,
                  [&](const std::string& old) { return old.substr(0, old.find('=')) == one.substr(0, one.find('=')); });
    if (!one.ends_with("=unset")) environment.push_back(one);
  }
  NcclFacts facts{.host = "a", .variables = NcclVariables::of(environment)};
  facts.net = {found("clustar", "/opt/libnccl-net-clustar.so")};
  facts.beside = "/opt/libnccl-net-clustar.so";
  facts.banner = {.path = "/opt/libnccl-net-clustar.so",
                  .lines = {{false, "NET/clustar: clustar 0.1.0: transport tcp, devices: eth0 (10000 Mbit/s)"},
                            {false, "NET/clustar: tcp gives no order of 128-byte lines: LL128 is masked where ..."},
                            {false, "NET/clustar: config: tcp_sockets = 1 (default)"},
                            {false, "NET/clustar: config: socket_ifname = eth0 (environment)"}},
                  .devices = {"eth0"}};
  facts.glibc = {2, 36};
  facts.needed = GlibcVersion{2, 35};
  return facts;
}

Check check(const NcclFacts& facts, const std::string& name) {
  for (const Check& one : nccl_checks(facts)) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << "there is no check '" << name << "'";
  return {};
}

void expect(const NcclFacts& facts, const std::string& name, Outcome outcome, const std::string& evidence,
            const std::string& fix) {
  const Check one = check(facts, name);
  EXPECT_EQ(to_string(one.outcome), std::string(to_string(outcome))) << name << ": " << one.evidence;
  EXPECT_THAT(one.evidence, HasSubstr(evidence)) << name;
  EXPECT_THAT(one.fix, HasSubstr(fix)) << name;
}

TEST(NcclChecks, WhereAllIsWellNothingIsToDo) {
  for (const Check& one : nccl_checks(well())) {
    EXPECT_EQ(one.outcome, Outcome::kOk) << one.name << ": " << one.evidence;
    EXPECT_EQ(one.fix, "") << one.name;
  }
  EXPECT_THAT(to_text(well(), nccl_checks(well()), false), HasSubstr("NCCL would use clustar: 0 failed, 0 warnings"));
  expect(well(), "transport", Outcome::kOk, "tcp, chosen by auto, 1 device", "");
  expect(well({"CLUSTAR_TRANSPORT=tcp"}), "transport", Outcome::kOk, "tcp, 1 device", "");
}

TEST(NcclChecks, ThePluginIsNotAskedFor) {
  NcclFacts facts = well({"NCCL_NET_PLUGIN=unset"});
  expect(facts, "NCCL_NET_PLUGIN", Outcome::kFailed, "NCCL looks for libnccl-net.so", "NCCL_NET_PLUGIN=clustar");
  facts.fallback = found("", "/usr/lib/libnccl-net.so");
  expect(facts, "NCCL_NET_PLUGIN", Outcome::kOk, "libnccl-net.so, which NCCL looks for then, is clustar", "");
  for (const char* none : {"NCCL_NET_PLUGIN=none", "NCCL_NET_PLUGIN="}) {
    expect(well({none}), "NCCL_NET_PLUGIN", Outcome::kFailed, "takes no external plugin", "NCCL_NET_PLUGIN=clustar");
  }
}

TEST(NcclChecks, ThePluginIsNotFound) {
  NcclFacts facts = well();
  facts.net = {
      {.entry = "clustar", .tried = {{"clustar", "clustar: No such file"}, {"libnccl-net-clustar.so", "nor this"}}}};
  expect(facts, "plugin clustar", Outcome::kFailed, "not found: clustar: No such file; nor this",
         "LD_LIBRARY_PATH=/opt:$LD_LIBRARY_PATH, or NCCL_NET_PLUGIN=/opt/libnccl-net-clustar.so");
  EXPECT_THAT(to_text(facts, nccl_checks(facts), false), HasSubstr("NCCL would not use clustar here: 1 failed"));
}

TEST(NcclChecks, ThePluginCannotBeOpened) {
  NcclFacts facts = well();
  facts.net = {{.entry = "clustar",
                .tried = {{"clustar", "clustar: cannot open shared object file: No such file or directory"},
                          {"libnccl-net-clustar.so", "version `GLIBC_2.99' not found"}},
                .file = "/x/y.so"}};
  facts.needed = GlibcVersion{2, 99};
  expect(facts, "plugin clustar", Outcome::kFailed, "/x/y.so cannot be opened: version `GLIBC_2.99' not found",
         "loader");
  expect(facts, "glibc", Outcome::kFailed, "2.36 is here, the plugin needs 2.99", "newer container");
  facts.net[0].died = "libnccl-net-clustar.so: signal 7 (Bus error)";
  expect(facts, "plugin clustar", Outcome::kFailed, "signal 7", "whole file");
  facts.net = {{.entry = "clustar", .path = "/x/y.so"}};
  expect(facts, "plugin clustar", Outcome::kFailed, "exports no ncclNetPlugin_v<N>", "NCCL_NET_PLUGIN=/opt/");
  facts.net = {{.entry = "static"}};
  expect(facts, "plugin static", Outcome::kFailed, "linked into the program", "longer name");
}

TEST(NcclChecks, AnotherPluginComesFirst) {
  NcclFacts facts = well({"NCCL_NET_PLUGIN=other,clustar", "NCCL_NET=unset"});
  facts.net = {foreign("/x/libnccl-net-other.so"), found("clustar", "/opt/libnccl-net-clustar.so")};
  expect(facts, "whose", Outcome::kFailed, "/x/libnccl-net-other.so comes first, and it is the plugin 'Foreign'",
         "NCCL_NET=clustar");
  facts = well({"NCCL_NET_PLUGIN=other,clustar"});
  facts.net = {foreign("/x/libnccl-net-other.so"), found("clustar", "/opt/libnccl-net-clustar.so")};
  expect(facts, "whose", Outcome::kOk, "clustar, net tables v12, v11, v10, v9, v8", "");
}

TEST(NcclChecks, OneOfAListThatIsNotThereIsAWarningWhereTheNextIs) {
  NcclFacts facts = well({"NCCL_NET_PLUGIN=gone,clustar"});
  facts.net = {{.entry = "gone", .tried = {{"gone", "No such file"}}}, found("clustar", "/opt/libnccl-net-clustar.so")};
  expect(facts, "plugin gone", Outcome::kWarning, "not found", "NCCL_NET_PLUGIN=");
  EXPECT_FALSE(any_failed(nccl_checks(facts)));
}

TEST(NcclChecks, NcclNet) {
  expect(well({"NCCL_NET=unset"}), "NCCL_NET", Outcome::kWarning, "another network in silence", "NCCL_NET=clustar");
  expect(well({"NCCL_NET=CluStar"}), "NCCL_NET", Outcome::kOk, "'CluStar'", "");
  const NcclFacts facts = well({"NCCL_NET=Socket"});
  expect(facts, "NCCL_NET", Outcome::kFailed, "'Socket': NCCL takes the network of that name only",
         "export NCCL_NET=clustar");
  EXPECT_EQ(facts.chosen(), nullptr);
}

TEST(NcclChecks, WhatOtherProcessesWouldTake) {
  NcclFacts facts = well();
  facts.fallback = foreign("/usr/lib/libnccl-net.so");
  expect(facts, "libnccl-net.so", Outcome::kWarning, "/usr/lib/libnccl-net.so ('Foreign') is taken by every process",
         "on all ranks");
  expect(facts, "copies", Outcome::kOk, "no second", "");
  facts.strays = {"/old/libnccl-net-clustar.so", "/old/libnccl-net-other.so"};
  expect(facts, "copies", Outcome::kWarning,
         "more than one: /old/libnccl-net-clustar.so; taken is /opt/libnccl-net-clustar.so", "remove the others");
  // The only one, which cannot be opened, is not a second one.
  facts.net[0].path.clear();
  expect(facts, "copies", Outcome::kOk, "no second", "");
}

TEST(NcclChecks, WhoIsProfilerAndTuner) {
  NcclFacts facts = well({"NCCL_PROFILER_PLUGIN=none"});
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kWarning, "nothing may be lost", "unset NCCL_PROFILER_PLUGIN");
  facts = well();
  facts.profiler = {.path = "/x/libnccl-profiler.so", .versions = {5}, .name = "Foreign"};
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kWarning, "NCCL takes /x/libnccl-profiler.so for it",
         "NCCL_PROFILER_PLUGIN=/opt/libnccl-net-clustar.so; CLUSTAR_CHAIN_PROFILER");
  facts.profiler.clustar = true;
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kOk, "/x/libnccl-profiler.so", "");
  facts.profiler.died = "x: signal 11";
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kFailed, "signal 11", "unset");
}

TEST(NcclChecks, Ll128IsForbiddenByWhom) {
  expect(well(), "LL128", Outcome::kOk, "the tuner forbids it", "");
  expect(well({"NCCL_TUNER_PLUGIN=none"}), "LL128", Outcome::kFailed, "wrong results, or a hang", "NCCL_PROTO=^LL128");
  expect(well({"NCCL_TUNER_PLUGIN=none", "NCCL_PROTO=^LL128"}), "LL128", Outcome::kOk, "excludes it", "");
  expect(well({"NCCL_PROTO=LL128"}), "LL128", Outcome::kFailed, "allows nothing else", "NCCL_PROTO=^LL128");
  expect(well({"NCCL_PROTO=allreduce:LL128"}), "LL128", Outcome::kWarning, "not judged", "NCCL_PROTO=^LL128");
  NcclFacts facts = well();
  facts.tuner = {.path = "/x/libnccl-tuner.so", .versions = {4}, .name = "Foreign"};
  expect(facts, "LL128", Outcome::kFailed, "no tuner of ours", "NCCL_PROTO=^LL128");
  facts.banner.lines.erase(facts.banner.lines.begin() + 1);
  expect(facts, "LL128", Outcome::kOk, "tcp keeps the order", "");
}

TEST(NcclChecks, TheNameThatNcclForgets) {
  for (const char* value : {"NCCL_NET_PLUGIN_REF_COUNT=unset", "NCCL_NET_PLUGIN_REF_COUNT=0"}) {
    expect(well({value}), "NCCL_NET_PLUGIN_REF_COUNT", Outcome::kWarning, "nccl#1978", "REF_COUNT=1");
  }
}

TEST(NcclChecks, ThePluginRefuses) {
  NcclFacts facts = well();
  facts.banner.lines = {{true, "NET/clustar: no transport that was asked for works here (verbs: no RDMA device)"}};
  expect(facts, "transport", Outcome::kFailed, "no RDMA device", "clustar settings");
  facts.banner.failure = "init returned 2";
  expect(facts, "transport", Outcome::kFailed, "init returned 2: NET/clustar: no transport", "");
  facts.banner.lines.clear();
  facts.banner.failure.clear();
  expect(facts, "transport", Outcome::kFailed, "does not say", "");
}

TEST(NcclChecks, LockedMemoryWhereVerbsAre) {
  NcclFacts facts = well();
  facts.memlock_bytes = 8u << 20;
  const auto checks = nccl_checks(facts);
  EXPECT_TRUE(std::none_of(checks.begin(), checks.end(), [](const Check& one) { return one.name == "memlock"; }));
  facts.rdma_devices = {"mlx5_0"};
  expect(facts, "memlock", Outcome::kFailed, "8192 KiB may be locked", "--ulimit memlock=-1");
  facts.memlock_bytes = 1u << 30;
  expect(facts, "memlock", Outcome::kWarning, "1048576 KiB", "unlimited");
  facts.memlock_bytes.reset();
  expect(facts, "memlock", Outcome::kOk, "may lock what it wants", "");
  facts = well({"NCCL_IB_DISABLE=1"});
  facts.rdma_devices = {"mlx5_0"};
  expect(facts, "NCCL_IB_DISABLE", Outcome::kWarning, "counts for clustar, too", "CLUSTAR_IB_DISABLE=0");
}

TEST(NcclChecks, AFileThatDoesNotCountIsNamed) {
  NcclFacts facts = well();
  facts.variables.add_file("/etc/nccl.conf", "NCCL_NET=Socket\n");
  expect(facts, "nccl.conf", Outcome::kWarning, "NCCL_NET=Socket in /etc/nccl.conf does not count", "remove one");
}

TEST(NcclChecks, JsonHasWhatToolsRead) {
  const NcclFacts facts = well({"NCCL_NET=unset"});
  const auto results = to_json(facts, nccl_checks(facts));
  EXPECT_EQ(results["uses_clustar"], true);
  EXPECT_EQ(results["transport"], "tcp");
  EXPECT_EQ(results["version"], "0.1.0");
  EXPECT_EQ(results["fail"], 0);
  EXPECT_EQ(results["warn"], 1);
  EXPECT_EQ(results["pass"], results["checks"].size() - 1);
  EXPECT_EQ(results["settings"]["socket_ifname"]["value"], "eth0");
  EXPECT_EQ(results["settings"]["socket_ifname"]["source"], "environment");
  for (const auto& one : results["checks"]) {
    EXPECT_EQ(one["fix"].is_null(), one["outcome"] == "ok") << one;
    EXPECT_NE(one["evidence"], "") << one;
  }
}

TEST(NcclChecks, TextLeavesDefaultsOut) {
  const std::string text = to_text(well(), nccl_checks(well()), false);
  EXPECT_THAT(text, HasSubstr("and 1 settings at their default (--all)"));
  EXPECT_THAT(text, HasSubstr("socket_ifname = eth0"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("tcp_sockets")));
  EXPECT_THAT(to_text(well(), nccl_checks(well()), true), HasSubstr("tcp_sockets = 1 (default)"));
}

}  // namespace
}  // namespace clustar::bench::doctor
