// What the proxy tells a profiler, and when: NCCL's order of events, their parents and numbers, and the way back from
// isend and irecv through the callback.
#include "nccl_plugin/abi/profiler.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <map>
#include <set>
#include <tuple>

#include "bench/proxy/profiler_plugin.h"
#include "tests/proxy/collectives.h"
#include "tests/proxy/recorder.h"

namespace clustar::bench::proxy {
namespace {

using namespace nccl_abi;  // NOLINT: the records are in its numbers
using tests::Call;
using tests::Record;

constexpr int kAll = kEventGroup | kEventColl | kEventProxyOp | kEventProxyStep | kEventNetPlugin | kEventGroupApi |
                     kEventCollApi | kEventKernelLaunch;

struct Setup {
  int net_version = 12;
  int size = 2;
  int channels = 1;
  Protocol protocol = Protocol::kSimple;
  bool grouped = false;
  int mask = kEventNetPlugin;
};
std::string name_of(const Setup& setup) {
  return fmt::format("V{}Ranks{}Channels{}{}{}Mask{}", setup.net_version, setup.size, setup.channels,
                     setup.protocol == Protocol::kLL ? "LL" : "", setup.grouped ? "Grouped" : "", setup.mask);
}
void PrintTo(const Setup& setup, std::ostream* out) { *out << name_of(setup); }

constexpr std::uint64_t kFirst = 0x1111;
constexpr std::uint64_t kSecond = 0x2222;
constexpr std::size_t kCount = 700'000;  // several loops, the last one partly empty

CommunicatorOptions options_of(const Setup& setup, std::uint64_t id) {
  CommunicatorOptions options;
  options.channels = setup.channels;
  options.protocol = setup.protocol;
  options.group_channels = setup.grouped;
  options.comm_id = id;
  options.comm_name = id == kFirst ? "first" : "second";
  options.stall_timeout = std::chrono::seconds(40);
  return options;
}

struct Totals {
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  std::uint64_t messages = 0;
};

void wait_for(std::unique_ptr<Pending> pending) {
  recorder().mark();  // it was queued, and its results are not awaited yet
  const auto stats = pending->wait();
  ASSERT_TRUE(stats) << stats.error().message;
}

// Two communicators, all functions on the first, one on the second. Every rank is a thread.
Totals run(const Setup& setup) {
  recorder().reset();
  recorder().set_mask(setup.mask);
  std::mutex mutex;
  Totals totals;
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN, setup.net_version);
  run_ranks(setup.size, [&](Bootstrap& bootstrap) {
    auto first = Communicator::create(*plugin, bootstrap, options_of(setup, kFirst));
    ASSERT_TRUE(first) << first.error().message;
    auto second = Communicator::create(*plugin, bootstrap, options_of(setup, kSecond));
    ASSERT_TRUE(second) << second.error().message;
    const auto ranks = static_cast<std::size_t>(setup.size);
    std::vector<float> data(kCount * ranks);
    std::vector<float> block(kCount);
    Communicator& comm = **first;
    wait_for(comm.all_reduce(data.data(), kCount, DataType::kFloat32, ReduceOp::kSum));
    wait_for(comm.broadcast(data.data(), 1000, DataType::kFloat32, 1));
    wait_for((*second)->all_reduce(block.data(), 1000, DataType::kFloat32, ReduceOp::kSum));
    wait_for(comm.all_gather(block.data(), data.data(), kCount, DataType::kFloat32));
    wait_for(comm.reduce_scatter(data.data(), block.data(), kCount, DataType::kFloat32, ReduceOp::kSum));
    wait_for(comm.all_reduce(data.data(), 0, DataType::kFloat32, ReduceOp::kSum));  // NCCL discards it
    wait_for(comm.all_reduce(data.data(), 33, DataType::kFloat64, ReduceOp::kSum));
    ASSERT_TRUE(bootstrap.barrier());
    {
      const std::lock_guard lock(mutex);
      for (Communicator* each : {first->get(), second->get()}) {
        totals.sent += each->totals().bytes_sent;
        totals.received += each->totals().bytes_received;
        totals.messages += each->totals().messages_sent;
      }
    }
    EXPECT_TRUE((*second)->close());
    EXPECT_TRUE((*first)->close());
  });
  EXPECT_STREQ(recorder().violations(), "");
  return totals;
}

std::vector<const Record*> of_type(const std::vector<Record>& records, std::uint64_t type, Call call = Call::kStart) {
  std::vector<const Record*> found;
  for (const Record& record : records) {
    if (record.call == call && record.type == type) found.push_back(&record);
  }
  return found;
}

// What happened to an event after its start, in order.
std::vector<const Record*> history_of(const std::vector<Record>& records, std::size_t event) {
  std::vector<const Record*> found;
  for (const Record& record : records) {
    if (record.event == event && record.call != Call::kStart) found.push_back(&record);
  }
  return found;
}

const Record& start_of(const std::vector<Record>& records, std::size_t event) { return records[event - 1]; }

class ProfilerEvents : public testing::TestWithParam<Setup> {};

TEST_P(ProfilerEvents, NumbersCountEachFunctionOfEachCommunicator) {
  run(GetParam());
  const auto records = recorder().records();
  using Key = std::tuple<std::uint64_t, int, std::string>;
  std::map<Key, std::vector<std::uint64_t>> numbers;
  for (const Record* coll : of_type(records, kEventColl)) {
    numbers[{coll->comm, coll->comm_rank, coll->text}].push_back(coll->number);
    EXPECT_EQ(coll->rank, coll->comm_rank);
    EXPECT_EQ(coll->algo, "RING");
    EXPECT_EQ(coll->proto, GetParam().protocol == Protocol::kLL ? "LL" : "SIMPLE");
  }
  for (int rank = 0; rank < GetParam().size; ++rank) {
    EXPECT_EQ((numbers[{kFirst, rank, "AllReduce"}]), (std::vector<std::uint64_t>{0, 1}));
    EXPECT_EQ((numbers[{kSecond, rank, "AllReduce"}]), (std::vector<std::uint64_t>{0}));
    for (const char* function : {"Broadcast", "AllGather", "ReduceScatter"}) {
      EXPECT_EQ((numbers[{kFirst, rank, function}]), (std::vector<std::uint64_t>{0})) << function;
    }
  }
  EXPECT_EQ(numbers.size(), 5u * static_cast<std::size_t>(GetParam().size));
}

TEST_P(ProfilerEvents, CollectivesThatOnlyMoveDataCountBytes) {
  run(GetParam());
  const auto records = recorder().records();
  for (const Record* coll : of_type(records, kEventColl)) {
    if (coll->text == "Broadcast") {
      EXPECT_EQ(coll->count, 4000u);
      EXPECT_EQ(coll->root, 1);
    }
    if (coll->text == "AllGather") {
      EXPECT_EQ(coll->count, kCount * 4);
    }
    if (coll->text == "ReduceScatter") {
      EXPECT_EQ(coll->count, kCount);
    }
    const bool moves = coll->text == "Broadcast" || coll->text == "AllGather";
    if (coll->count == 33) {
      EXPECT_EQ(coll->datatype, "ncclFloat64");
    } else {
      EXPECT_EQ(coll->datatype, moves ? "ncclInt8" : "ncclFloat32");
    }
  }
}

TEST_P(ProfilerEvents, ACollectiveStopsBeforeItsCallReturns) {
  run(GetParam());
  const auto records = recorder().records();
  std::map<std::thread::id, std::vector<const Record*>> by_thread;
  for (const Record& record : records) by_thread[record.thread].push_back(&record);
  for (const auto& [thread, mine] : by_thread) {
    std::size_t open = 0;
    for (const Record* record : mine) {
      if (record->type == kEventColl && record->call == Call::kStart) ++open;
      if (record->type == kEventColl && record->call == Call::kStop) --open;
      if (record->call == Call::kMark) {
        EXPECT_EQ(open, 0u);
      }
    }
  }
  // Only the submitting threads start collectives, and only others start what the proxy does.
  std::set<std::thread::id> submitting;
  for (const Record* coll : of_type(records, kEventColl)) submitting.insert(coll->thread);
  EXPECT_EQ(submitting.size(), static_cast<std::size_t>(GetParam().size));
  for (const std::uint64_t type : {kEventProxyOp, kEventProxyStep, kEventNetPlugin}) {
    for (const Record* record : of_type(records, type)) EXPECT_FALSE(submitting.contains(record->thread));
  }
}

TEST_P(ProfilerEvents, EveryChannelAndDirectionHasOneOperation) {
  run(GetParam());
  const auto records = recorder().records();
  std::map<std::size_t, std::set<std::pair<int, bool>>> operations;
  for (const Record* op : of_type(records, kEventProxyOp)) {
    const Record& coll = start_of(records, op->parent);
    ASSERT_EQ(coll.type, static_cast<std::uint64_t>(kEventColl));
    EXPECT_EQ(coll.comm, op->comm);
    EXPECT_EQ(coll.comm_rank, op->comm_rank);
    EXPECT_EQ(op->pid, getpid());
    const int size = GetParam().size;
    EXPECT_EQ(op->peer, (op->comm_rank + (op->is_send ? 1 : size - 1)) % size);
    EXPECT_TRUE(operations[op->parent].emplace(op->channel, op->is_send).second) << "twice";
  }
  for (const Record* coll : of_type(records, kEventColl)) {
    if (coll->text == "Broadcast") continue;  // the ring's ends lack a direction
    EXPECT_EQ(operations[coll->event].size(), 2u * static_cast<std::size_t>(coll->channels)) << coll->text;
  }
  for (const Record* coll : of_type(records, kEventColl)) {
    if (coll->count == kCount && coll->text == "AllReduce") {
      EXPECT_EQ(coll->channels, GetParam().channels);
    }
  }
}

TEST_P(ProfilerEvents, StepsFollowEachOtherWithinTheirOperation) {
  const Totals totals = run(GetParam());
  const auto records = recorder().records();
  std::map<std::size_t, std::vector<int>> completed;  // by operation
  std::uint64_t sent = 0;
  std::uint64_t received = 0;
  for (const Record* step : of_type(records, kEventProxyStep)) {
    const Record& op = start_of(records, step->parent);
    ASSERT_EQ(op.type, static_cast<std::uint64_t>(kEventProxyOp));
    const auto history = history_of(records, step->event);
    if (history.empty()) {
      EXPECT_FALSE(op.is_send) << "only a receive that the plugin refused leaves a step";
      continue;
    }
    std::vector<int> states;
    for (const Record* record : history) {
      if (record->call == Call::kState && (states.empty() || states.back() != record->state)) {
        states.push_back(record->state);
      }
      if (record->state == 9) sent += record->bytes;
      if (record->state == 11) received += record->bytes;
    }
    EXPECT_EQ(history.back()->call, Call::kStop);
    EXPECT_EQ(states, op.is_send ? (std::vector<int>{8, 20, 9}) : (std::vector<int>{10, 11, 12}));
    completed[op.event].push_back(step->step);
  }
  for (const Record* op : of_type(records, kEventProxyOp)) {
    const auto history = history_of(records, op->event);
    ASSERT_EQ(history.size(), 2u);
    EXPECT_EQ(history[0]->state, 19);
    EXPECT_EQ(history[1]->call, Call::kStop);
    std::vector<int> expected(static_cast<std::size_t>(op->steps));
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<int>(i);
    EXPECT_EQ(completed[op->event], expected);
  }
  EXPECT_EQ(sent, totals.sent);
  if (GetParam().protocol == Protocol::kSimple) {
    EXPECT_EQ(received, totals.received);
  }
}

TEST_P(ProfilerEvents, EveryMessageLeadsToItsStep) {
  const Totals totals = run(GetParam());
  const auto records = recorder().records();
  std::size_t posted = 0;
  std::size_t sends = 0;
  for (const Record& record : records) {
    if (record.call != Call::kPosted) continue;
    ++posted;
    sends += record.is_send ? 1 : 0;
  }
  EXPECT_EQ(sends, totals.messages);
  const auto messages = of_type(records, kEventNetPlugin);
  EXPECT_EQ(messages.size(), posted);
  std::set<std::size_t> steps;
  for (const Record* message : messages) {
    EXPECT_EQ(message->plugin_id, 0x1234);
    ASSERT_NE(message->parent, 0u);
    const Record& step = start_of(records, message->parent);
    ASSERT_EQ(step.type, static_cast<std::uint64_t>(kEventProxyStep));
    EXPECT_TRUE(steps.insert(step.event).second) << "two messages of one step";
    EXPECT_EQ(step.comm, message->comm);
    const auto history = history_of(records, message->event);
    ASSERT_FALSE(history.empty());
    EXPECT_EQ(history.back()->call, Call::kStop);
    if (!start_of(records, step.parent).is_send) {
      ASSERT_EQ(history.size(), 3u);
      EXPECT_EQ(history[0]->state, 21);
      EXPECT_EQ(history[1]->state, 21);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ring, ProfilerEvents,
                         testing::Values(Setup{}, Setup{.net_version = 11}, Setup{.net_version = 10},
                                         Setup{.size = 4, .channels = 3},
                                         Setup{.size = 3, .channels = 8, .grouped = true},
                                         Setup{.size = 3, .channels = 2, .protocol = Protocol::kLL},
                                         Setup{.size = 2, .channels = 2, .mask = kAll}),
                         [](const auto& tested) { return name_of(tested.param); });

TEST(Profiler, ThePairedVersionServes) {
  for (const auto& [net, profiler] : std::map<int, int>{{12, 6}, {11, 5}, {10, 4}, {9, 0}, {6, 0}}) {
    EXPECT_EQ(paired_version(net), profiler);
    run({.net_version = net});
    const auto records = recorder().records();
    std::size_t inits = 0;
    for (const Record& record : records) {
      if (record.call != Call::kProfilerInit) continue;
      ++inits;
      EXPECT_EQ(record.version, profiler);
      EXPECT_EQ(record.ranks, 2);
      EXPECT_EQ(record.nodes, 2);
      EXPECT_EQ(record.text, record.comm == kFirst ? "first" : "second");
    }
    EXPECT_EQ(inits, profiler == 0 ? 0u : 4u);
    EXPECT_EQ(of_type(records, kEventColl).size(), profiler == 0 ? 0u : 12u);
  }
}

TEST(Profiler, AnotherVersionCanBeChosen) {
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN, 12);
  for (const auto& pair : std::map<int, int>{{-1, 0}, {4, 4}, {5, 5}, {6, 6}}) {
    const int wanted = pair.first, used = pair.second;  // clang 14 captures no structured bindings
    recorder().reset();
    run_ranks(2, [&](Bootstrap& bootstrap) {
      auto options = options_of({}, kFirst);
      options.profiler_version = options.tuner_version = wanted;
      auto comm = Communicator::create(*plugin, bootstrap, options);
      ASSERT_TRUE(comm) << comm.error().message;
      EXPECT_EQ((*comm)->profiler_version(), used);
      EXPECT_EQ((*comm)->tuner_version(), used);
    });
  }
  run_ranks(2, [&](Bootstrap& bootstrap) {
    auto options = options_of({}, kFirst);
    options.profiler_version = 3;
    const auto comm = Communicator::create(*plugin, bootstrap, options);
    ASSERT_FALSE(comm);
    EXPECT_THAT(comm.error().message, testing::HasSubstr("allowed are 4 to 6"));
  });
}

TEST(Profiler, TheOrderAroundACollectiveIsNccls) {
  run({.mask = kAll});
  const auto records = recorder().records();
  const Record* coll = of_type(records, kEventColl).front();
  std::vector<std::string> order;
  for (const Record& record : records) {
    if (record.thread != coll->thread || record.type == 0) continue;
    const char what = record.call == Call::kStart ? '+' : record.call == Call::kStop ? '-' : '=';
    order.push_back(what + std::to_string(what == '=' ? static_cast<std::uint64_t>(record.state) : record.type));
    if (order.back() == "-256") break;
  }
  EXPECT_EQ(order, (std::vector<std::string>{"+256", "=23", "+512", "-512", "=24", "+2048", "-2048", "+1", "+2", "-2",
                                             "-1", "-256"}));
  const Record& api = start_of(records, coll->parent);
  EXPECT_EQ(api.type, static_cast<std::uint64_t>(kEventCollApi));
  EXPECT_EQ(api.datatype, "ncclFloat32");
  EXPECT_EQ(start_of(records, api.parent).type, static_cast<std::uint64_t>(kEventGroupApi));
  EXPECT_EQ(start_of(records, coll->group).type, static_cast<std::uint64_t>(kEventGroup));
}

TEST(Profiler, V4HasTheGroupAsParentAndNoApiEvents) {
  run({.net_version = 10, .mask = kAll});
  const auto records = recorder().records();
  EXPECT_TRUE(of_type(records, kEventGroupApi).empty());
  EXPECT_TRUE(of_type(records, kEventCollApi).empty());
  for (const Record* coll : of_type(records, kEventColl)) {
    EXPECT_EQ(start_of(records, coll->parent).type, static_cast<std::uint64_t>(kEventGroup));
  }
}

// An all-reduce of two ranks under a profiler that keeps no events of `type`.
void reduce_without(std::uint64_t type, const Setup& setup) {
  recorder().reset();
  recorder().exhaust(type);
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN, setup.net_version);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, options_of(setup, kFirst));
    ASSERT_TRUE(comm) << comm.error().message;
    std::vector<float> data(kCount, 1.0f);
    ASSERT_TRUE((*comm)->all_reduce(data.data(), kCount, DataType::kFloat32, ReduceOp::kSum)->wait());
    EXPECT_EQ(data[kCount - 1], 2.0f);
    ASSERT_TRUE(bootstrap.barrier());
    EXPECT_TRUE((*comm)->close());
  });
}

