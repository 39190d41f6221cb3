// The tester tested: a correct plugin passes every check, and each check fails for a plugin with the defect that it is
// there to find.
#include "bench/conform/conform.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "bench/conform/process.h"
#include "bench/report/report.h"

namespace clustar::bench::conform {
namespace {

using std::chrono::milliseconds;

Options options_for(const std::string& only) {
  Options options;
  options.only = only;
  options.env.plugin = SAMPLE_PLUGIN;
  options.env.freeze = milliseconds(1500);
  options.env.death_bound = milliseconds(1000);
  options.env.timeout = milliseconds(20000);
  options.env.emulated_gpu = true;  // the sample takes host memory for a GPU's
  return options;
}

Report run_sample(const Options& options) {
  auto report = run(options, nullptr, nullptr);
  EXPECT_TRUE(report.has_value()) << (report ? "" : report.error().message);
  return report ? *report : Report{};
}

class WithoutDefect : public testing::Test {
 protected:
  WithoutDefect() { unsetenv("SAMPLE_DEFECT"); }
};

TEST_F(WithoutDefect, SamplePassesEveryCheck) {
  Options options = options_for("");
  options.env.death_bound = milliseconds(10000);
  options.env.timeout = milliseconds(30000);
  const Report report = run_sample(options);
  for (const Line& line : report.lines) {
    EXPECT_NE(line.finding.outcome, Outcome::kFail) << line.name << ": " << line.finding.reason;
  }
  EXPECT_EQ(report.versions, (std::vector<int>{11, 8}));
  EXPECT_GE(report.count(Outcome::kPass), 80);
  // finalize and the traffic class do not exist in v8; the sample takes all kinds of memory, so it refuses none.
  EXPECT_LE(report.count(Outcome::kSkip), 3);
}

// No defects, but abilities that the sample otherwise has not.
TEST_F(WithoutDefect, FusingAndRefusingToFuseBothPass) {
  for (const auto& [ability, phrase] : {std::pair{"fuse_well", "devices 0 and 1 became device 2"},
                                        std::pair{"fuse_refused", "refused (ncclInvalidUsage"}}) {
    setenv("SAMPLE_DEFECT", ability, 1);
    const Report report = run_sample(options_for("abi.fusion"));
    unsetenv("SAMPLE_DEFECT");
    ASSERT_EQ(report.lines.size(), 2u);
    EXPECT_EQ(report.lines[0].finding.outcome, Outcome::kPass) << report.lines[0].finding.reason;
    EXPECT_NE(report.lines[0].finding.reason.find(phrase), std::string::npos) << report.lines[0].finding.reason;
  }
}

TEST_F(WithoutDefect, WhoTakesHostMemoryOnlyRefusesTheRestAndIsNotAskedForIt) {
  setenv("SAMPLE_DEFECT", "host_only", 1);
  const Report report = run_sample(options_for("memory.*,gpu.*"));
  unsetenv("SAMPLE_DEFECT");
  for (const Line& line : report.lines) {
    const std::string& name = line.name;
    const bool asked = name.rfind("memory.", 0) == 0 || name == "gpu.dma_buf_slot";
    EXPECT_EQ(line.finding.outcome, asked ? Outcome::kPass : Outcome::kSkip) << name << ": " << line.finding.reason;
    if (!asked) {
      const bool either = name.rfind("gpu.flush", 0) == 0;
      const std::string lacks = std::string("lacks ") + (either ? "NCCL_PTR_CUDA and NCCL_PTR_DMABUF:" : "NCCL_PTR_");
      EXPECT_NE(line.finding.reason.find("ptrSupport 0x1 " + lacks), std::string::npos) << line.finding.reason;
    }
    if (name == "memory.unadvertised") {
      EXPECT_NE(line.finding.reason.find("regMrDmaBuf: ncclInvalidArgument"), std::string::npos) << line.finding.reason;
    }
  }
}

TEST_F(WithoutDefect, MemoryOfAGpuIsSkippedWhereNothingPlaysIt) {
  Options options = options_for("gpu.*");
  options.env.emulated_gpu = false;
  const Report report = run_sample(options);
  for (const Line& line : report.lines) {
    if (line.name == "gpu.dma_buf_slot") continue;
    EXPECT_EQ(line.finding.outcome, Outcome::kSkip) << line.name;
    EXPECT_NE(line.finding.reason.find("--emulated-gpu"), std::string::npos) << line.finding.reason;
  }
  EXPECT_FALSE(to_json(report)["emulated_gpu"].get<bool>());
}

TEST_F(WithoutDefect, AFlushWithoutARequestPasses) {
  setenv("SAMPLE_DEFECT", "flush_at_once", 1);
  const Report report = run_sample(options_for("gpu.flush*,contract.flush"));
  unsetenv("SAMPLE_DEFECT");
  ASSERT_EQ(report.lines.size(), 3u);
  for (const Line& line : report.lines) {
    EXPECT_EQ(line.finding.outcome, Outcome::kPass) << line.name << ": " << line.finding.reason;
  }
}

// As NCCL's Socket transport, which NCCL is content with.
TEST_F(WithoutDefect, WhoBearsTestsOfTheOldestRequestOnlyFailsOneCheck) {
  setenv("SAMPLE_DEFECT", "oldest_only", 1);
  const Report report = run_sample(options_for("contract.*,memory.*,gpu.*,errors.*,death.*,close.*"));
  unsetenv("SAMPLE_DEFECT");
  for (const Line& line : report.lines) {
    const bool one = line.name == "contract.test_any_order";
    EXPECT_EQ(line.finding.outcome == Outcome::kFail, one) << line.name << ": " << line.finding.reason;
  }
}

TEST_F(WithoutDefect, AskingForPropertiesOfNoDeviceIsNoFailure) {
  setenv("SAMPLE_DEFECT", "describes_any_device", 1);
  const Report report = run_sample(options_for("errors.device_range"));
  unsetenv("SAMPLE_DEFECT");
  ASSERT_EQ(report.lines.size(), 1u);
  EXPECT_EQ(report.lines[0].finding.outcome, Outcome::kPass) << report.lines[0].finding.reason;
  EXPECT_NE(report.lines[0].finding.reason.find("getProperties answers for 4 of the 4"), std::string::npos)
      << report.lines[0].finding.reason;
}

TEST_F(WithoutDefect, OlderTableAlone) {
  Options options = options_for("abi.*,contract.*");
  options.env.version = 8;
  const Report report = run_sample(options);
  for (const Line& line : report.lines) {
    EXPECT_EQ(line.version, 8);
    EXPECT_NE(line.finding.outcome, Outcome::kFail) << line.name << ": " << line.finding.reason;
  }
}

TEST_F(WithoutDefect, JsonHasTheKeysOfTheContract) {
  const auto document = report::envelope("conform", to_json(run_sample(options_for("abi.*"))));
  for (const char* key : {"command", "version", "machine", "results"}) EXPECT_TRUE(document.contains(key)) << key;
  const auto& results = document["results"];
  for (const char* key : {"passed", "failed", "skipped", "checks", "plugin"}) EXPECT_TRUE(results.contains(key)) << key;
  ASSERT_FALSE(results["checks"].empty());
  for (const auto& check : results["checks"]) {
    for (const char* key : {"name", "rule", "source", "outcome", "reason", "seconds", "version"}) {
      EXPECT_TRUE(check.contains(key)) << key;
    }
  }
  EXPECT_EQ(results["passed"].get<int>() + results["skipped"].get<int>(), static_cast<int>(results["checks"].size()));
}

TEST_F(WithoutDefect, WhatIsNoPluginIsAnErrorThatSaysWhatWasLookedFor) {
  Options options = options_for("");
  options.env.plugin = "/no/such/plugin.so";
  auto missing = run(options, nullptr, nullptr);
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("there is no file"), std::string::npos) << missing.error().message;

