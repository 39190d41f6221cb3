// What is said of facts: all is well once, then each thing that is not.
#include "bench/doctor/nccl_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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
  facts.fallback = foreign("/usr/lib/libnccl-net.so");
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
  facts.needed.reset();
  facts.needed_unknown = "/x/y.so is cut off: copy it again";
  expect(facts, "glibc", Outcome::kWarning, "needs is unknown: /x/y.so is cut off", "copy or build it again");
  facts.needed_unknown.clear();
  expect(facts, "glibc", Outcome::kOk, "2.36; no plugin was found", "");
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

TEST(NcclChecks, WhatStandsBehindTheChosenOneIsNotLookedAt) {
  NcclFacts facts = well({"NCCL_NET_PLUGIN=clustar,gone"});
  facts.net.push_back({.entry = "gone", .tried = {{"gone", "No such file"}}});
  const auto checks = nccl_checks(facts);
  EXPECT_TRUE(std::none_of(checks.begin(), checks.end(), [](const Check& one) { return one.name == "plugin gone"; }));
}

TEST(NcclChecks, WhatCannotBeUsedIsNotChosen) {
  for (const auto& spoil : std::vector<std::function<void(Search&)>>{[](Search& one) { one.path.clear(); },
                                                                     [](Search& one) { one.versions.clear(); },
                                                                     [](Search& one) { one.died = "signal 7"; }}) {
    NcclFacts facts = well();
    spoil(facts.net[0]);
    EXPECT_EQ(facts.chosen(), nullptr);
  }
}

TEST(NcclChecks, FixesNameThePluginBesideTheCommandOrAnyPath) {
  NcclFacts facts = well();
  facts.net = {{.entry = "other", .tried = {{"other", "other: No such file"}}}};
  EXPECT_EQ(check(facts, "plugin other").fix, "NCCL_NET_PLUGIN=/opt/libnccl-net-clustar.so");
  facts.beside.clear();
  facts.net[0].entry = "clustar";
  EXPECT_EQ(check(facts, "plugin clustar").fix, "NCCL_NET_PLUGIN=/path/to/libnccl-net-clustar.so");
}

TEST(NcclChecks, TheVerdictTellsThreeThings) {
  const auto verdict = [](const NcclFacts& facts) { return to_json(facts, nccl_checks(facts))["verdict"]; };
  EXPECT_EQ(verdict(well()), "NCCL would use clustar");
  NcclFacts facts = well({"NCCL_NET_PLUGIN=unset"});
  EXPECT_EQ(verdict(facts), "NCCL would load clustar, but something above fails");
  facts.net[0].clustar = false;
  EXPECT_EQ(verdict(facts), "NCCL would not use clustar here");
}

TEST(NcclChecks, NcclNet) {
  expect(well({"NCCL_NET=unset"}), "NCCL_NET", Outcome::kWarning, "another network in silence", "NCCL_NET=clustar");
  const NcclFacts other_case = well({"NCCL_NET=CluStar"});
  expect(other_case, "NCCL_NET", Outcome::kOk, "'CluStar'", "");
  EXPECT_NE(other_case.chosen(), nullptr);
  const NcclFacts facts = well({"NCCL_NET=Socket"});
  expect(facts, "NCCL_NET", Outcome::kFailed, "'Socket': NCCL takes the network of that name only",
         "export NCCL_NET=clustar");
  EXPECT_EQ(facts.chosen(), nullptr);
}

TEST(NcclChecks, WhatOtherProcessesWouldTake) {
  NcclFacts facts = well();
  facts.fallback = found("", "/usr/lib/libnccl-net.so");
  expect(facts, "libnccl-net.so", Outcome::kOk, "/usr/lib/libnccl-net.so is clustar, too", "");
  facts.fallback = foreign("/usr/lib/libnccl-net.so");
  expect(facts, "libnccl-net.so", Outcome::kWarning, "/usr/lib/libnccl-net.so ('Foreign') is taken by every process",
         "on all ranks");
  expect(facts, "copies", Outcome::kOk, "no second", "");
  facts.strays = {"/old/libnccl-net-clustar.so", "/old/libnccl-net-other.so"};
  expect(facts, "copies", Outcome::kWarning,
         "more than one: /old/libnccl-net-clustar.so; taken is /opt/libnccl-net-clustar.so", "remove the others");
  // Two of the name, neither of which is taken.
  facts.net[0].clustar = false;
  facts.strays.push_back("/older/libnccl-net-clustar.so");
  expect(facts, "copies", Outcome::kWarning,
         "/old/libnccl-net-clustar.so, /older/libnccl-net-clustar.so; taken is /opt/", "");
  facts.strays.pop_back();
  // The only one, which cannot be opened, is not a second one.
  facts.net[0].path.clear();
  expect(facts, "copies", Outcome::kOk, "no second", "");
}

OfiFacts libfabric(const std::string& taken, const std::string& why) {
  return {.module = true, .there = "libfabric 1.17 has tcp;ofi_rxm, shm", .taken = taken, .why = why};
}