// As NCCL 2.27: a profiler that keeps no groups hears of no collective. From v5 on it does.
TEST(Profiler, V4StartsNoCollectiveBelowAGroupThatWasNotKept) {
  for (const int net : {10, 11}) {
    reduce_without(kEventGroup, {.net_version = net});
    EXPECT_STREQ(recorder().violations(), "");
    const auto records = recorder().records();
    EXPECT_EQ(of_type(records, kEventColl).empty(), net == 10);
    EXPECT_FALSE(of_type(records, kEventProxyOp).empty());
  }
}

TEST(Profiler, AnEmptyMaskStartsNothing) {
  run({.mask = 0});
  const auto records = recorder().records();
  for (const Record& record : records) EXPECT_NE(record.call, Call::kStart);
}

TEST(Profiler, AnExhaustedPluginGetsNullParents) {
  for (const std::uint64_t type : {kEventColl, kEventProxyOp, kEventProxyStep, kEventNetPlugin}) {
    reduce_without(type, {.channels = 2});
    EXPECT_STREQ(recorder().violations(), "");
    const auto records = recorder().records();
    for (const Record& record : records) {
      if (record.call == Call::kStart && record.type == type << 1 && type != kEventNetPlugin) {
        EXPECT_EQ(record.parent, 0u);
      }
    }
    EXPECT_FALSE(of_type(records, kEventNetPlugin).empty());
  }
}