  options.env.plugin = "libm.so.6";
  auto other = run(options, nullptr, nullptr);
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("ncclNetPlugin_v12"), std::string::npos) << other.error().message;

  options = options_for("abi.*");
  options.env.version = 10;
  auto version = run(options, nullptr, nullptr);
  ASSERT_FALSE(version.has_value());
  EXPECT_NE(version.error().message.find("it has v11, v8"), std::string::npos) << version.error().message;

  auto nothing = run(options_for("no.such.check"), nullptr, nullptr);
  ASSERT_FALSE(nothing.has_value());
  EXPECT_NE(nothing.error().message.find("--list"), std::string::npos) << nothing.error().message;
}

TEST_F(WithoutDefect, TruncatedTableIsFound) {
  Options options = options_for("abi.symbol");
  options.env.plugin = TRUNCATED_PLUGIN;
  const Report report = run_sample(options);
  ASSERT_EQ(report.lines.size(), 1u);
  EXPECT_EQ(report.lines[0].finding.outcome, Outcome::kFail);
  EXPECT_NE(report.lines[0].finding.reason.find("NCCL reads 176"), std::string::npos) << report.lines[0].finding.reason;
}

TEST(Checks, NamesAreUniqueAndEachHasItsRuleAndSource) {
  std::set<std::string> names;
  for (const Check& check : all_checks()) {
    EXPECT_TRUE(names.insert(check.name).second) << check.name;
    EXPECT_NE(std::string(check.name).find('.'), std::string::npos);
    EXPECT_FALSE(std::string(check.rule).empty());
    EXPECT_FALSE(std::string(check.source).empty());
  }
  EXPECT_GE(names.size(), 61u);
  EXPECT_EQ(select("close.*,abi.name").size(), 7u);
  EXPECT_EQ(select("").size(), names.size());
}