TEST(NcclChecks, LibfabricAsItIsThere) {
  NcclFacts facts = well();
  facts.ofi = libfabric("tcp;ofi_rxm", "kernel TCP");
  expect(facts, "libfabric", Outcome::kOk, "has tcp;ofi_rxm, shm; CLUSTAR_TRANSPORT=ofi would take tcp;ofi_rxm", "");
  facts.ofi = {.module = true, .why = "libfabric.so.1: cannot open"};
  expect(facts, "libfabric", Outcome::kOk, "libfabric.so.1: cannot open (only CLUSTAR_TRANSPORT=ofi needs it)", "");
  facts.ofi = {};
  for (const Check& one : nccl_checks(facts)) EXPECT_NE(one.name, "libfabric");
}

TEST(NcclChecks, LibfabricThatIsAskedForAndCannotWork) {
  for (const char* const asking : {"CLUSTAR_TRANSPORT=ofi", "CLUSTAR_REQUIRE=mlt|ofi"}) {
    NcclFacts facts = well({asking});
    expect(facts, "libfabric", Outcome::kFailed, "libclustar-ofi.so, which libfabric needs, is not", "libfabric-dev");
    facts.ofi = {.module = true, .why = "libfabric.so.1: cannot open; install libfabric"};
    expect(facts, "libfabric", Outcome::kFailed, "install libfabric", "or another CLUSTAR_TRANSPORT");
    facts.ofi = libfabric("", "none of verbs, efa, cxi and tcp is here");
    expect(facts, "libfabric", Outcome::kFailed, "has tcp;ofi_rxm, shm; none of verbs", "another CLUSTAR_TRANSPORT");
    facts.ofi = libfabric("tcp;ofi_rxm", "kernel TCP");
    expect(facts, "libfabric", Outcome::kOk, "CLUSTAR_TRANSPORT=ofi takes tcp;ofi_rxm (kernel TCP)", "");
  }
}

TEST(NcclChecks, DatagramsOfLibfabricHaveAProviderOfTheirOwn) {
  NcclFacts facts = well({"CLUSTAR_TRANSPORT=mlt", "CLUSTAR_IO=ofi", "CLUSTAR_OFI_PROVIDER=udp"});
  expect(facts, "libfabric datagrams", Outcome::kFailed, "libclustar-ofi.so, which CLUSTAR_IO=ofi needs",
         "another CLUSTAR_IO");
  // The provider that was named has no reliable messages, which nobody asked for.
  facts.ofi = libfabric("", "CLUSTAR_OFI_PROVIDER=udp: no such provider here");
  facts.ofi.why_datagrams = "no provider has datagrams here";
  expect(facts, "libfabric datagrams", Outcome::kFailed, "no provider has datagrams here", "another CLUSTAR_IO");
  facts.ofi.datagrams = "udp";
  facts.ofi.why_datagrams = "CLUSTAR_OFI_PROVIDER";
  expect(facts, "libfabric datagrams", Outcome::kOk, "CLUSTAR_IO=ofi takes udp (CLUSTAR_OFI_PROVIDER)", "");
  for (const Check& one : nccl_checks(facts)) EXPECT_NE(one.name, "libfabric");
}

TEST(NcclChecks, AProviderOfLibfabricThatIsNotThereOrDoesNotCount) {
  NcclFacts facts = well({"CLUSTAR_TRANSPORT=ofi", "CLUSTAR_OFI_PROVIDER=efa"});
  facts.ofi = libfabric("", "CLUSTAR_OFI_PROVIDER=efa: no such provider here");
  expect(facts, "libfabric", Outcome::kFailed, "efa: no such provider here", "unset CLUSTAR_OFI_PROVIDER");
  NcclFacts unasked = well({"CLUSTAR_OFI_PROVIDER=efa"});
  unasked.ofi = facts.ofi;
  expect(unasked, "libfabric", Outcome::kWarning, "efa: no such provider here", "unset CLUSTAR_OFI_PROVIDER");
  unasked.ofi = libfabric("efa", "CLUSTAR_OFI_PROVIDER");
  expect(unasked, "libfabric", Outcome::kWarning, "does not count without it", "CLUSTAR_TRANSPORT=ofi, or unset");
  unasked.ofi = {};
  expect(unasked, "libfabric", Outcome::kWarning, "CLUSTAR_OFI_PROVIDER is 'efa', but libclustar-ofi.so",
         "libfabric-dev");
  facts.ofi = libfabric("shm", "CLUSTAR_OFI_PROVIDER");
  expect(facts, "libfabric", Outcome::kWarning, "reaches this host only", "unset CLUSTAR_OFI_PROVIDER");
}