TEST(Profiler, WhoseInitFailsIsLeftOut) {
  recorder().reset();
  recorder().fail("profiler_init", kSystemError);
  const auto plugin = open_plugin(PROXY_TEST_RECORDING_PLUGIN);
  run_ranks(2, [&](Bootstrap& bootstrap) {
    auto comm = Communicator::create(*plugin, bootstrap, options_of({}, kFirst));
    ASSERT_TRUE(comm) << comm.error().message;
    EXPECT_EQ((*comm)->profiler_version(), 0);
    std::vector<float> data(1000);
    EXPECT_TRUE((*comm)->all_reduce(data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum)->wait());
    ASSERT_TRUE(bootstrap.barrier());
    EXPECT_TRUE((*comm)->close());
  });
  for (const Record& record : recorder().records()) EXPECT_NE(record.call, Call::kProfilerFinalize);
}

TEST(Profiler, ALibraryWithoutOneIsDriven) {
  const auto plugin = open_plugin(PROXY_TEST_MEMORY_PLUGIN);
  const auto none = ProfilerPlugin::open(plugin->path());
  ASSERT_TRUE(none);
  EXPECT_EQ(*none, nullptr);
  EXPECT_FALSE(ProfilerPlugin::open(plugin->path(), 7));
  EXPECT_FALSE(ProfilerPlugin::open("./no-such-plugin.so"));
}

