// The .so as NCCL 2.26 to 2.30 would drive it: all tables from one file, ranks as threads, real connections on
// loopback. What it decided is read back through clustar.h, as a user would.
#include "tests/plugin/fake_nccl/loaded.h"

#include <gtest/gtest.h>

#include <map>

#include "nccl_plugin/loss/settings.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;
using nccl_plugin::Reason;

constexpr std::chrono::seconds kLimit{40};

// As the environment of the tests says it: CLUSTAR_LOSS_RULES and CLUSTAR_LOSS_WARMUP.
const PolicyTruth& truth() {
  static const PolicyTruth made = [] {
    PolicyTruth out;
    out.name = "dp*";
    out.config.rules = "comm=dp*,p=0.05";
    out.config.warmup = 1;
    out.tolerance_ppm = [](const Communicator& comm, const Task& task) {
      const bool reduces = task.function == kAllReduce || task.function == kReduceScatter;
      return reduces && comm.name.starts_with("dp") ? 50'000u : 0u;
    };
    return out;
  }();
  return made;
}

// The same for sends: "comm=dp*,func=sendrecv,p=0.05".
const PolicyTruth& sends() {
  static const PolicyTruth made = [] {
    PolicyTruth out;
    out.name = "sends of dp*";
    out.config.rules = "comm=dp*,func=sendrecv,p=0.05";
    out.config.warmup = 1;
    out.tolerance_ppm = [](const Communicator& comm, const Task& task) {
      return task.function == kSend && comm.name.starts_with("dp") ? 50'000u : 0u;
    };
    out.sends = true;
    return out;
  }();
  return made;
}