TEST(NcclChecks, WhoIsProfilerAndTuner) {
  expect(well(), "NCCL_TUNER_PLUGIN", Outcome::kOk,
         "not set; no other is found, so NCCL takes the one in the net plugin's file", "");
  NcclFacts facts = well({"NCCL_PROFILER_PLUGIN=none"});
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kWarning, "nothing may be lost", "unset NCCL_PROFILER_PLUGIN");
  facts = well();
  facts.profiler = {.path = "/x/libnccl-profiler.so", .versions = {5}, .name = "Foreign"};
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kWarning, "NCCL takes /x/libnccl-profiler.so for it",
         "NCCL_PROFILER_PLUGIN=/opt/libnccl-net-clustar.so; CLUSTAR_CHAIN_PROFILER");
  facts.profiler.clustar = true;
  expect(facts, "NCCL_PROFILER_PLUGIN", Outcome::kOk, "/x/libnccl-profiler.so", "");
  facts = well();
  facts.tuner = foreign("/x/libnccl-tuner.so");
  expect(facts, "NCCL_TUNER_PLUGIN", Outcome::kWarning, "/x/libnccl-tuner.so for it: clustar does not forbid LL128",
         "");
  EXPECT_EQ(check(facts, "NCCL_TUNER_PLUGIN").fix, "NCCL_TUNER_PLUGIN=/opt/libnccl-net-clustar.so");
  facts = well({"NCCL_TUNER_PLUGIN=None"});
  expect(facts, "NCCL_TUNER_PLUGIN", Outcome::kWarning, "'None': clustar does not forbid LL128",
         "unset NCCL_TUNER_PLUGIN");
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
  facts.tuner.clustar = true;
  facts.banner.lines.clear();  // what does not come up keeps no order
  expect(facts, "LL128", Outcome::kOk, "the tuner forbids it", "");
  expect(well({"NCCL_PROTO=Simple"}), "LL128", Outcome::kOk, "'Simple', which excludes it", "");
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

TEST(NcclChecks, WhatThePluginWarnsOfIsAWarning) {
  NcclFacts facts = well();
  for (const char* text : {"NET/clustar: one thing", "NET/clustar: clustar 9: transport mlt, devices: another"}) {
    facts.banner.lines.insert(facts.banner.lines.begin(), {true, text});
  }
  expect(facts, "banner", Outcome::kWarning, "transport mlt, devices: another; NET/clustar: one thing",
         "sentence names");
  // Only what it tells, not what it warns of, names the transport.
  expect(facts, "transport", Outcome::kOk, "tcp, chosen by auto", "");
  EXPECT_EQ(version_of(facts.banner), "0.1.0");
  // It may fail after it has said so.
  facts.banner.failure = "devices returned 0, and 0 devices";
  expect(facts, "transport", Outcome::kFailed, "and 0 devices: NET/clustar: ", "clustar settings");
}

TEST(NcclChecks, NcclDebugDecidesWhetherTheBannerIsSeen) {
  for (const char* value : {"NCCL_DEBUG=unset", "NCCL_DEBUG=WARN"}) {
    expect(well({value}), "NCCL_DEBUG", Outcome::kOk, "the banner with INFO only", "");
  }
  for (const char* value : {"info", "TRACE"}) {
    const Check one = check(well({std::string("NCCL_DEBUG=") + value, "NCCL_DEBUG_SUBSYS=NET"}), "NCCL_DEBUG");
    EXPECT_EQ(one.evidence, "'" + std::string(value) + "', NCCL_DEBUG_SUBSYS is 'NET'");
  }
}

TEST(NcclChecks, LockedMemoryWhereVerbsAre) {
  NcclFacts facts = well();
  facts.memlock_bytes = 8u << 20;
  const auto checks = nccl_checks(facts);
  EXPECT_TRUE(std::none_of(checks.begin(), checks.end(), [](const Check& one) { return one.name == "memlock"; }));
  facts.rdma_devices = {"mlx5_0"};
  expect(facts, "memlock", Outcome::kFailed, "8192 KiB may be locked", "--ulimit memlock=-1");
  facts.memlock_bytes = 64u << 20;
  expect(facts, "memlock", Outcome::kWarning, "65536 KiB", "unlimited");
  facts.memlock_bytes = 1u << 30;
  expect(facts, "memlock", Outcome::kWarning, "1048576 KiB", "unlimited");
  facts.memlock_bytes.reset();
  expect(facts, "memlock", Outcome::kOk, "may lock what it wants", "");
  facts = well({"NCCL_IB_DISABLE=1"});
  facts.rdma_devices = {"mlx5_0"};
  expect(facts, "NCCL_IB_DISABLE", Outcome::kWarning, "counts for clustar, too", "CLUSTAR_IB_DISABLE=0");
  for (const auto& more :
       {std::vector<std::string>{"NCCL_IB_DISABLE=0"}, {"NCCL_IB_DISABLE=1", "CLUSTAR_IB_DISABLE=0"}}) {
    facts = well(more);
    facts.rdma_devices = {"mlx5_0"};
    const auto all = nccl_checks(facts);
    EXPECT_TRUE(std::none_of(all.begin(), all.end(), [](const Check& one) { return one.name == "NCCL_IB_DISABLE"; }));
  }
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