// One rank's place in the records of its thread, first and last.
TEST(Profiler, LivesBetweenTheNetPluginAndItsConnections) {
  run({.size = 3});
  const auto records = recorder().records();
  std::size_t first_listen = records.size();
  std::map<std::thread::id, std::vector<std::string>> ends;
  std::map<std::thread::id, std::vector<std::string>> starts;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    if (record.call == Call::kNet && record.text == "listen") first_listen = std::min(first_listen, i);
    // Of the communicator that is made first: its ranks agree on each phase before the next one.
    if (record.call == Call::kProfilerInit && record.comm == kFirst) {
      EXPECT_LT(i, first_listen);
    }
    if (record.call == Call::kTunerInit) starts[record.thread].push_back("tuner");
    if (record.call == Call::kProfilerInit) starts[record.thread].push_back("profiler");
    if (record.call == Call::kTunerFinalize) ends[record.thread].push_back("tuner");
    if (record.call == Call::kProfilerFinalize) ends[record.thread].push_back("profiler");
    if (record.call == Call::kNet && record.text == "finalize") ends[record.thread].push_back("net");
  }
  EXPECT_EQ(starts.size(), 3u);
  for (const auto& [thread, order] : starts) {
    EXPECT_EQ(order, (std::vector<std::string>{"profiler", "tuner", "profiler", "tuner"}));
  }
  for (const auto& [thread, order] : ends) {
    EXPECT_EQ(order, (std::vector<std::string>{"tuner", "profiler", "net", "tuner", "profiler", "net"}));
  }
}

}  // namespace
}  // namespace clustar::bench::proxy