Variables sends_environment() {
  Variables variables{{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_LOSS_WARMUP", "1"}};
  variables["CLUSTAR_LOSS_RULES"] = sends().config.rules;
  return variables;
}

const PolicyTruth& nothing() { return policies().front(); }

Variables lossy_environment() {
  return {{"CLUSTAR_TRANSPORT", "mlt"}, {"CLUSTAR_LOSS_RULES", "comm=dp*,p=0.05"}, {"CLUSTAR_LOSS_WARMUP", "1"}};
}

Communicator communicator(std::uint64_t id, std::uint32_t ranks) {
  Communicator comm;
  comm.id = id;
  comm.name = "dp";
  comm.ranks = comm.nodes = ranks;
  comm.channels = 2;
  comm.buffer_bytes = 1 << 20;
  return comm;
}

Task task_of(int function, std::uint64_t count, const char* datatype = "ncclFloat32", int algorithm = kRing,
             int protocol = kSimple) {
  Task task;
  task.function = function;
  task.datatype = datatype_named(datatype);
  task.count = count;
  task.algorithm = algorithm;
  task.protocol = protocol;
  return task;
}

// Counters of clustar.h; tests compare differences, since they count since the plugin was loaded.
struct Counters {
  clustarTotals_v1 totals{};
  std::map<std::string, std::uint64_t> reasons;

  static Counters read(const clustarApi_v1_t& api) {
    Counters out;
    out.totals.size = sizeof out.totals;
    EXPECT_EQ(api.getTotals(&out.totals), CLUSTAR_OK);
    const char* name = nullptr;
    std::uint64_t messages = 0;
    for (std::uint32_t i = 0; api.getReason(i, &name, &messages) == CLUSTAR_OK; ++i) out.reasons[name] = messages;
    return out;
  }
};

void expect_reasons(const Counters& before, const Counters& after, const JobTally& tally) {
  // The first of the oracle's is none: lossy.
  for (std::size_t i = 1; i < nccl_plugin::kReasons; ++i) {
    const char* const name = nccl_plugin::name_of(static_cast<Reason>(i));
    const auto was = before.reasons.find(name);
    const auto is = after.reasons.find(name);
    ASSERT_TRUE(is != after.reasons.end() || tally.reasons[i] == 0) << name;
    const std::uint64_t counted =
        (is == after.reasons.end() ? 0 : is->second) - (was == before.reasons.end() ? 0 : was->second);
    EXPECT_EQ(counted, tally.reasons[i].load()) << name;
  }
  EXPECT_EQ(after.totals.sent_messages - before.totals.sent_messages, tally.sent.load());
  EXPECT_EQ(after.totals.identified_messages - before.totals.identified_messages, tally.identified.load());
  EXPECT_EQ(after.totals.tolerant_messages - before.totals.tolerant_messages, tally.reasons[0].load());
}

// What arrived and what the plugin says of it.
void expect_bytes(const Counters& before, const Counters& after, const JobTally& tally) {
  const std::uint64_t missing = after.totals.missing_bytes - before.totals.missing_bytes;
  EXPECT_EQ(missing, tally.zero_bytes.load());
  EXPECT_EQ(after.totals.delivered_bytes - before.totals.delivered_bytes + missing, tally.received_bytes.load());
}

std::uint64_t transfers_of(const Communicator& comm, const Task& task) {
  std::uint64_t sum = 0;
  for (const ChannelPlan& channel : plan(comm, task)) sum += channel.transfers.size();
  return sum;
}

void finish(Job& job) {
  EXPECT_TRUE(job.run(kLimit));
  EXPECT_EQ(job.tally().errors.load(), 0u) << job.tally().first_error;
  EXPECT_EQ(job.tally().received.load(), job.tally().sent.load());
}

// A mix of everything; two loops where that matters.
std::vector<Task> mix(const Communicator& comm) {
  const std::uint64_t loop = std::uint64_t{comm.ranks} * comm.channels * (comm.buffer_bytes / 2) / 4;
  return {task_of(kAllReduce, loop),
          task_of(kAllReduce, loop + loop / 2 + 5),
          task_of(kAllReduce, 1000),
          task_of(kAllReduce, loop, "ncclInt32"),
          task_of(kAllReduce, loop / 4, "ncclFloat32", kTree),
          task_of(kAllReduce, loop / 16, "ncclFloat32", kRing, kLL),
          task_of(kReduceScatter, loop / comm.ranks * 2),
          task_of(kAllGather, loop / comm.ranks),
          task_of(kBroadcast, 50'000),
          task_of(kSend, 100'000)};
}

// A job's tasks of all kinds, and the reasons that the C API counted meanwhile against the oracle's.
std::pair<Counters, Counters> run_mix(const Library& library, Job& job, const JobOptions& options) {
  const Counters before = Counters::read(*library.api());
  for (const Task& task : mix(options.comm)) job.launch(0, task);
  finish(job);
  const Counters after = Counters::read(*library.api());
  expect_reasons(before, after, job.tally());
  return {before, after};
}

struct Versions {
  int net;
  int profiler;
};

class FakeNcclLoaded : public ::testing::TestWithParam<Versions> {};

TEST_P(FakeNcclLoaded, EveryMessageIsIdentifiedAndDecidedAsTheContractSays) {
  const Environment environment(lossy_environment());
  const Library library(kPluginPath);
  ASSERT_NE(library.api(), nullptr);
  JobOptions options;
  options.net_version = GetParam().net;
  options.profiler_version = GetParam().profiler;
  options.comm = communicator(0xc0 + static_cast<std::uint64_t>(options.net_version), 3);
  options.policy = &truth();
  Job job(library, options);
  const auto [before, after] = run_mix(library, job, options);
  expect_bytes(before, after, job.tally());
  if (options.profiler_version != 0) {
    EXPECT_EQ(job.tally().identified.load(), job.tally().sent.load());
  }
  const bool lossy = options.net_version >= 11 && options.profiler_version != 0;
  EXPECT_EQ(job.tally().reasons[0].load() > 0, lossy);
}

// NCCL 2.26 (no profiler table of ours, a phandle that nobody answers for), 2.27, 2.28 and 2.30; and each newer net
// table with each profiler table.
INSTANTIATE_TEST_SUITE_P(Versions, FakeNcclLoaded,
                         ::testing::Values(Versions{10, 0}, Versions{10, 4}, Versions{11, 4}, Versions{11, 5},
                                           Versions{12, 5}, Versions{12, 6}),
                         [](const auto& given) {
                           return "net" + std::to_string(given.param.net) + "profiler" +
                                  std::to_string(given.param.profiler);
                         });

TEST(FakeNcclLoadedOnce, WhatWasReceivedCanBeReadByCollective) {
  const Environment environment(lossy_environment());
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0xabcd, 4);
  options.policy = &truth();
  Job job(library, options);
  const auto tasks = mix(options.comm);
  for (const Task& task : tasks) job.launch(0, task);
  finish(job);
  std::map<int, std::uint64_t> numbers;
  for (const Task& task : tasks) {
    if (!task.is_collective()) continue;
    clustarCollective_v1 found{};
    found.size = sizeof found;
    const std::uint64_t number = numbers[task.function]++;
    ASSERT_EQ(
        library.api()->getCollective(options.comm.id, static_cast<std::uint8_t>(task.function), 0, number, &found),
        CLUSTAR_OK)
        << function_name(task.function) << " " << number;
    EXPECT_EQ(found.total_bytes, input_bytes(options.comm, task));
    EXPECT_EQ(found.algorithm, task.algorithm);
    EXPECT_EQ(found.protocol, task.protocol);
    EXPECT_EQ(found.datatype, datatype_named(event_datatype(task)).number);
    EXPECT_EQ(found.local_number, 0);
    // All ranks are in this process: what each received, together.
    EXPECT_EQ(found.messages, transfers_of(options.comm, task) * options.comm.ranks);
    EXPECT_EQ(found.missing_bytes, 0u);
  }
  std::vector<clustarCollective_v1> listed(64);
  for (auto& each : listed) each.size = sizeof each;
  std::size_t count = 0;
  ASSERT_EQ(library.api()->listCollectives(listed.data(), listed.size(), &count), CLUSTAR_OK);
  EXPECT_GE(count, tasks.size() - 1);
}

TEST(FakeNcclLoadedOnce, LossIsCountedWithinTheBudgetAndReadsAsZero) {
  Variables variables = lossy_environment();
  variables["CLUSTAR_INJECT_FAULTS"] = "loss=0.02";
  const Environment environment(variables);
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x1055, 4);
  options.policy = &truth();
  Job job(library, options);
  const Counters before = Counters::read(*library.api());
  const Task task = task_of(kAllReduce, 4 * 2 * (512 * 1024) / 4 * 2);
  for (int i = 0; i < 6; ++i) job.launch(0, task);
  finish(job);
  const Counters after = Counters::read(*library.api());
  expect_reasons(before, after, job.tally());
  expect_bytes(before, after, job.tally());
  EXPECT_GT(job.tally().zero_bytes.load(), 0u);
  const std::uint64_t bytes = input_bytes(options.comm, task);
  for (std::uint64_t number = 0; number < 6; ++number) {
    clustarCollective_v1 found{};
    found.size = sizeof found;
    ASSERT_EQ(library.api()->getCollective(options.comm.id, kAllReduce, 0, number, &found), CLUSTAR_OK);
    // The first one is warm-up.
    EXPECT_EQ(found.eligible_bytes > 0, number > 0);
    if (number == 0) {
      EXPECT_EQ(found.missing_bytes, 0u);
    }
    // Point 3 of the contract, on each of the ring's 4 edges: charged p * S * n / E, missing p of the eligible bytes.
    EXPECT_LE(found.contributions, 4 * (bytes / 20));
    EXPECT_LE(found.missing_bytes, found.eligible_bytes / 20);
    clustarMissing_v1 empty{};
    empty.size = sizeof empty;
    std::vector<clustarMissing_v1> holes(4096, empty);
    std::size_t count = 0;
    ASSERT_EQ(library.api()->listMissing(options.comm.id, kAllReduce, 0, number, holes.data(), holes.size(), &count),
              CLUSTAR_OK);
    EXPECT_EQ(count, found.missing_ranges);
    std::uint64_t sum = 0;
    std::uint64_t charged = 0;
    for (std::size_t i = 0; i < std::min(count, holes.size()); ++i) {
      EXPECT_LT(holes[i].stage, 3u);
      EXPECT_LT(holes[i].loop, 2u);
      EXPECT_LT(holes[i].slice, 2u);
      EXPECT_LT(holes[i].channel, 2u);
      sum += holes[i].bytes;
      charged += holes[i].bytes * (holes[i].stage + 1);
    }
    EXPECT_EQ(sum, found.missing_bytes);
    EXPECT_EQ(charged, found.contributions);
  }
}

using Lookup = int (*)(std::uint64_t, std::uint32_t, std::uint64_t, clustarMissing_v1*, std::size_t, std::size_t*);

// The ranges of one send by (channel, transfer), neighbours joined.
std::map<std::pair<std::uint32_t, std::uint32_t>, JobTally::Ranges> ranges_of(Lookup lookup, std::uint64_t comm,
                                                                              std::uint32_t peer,
                                                                              std::uint64_t number) {
  clustarMissing_v1 empty{};
  empty.size = sizeof empty;
  std::vector<clustarMissing_v1> listed(4096, empty);
  std::size_t count = 0;
  EXPECT_EQ(lookup(comm, peer, number, listed.data(), listed.size(), &count), CLUSTAR_OK) << peer << " " << number;
  EXPECT_LE(count, listed.size());
  std::map<std::pair<std::uint32_t, std::uint32_t>, JobTally::Ranges> out;
  for (std::size_t i = 0; i < std::min(count, listed.size()); ++i) {
    EXPECT_EQ(listed[i].loop, 0u);
    EXPECT_EQ(listed[i].stage, 0u);
    JobTally::Ranges& ranges = out[{listed[i].channel, listed[i].slice}];
    if (!ranges.empty() && ranges.back().first + ranges.back().second == listed[i].offset) {
      ranges.back().second += listed[i].bytes;
    } else {
      ranges.emplace_back(listed[i].offset, listed[i].bytes);
    }
  }
  return out;
}

TEST(FakeNcclLoadedOnce, BothEndsOfASendKnowWhatOfItIsMissing) {
  Variables variables = sends_environment();
  variables["CLUSTAR_INJECT_FAULTS"] = "loss=0.02";
  const Environment environment(variables);
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x5e4d, 4);
  options.policy = &sends();
  Job job(library, options);
  const Counters before = Counters::read(*library.api());
  const Task task = task_of(kSend, (4 << 20) / 4);
  constexpr std::uint64_t kSends = 6;
  // The ledgers of reductions and of sends do not meet; those of reductions are not opted in here.
  for (std::uint64_t i = 0; i < kSends; ++i) {
    job.launch(0, task);
    job.launch(0, task_of(kAllReduce, 1000));
  }
  finish(job);
  const Counters after = Counters::read(*library.api());
  expect_reasons(before, after, job.tally());
  expect_bytes(before, after, job.tally());
  EXPECT_GT(job.tally().zero_bytes.load(), 0u);
  const std::uint32_t n = options.comm.ranks;
  for (std::uint32_t receiver = 0; receiver < n; ++receiver) {
    const std::uint32_t sender = (receiver + n - 1) % n;
    for (std::uint64_t number = 0; number < kSends; ++number) {
      std::map<std::pair<std::uint32_t, std::uint32_t>, JobTally::Ranges> zeros;
      std::uint64_t bytes = 0;
      for (const auto& [where, ranges] : job.tally().zeros) {
        if (where.receiver != static_cast<int>(receiver) || where.number != number) continue;
        zeros[{where.channel, where.transfer}] = ranges;
        for (const auto& [offset, length] : ranges) bytes += length;
      }
      EXPECT_LE(bytes, input_bytes(options.comm, task) / 20) << "p of what this receiver's one sender sent";
      // The first is warm-up: it was reliable, so that nobody has anything to remember of it.
      if (number == 0) {
        EXPECT_TRUE(zeros.empty());
        std::size_t count = 0;
        EXPECT_EQ(library.api()->listMissingFrom(options.comm.id, sender, 0, nullptr, 0, &count), CLUSTAR_ENOTFOUND);
        EXPECT_EQ(library.api()->listLostTo(options.comm.id, receiver, 0, nullptr, 0, &count), CLUSTAR_ENOTFOUND);
      } else {
        EXPECT_EQ(ranges_of(library.api()->listMissingFrom, options.comm.id, sender, number), zeros);
        EXPECT_EQ(ranges_of(library.api()->listLostTo, options.comm.id, receiver, number), zeros);
      }
    }
  }
  std::vector<clustarCollective_v1> listed(256);
  for (auto& each : listed) each.size = sizeof each;
  std::size_t count = 0;
  ASSERT_EQ(library.api()->listCollectives(listed.data(), listed.size(), &count), CLUSTAR_OK);
  std::size_t of_sends = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (listed[i].comm_id != options.comm.id) continue;
    EXPECT_EQ(listed[i].sender >= 0, listed[i].function == kSend);
    of_sends += listed[i].function == kSend ? 1 : 0;
  }
  EXPECT_EQ(of_sends, n * kSends);
}

TEST(FakeNcclLoadedOnce, SendsStayReliableUnlessEverythingSaysThatTheyMayLose) {
  const Environment environment(sends_environment());
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x5e4e, 3);
  options.policy = &sends();
  Job job(library, options);
  Communicator child = options.comm;
  child.id = 0x5e4f;
  child.name = "dp-child";
  job.split(child);
  const Counters before = Counters::read(*library.api());
  const Task task = task_of(kSend, (1 << 20) / 4);
  Task all_to_all = task;
  all_to_all.collective_api = kAlltoAll;
  job.launch(0, task);
  job.launch(0, task);
  job.launch(1, task);
  job.launch(1, task);
  job.launch(0, all_to_all);
  job.launch(0, task_of(kSend, 1 << 18, "ncclInt32"));
  job.launch(0, task_of(kSend, 1 << 18, "ncclFloat32", kRing, kLL));
  job.launch(0, task_of(kSend, 1000));
  job.launch(0, task_of(kAllReduce, 1 << 20));
  job.replay(0, task, 2);
  finish(job);
  const Counters after = Counters::read(*library.api());
  expect_bytes(before, after, job.tally());
  EXPECT_EQ(after.totals.tolerant_messages - before.totals.tolerant_messages, job.tally().reasons[0].load());
  for (const Reason reason :
       {Reason::kLossy, Reason::kSharedChannel, Reason::kCaptured, Reason::kWarmUp, Reason::kNotFloat,
        Reason::kNotSimple, Reason::kSmallMessage, Reason::kGuardDisagrees, Reason::kNotOptedIn}) {
    const char* const name = nccl_plugin::name_of(reason);
    const std::uint64_t was = before.reasons.contains(name) ? before.reasons.at(name) : 0;
    const std::uint64_t is = after.reasons.contains(name) ? after.reasons.at(name) : 0;
    EXPECT_GT(reason == Reason::kLossy ? job.tally().reasons[0].load() : is - was, 0u) << name;
  }
}