TEST(Runner, CrashHangAndExitAreFindings) {
  const auto limit = milliseconds(5000);
  const Finding crash = run_in_child(
      []() -> std::string {
        note_step("adding up");
        note_call("isend");
        raise(SIGKILL);
        return {};
      },
      limit);
  EXPECT_EQ(crash.outcome, Outcome::kFail);
  EXPECT_EQ(crash.reason, "crashed with SIGKILL in isend, while adding up");

  const Finding hang = run_in_child([]() -> std::string { return pause(), ""; }, milliseconds(100));
  EXPECT_EQ(hang.outcome, Outcome::kFail);
  EXPECT_NE(hang.reason.find("no answer in"), std::string::npos) << hang.reason;

  const Finding gone = run_in_child([]() -> std::string { _exit(3); }, limit);
  EXPECT_EQ(gone.outcome, Outcome::kFail);
  EXPECT_NE(gone.reason.find("status 3"), std::string::npos) << gone.reason;

  const Finding fine = run_in_child([]() -> std::string { return "evidence"; }, limit);
  EXPECT_EQ(fine.outcome, Outcome::kPass);
  EXPECT_EQ(fine.reason, "evidence");

  const Finding reported = run_in_child(
      []() -> std::string {
        constexpr char kReport[] = "WARNING: ThreadSanitizer\nSUMMARY: ThreadSanitizer: data race f.cc:1 in f\n====\n";
        EXPECT_GT(write(STDERR_FILENO, kReport, sizeof(kReport) - 1), 0);
        return "evidence";
      },
      limit);
  EXPECT_EQ(reported.outcome, Outcome::kFail);
  EXPECT_EQ(reported.reason, "a sanitizer reports: SUMMARY: ThreadSanitizer: data race f.cc:1 in f");

  const Finding skipped = run_in_child([]() -> std::string { skip_check("why"); }, limit);
  EXPECT_EQ(skipped.outcome, Outcome::kSkip);
}

// Long for checks that come to an answer on a busy machine, short for those that are there to run into the limit.
milliseconds timeout_for(const std::string& phrase) {
  const std::set<std::string> waits = {"no answer", "stuck", "no comm", "NULL request", "no connection"};
  return milliseconds(waits.count(phrase) != 0 ? 4000 : 20000);
}

struct Defect {
  const char* name;
  const char* check;   // that must fail
  const char* phrase;  // of its reason
};
std::ostream& operator<<(std::ostream& out, const Defect& defect) { return out << defect.name; }

class WithDefect : public testing::TestWithParam<Defect> {};