TEST(FakeNcclLoadedOnce, ATransportThatNeverLosesSaysSo) {
  Variables variables = lossy_environment();
  variables["CLUSTAR_TRANSPORT"] = "tcp";
  const Environment environment(variables);
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x7c9, 2);
  options.policy = &truth();
  options.transport_may_lose = false;
  Job job(library, options);
  const auto [before, after] = run_mix(library, job, options);
  expect_bytes(before, after, job.tally());
  EXPECT_EQ(job.tally().identified.load(), job.tally().sent.load());
}

TEST(FakeNcclLoadedOnce, WithoutRulesEverythingIsIdentifiedAndReliable) {
  const Environment environment(Variables{{"CLUSTAR_TRANSPORT", "mlt"}});
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x0ff, 2);
  options.policy = &nothing();
  Job job(library, options);
  const auto [before, after] = run_mix(library, job, options);
  EXPECT_EQ(after.totals.eligible_bytes, before.totals.eligible_bytes);
  EXPECT_EQ(job.tally().identified.load(), job.tally().sent.load());
}

TEST(FakeNcclLoadedOnce, ASplitChildAGraphAForeignProcessAndAMissingPhandleStayReliable) {
  const Environment environment(lossy_environment());
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x5011, 3);
  options.policy = &truth();
  Job job(library, options);
  Communicator child = options.comm;
  child.id = 0x5012;
  child.name = "dp-child";
  job.split(child);
  const Counters before = Counters::read(*library.api());
  const Task task = task_of(kAllReduce, 3 * 2 * (512 * 1024) / 4);
  job.launch(0, task);
  job.launch(1, task);
  job.launch(0, task);
  job.launch(1, task);
  job.replay(0, task, 3);
  Faults faults;
  faults.foreign_process = true;
  job.launch(0, task, faults);
  faults = Faults();
  faults.null_task = true;
  job.launch(0, task, faults);
  faults = Faults();
  faults.no_phandle = 1;
  job.launch(0, task, faults);
  finish(job);
  const Counters after = Counters::read(*library.api());
  expect_reasons(before, after, job.tally());
  expect_bytes(before, after, job.tally());
  for (const Reason reason : {Reason::kLossy, Reason::kSharedChannel, Reason::kCaptured, Reason::kForeignProcess,
                              Reason::kUnidentified, Reason::kWarmUp, Reason::kGatherPhase}) {
    EXPECT_GT(job.tally().reasons[static_cast<std::size_t>(reason)].load(), 0u) << nccl_plugin::name_of(reason);
  }
}

TEST(FakeNcclLoadedOnce, WithoutSetNetAttrNothingIsLost) {
  const Environment environment(lossy_environment());
  const Library library(kPluginPath);
  JobOptions options;
  options.comm = communicator(0x9a4d, 2);
  options.policy = &truth();
  options.set_net_attr = false;
  Job job(library, options);
  const auto [before, after] = run_mix(library, job, options);
  EXPECT_EQ(job.tally().reasons[0].load(), 0u);
  EXPECT_GT(job.tally().reasons[static_cast<std::size_t>(Reason::kNoSecondGuard)].load(), 0u);
}

}  // namespace
}  // namespace clustar::tests::fake_nccl