TEST_P(WithDefect, IsFound) {
  const Defect& defect = GetParam();
  if (std::string(defect.name) == "reload_leak" && !resident_bytes_are_meaningful()) {
    GTEST_SKIP() << "a sanitizer keeps freed memory; the release preset runs this";
  }
  setenv("SAMPLE_DEFECT", defect.name, 1);
  Options options = options_for(defect.check);
  options.env.version = 11;
  options.env.timeout = timeout_for(defect.phrase);
  const Report report = run_sample(options);
  unsetenv("SAMPLE_DEFECT");
  ASSERT_EQ(report.lines.size(), 1u);
  EXPECT_EQ(report.lines[0].finding.outcome, Outcome::kFail) << report.lines[0].finding.reason;
  EXPECT_NE(report.lines[0].finding.reason.find(defect.phrase), std::string::npos) << report.lines[0].finding.reason;
}

constexpr Defect kDefects[] = {
    {"missing_call", "abi.slots", "irecv"},
    {"empty_name", "abi.name", "empty"},
    {"no_devices", "abi.devices", "devices gives 0"},
    {"max_bytes_zero", "abi.properties", "maxP2pBytes is 0"},
    {"no_host_pointers", "abi.properties", "NCCL_PTR_HOST"},
    {"no_speed", "abi.properties", "speed is 0"},
    {"no_recvs", "abi.properties", "maxRecvs is 0"},
    {"bad_pci_path", "abi.properties", "does not exist"},
    {"fuse_uncounted", "abi.fusion", "makeVDevice gives device 2, devices gives 2 before and 2 after"},
    {"fuse_nameless", "abi.fusion", "virtual device 2: the name is empty"},
    {"fuse_same_name", "abi.fusion", "has the name 'sample0' of device 0"},
    {"fuse_members", "abi.fusion", "name devices 2, not 0, 1"},
    {"fuse_unusable", "abi.fusion", "listen returned"},
    {"fuse_half", "abi.fusion", "returned ncclInvalidUsage (5), and devices gives 3"},
    {"init_once", "abi.init_repeated", "a repeated init returned"},
    {"finalize_global", "abi.init_repeated", "listen returned"},
    {"finalize_crash", "abi.finalize_null", "finalize"},
    {"rejects_class", "abi.traffic_class", "init with a traffic class returned"},
    {"blocking_listen", "contract.listen", "listen took"},
    {"null_listen", "contract.listen", "NULL listenComm"},
    {"handle_overflow", "contract.listen", "behind the 128 bytes"},
    {"blocking_accept", "contract.accept_alone", "accept took"},
    {"blocking_connect", "contract.connect_alone", "connect took"},
    {"same_process_only", "contract.two_processes", "no comm"},
    {"listen_owns_peers", "contract.close_listen", "ncclRemoteError"},
    {"unused_listen_crash", "contract.close_listen_unused", "closeListen"},
    {"reg_unaligned", "contract.reg_mr", "regMr"},
    {"wrong_sizes", "contract.sizes", "reported a size"},
    {"corrupt_large", "contract.sizes", "byte 65536 of"},
    {"busy_forever", "contract.sizes", "stuck"},
    {"corrupt_huge", "contract.large", "byte 33554432 of"},
    {"drops_empty", "contract.empty_messages", "stuck"},
    {"fills_buffer", "contract.posted_larger", "where nothing belongs"},
    {"overflow", "contract.sent_larger", "where nothing belongs"},
    {"isend_blocks", "contract.send_first", "no answer"},
    {"isend_blocks", "contract.both_directions", "no answer"},
    {"out_of_order", "contract.outstanding_8", "in posting order"},
    {"oldest_only", "contract.test_any_order", "test of a newer request returned ncclInternalError"},
    {"limit_16", "contract.outstanding_32", "returned ncclInternalError"},
    {"busy_is_error", "contract.busy", "irecv returned ncclInternalError"},
    {"tags_ignored", "contract.tags", "tag 1"},
    {"tags_ignored", "contract.grouped_recv", "group 0 of 2"},
    {"out_of_order", "contract.grouped_order", "group"},
    {"marker_kept", "contract.optional_completion", "test"},
    {"early_done", "contract.test_not_done", "nothing was sent"},
    {"null_sizes_crash", "contract.flush", "test"},
    {"request_leak", "contract.request_reuse", "NULL request"},
    {"few_connections", "contract.many_connections", "connect returned"},
    {"reg_whole_pages", "memory.unaligned", "a message of"},
    {"dereg_takes_neighbours", "memory.overlapping", "returned ncclInternalError"},
    {"dereg_waits", "memory.dereg_in_flight", "no answer"},
    {"takes_anything", "memory.unadvertised", "succeeds for memory that no CPU can read"},
    {"no_dma_buf_call", "gpu.dma_buf_slot", "regMrDmaBuf is NULL"},
    {"cuda_refused", "gpu.cuda", "regMr of NCCL_PTR_CUDA returned"},
    {"dma_buf_fd_kept", "gpu.dma_buf", "returned ncclInternalError"},
    {"dma_buf_offset_ignored", "gpu.dma_buf_offset", "byte 0 of 70001"},
    {"null_sizes_crash", "gpu.flush", "test"},
    {"flush_size_zero", "gpu.flush_group", "iflush returned"},
    {"dma_buf_fd_leaked", "gpu.descriptors", "descriptors more"},
    {"thread_bound", "threads.service_progress", "returned ncclInternalError"},
    {"reg_race", "threads.reg_during_send", "isend"},
    {"shared_staging", "threads.parallel", "connection"},
    {"attr_undef_error", "threads.net_attr", "setNetAttr with undefined"},
    {"any_device", "errors.device_range", "listen on device -1 succeeds"},
    {"raises_sigpipe", "errors.send_to_closed", "SIGPIPE"},
    {"death_hang", "errors.recv_from_closed", "no error within"},
    {"changes_signals", "errors.signals", "SIGPIPE"},
    {"bad_handle_crash", "handshake.garbage_handle", "connect"},
    {"absent_blocks", "handshake.absent_peer", "connect took"},
    {"one_at_a_time", "handshake.silent_stranger", "no connection"},
    {"garbage_accepted", "handshake.junk_stranger", "accepted as a peer"},
    {"stranger_is_error", "handshake.hang_up", "because of a stranger"},
    {"stranger_is_error", "handshake.junk_during_transfer", "accept returned"},
    {"death_hang", "death.receiver_survives", "no error within"},
    {"death_success", "death.receiver_survives", "reported done"},
    {"death_hang", "death.sender_survives", "no error within"},
    {"death_success", "death.sender_survives", "no error within"},
    {"death_hang", "death.idle_receiver", "no error within"},
    {"death_spreads", "death.others_unharmed", "returned ncclInternalError"},
    {"death_hang", "death.before_accept", "no error within"},
    {"absent_blocks", "death.connect_to_dead", "connect took"},
    {"freeze_error", "death.frozen_peer", "a stopped peer returned"},
    {"close_crash", "close.inflight_send", "close"},
    {"close_crash", "close.inflight_recv", "close"},
    {"peer_close_crash", "close.receiver_first", "closeSend"},
    {"close_drops_data", "close.sender_first", "test returned"},
    {"thread_leak", "close.finalize_clean", "threads are left"},
    {"descriptor_leak", "close.finalize_clean", "descriptors are left"},
    {"descriptor_leak", "close.no_leak", "descriptors more"},
    {"single_load", "reload.again", "init returned"},
    {"reload_leak", "reload.flat_memory", "each load and unload"},
};

INSTANTIATE_TEST_SUITE_P(Each, WithDefect, testing::ValuesIn(kDefects), [](const auto& test) {
  std::string name = std::string(test.param.name) + "__" + test.param.check;
  for (char& letter : name) letter = letter == '.' ? '_' : letter;
  return name;
});

// Every check but the one that the probe precedes has a defect that it finds.
TEST(Checks, EachIsShownToFail) {
  std::set<std::string> shown = {"abi.tables", "abi.symbol"};
  for (const Defect& defect : kDefects) shown.insert(defect.check);
  for (const Check& check : all_checks()) EXPECT_EQ(shown.count(check.name), 1u) << check.name;
}

}  // namespace
}  // namespace clustar::bench::conform
