// Events on their way through our profiler to a second one.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "nccl_plugin/profiler/profiler.h"
#include "tests/unit/nccl_plugin/profiler/chained_profiler.h"
#include "tests/unit/nccl_plugin/profiler/profiler_events.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;
using tests::ChainedCall;

const std::string kV4 = std::string(CLUSTAR_CHAINED) + "_v4.so";
const std::string kV5 = std::string(CLUSTAR_CHAINED) + "_v5.so";
const std::string kV6 = std::string(CLUSTAR_CHAINED) + "_v6.so";
const std::string kAll = std::string(CLUSTAR_CHAINED) + "_all.so";

class PluginChain : public testing::Test {
 protected:
  ~PluginChain() override {
    comm_.reset();
    opening_.chain.reset();
    if (library_ != nullptr) ::dlclose(library_);
  }

  void open(const std::string& path, int version, int mask) {
    library_ = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << ::dlerror();
    mask_ = *static_cast<int**>(::dlsym(library_, "chained_profiler_mask"));
    take_ = *static_cast<tests::ChainedTake*>(::dlsym(library_, "chained_profiler_take"));
    take_();
    *mask_ = mask;
    auto chain = ChainProfiler::open(path);
    ASSERT_TRUE(chain) << chain.error().message;
    opening_.chain = std::move(*chain);
    opening_.version = version;
    opening_.comm = {.comm_id = 11, .name = "tp", .ranks = 2, .nodes = 2, .rank = 0, .traffic_class = -1};
    opening_.log = Log([this](clustar::LogLevel, const std::string& line) { lines_.push_back(line); });
    comm_ = std::make_unique<TestComm>(*profiler_, version);
    comm_->open(opening_);
  }
  std::vector<ChainedCall> take() { return take_(); }
  ChainedCall only() {
    const auto calls = take();
    EXPECT_EQ(calls.size(), 1u);
    return calls.empty() ? ChainedCall() : calls.back();
  }

  CommRegistry registry_;
  const std::atomic<bool> critical_{false};
  std::unique_ptr<Profiler> profiler_ = std::make_unique<Profiler>(
      Profiler::Options{.contexts = 4, .collectives = 8, .operations = 8, .others = 8}, registry_, critical_);
  Profiler::Opening opening_;
  std::unique_ptr<TestComm> comm_;
  std::vector<std::string> lines_;
  void* library_ = nullptr;
  int* mask_ = nullptr;
  tests::ChainedTake take_ = nullptr;
};

constexpr int kAllEvents = 0x7fff;

TEST_F(PluginChain, EventsOfTheSameVersionGoOnAsTheyAreWithTheirParents) {
  for (const auto& [path, version] : {std::pair{kV5, 5}, {kV6, 6}, {kAll, 5}, {kAll, 6}}) {
    SCOPED_TRACE(path + " under v" + std::to_string(version));
    open(path, version, kAllEvents);
    EXPECT_EQ(comm_->mask, kAllEvents);
    const ChainedCall init = only();
    EXPECT_EQ(init.call, "init");
    EXPECT_EQ(init.number, 11u);
    EXPECT_EQ(init.func, "tp");

    void* const group_api = comm_->plain(kEventGroupApi, nullptr);
    const ChainedCall seen_group_api = only();
    EXPECT_EQ(seen_group_api.type, kEventGroupApi);
    EXPECT_EQ(seen_group_api.context, init.handle);
    void* const api = comm_->coll_api(false);
    const ChainedCall seen_api = only();
    EXPECT_EQ(seen_api.type, kEventCollApi);
    comm_->stop(api);
    EXPECT_EQ(only().handle, seen_api.handle);
    void* const group = comm_->plain(kEventGroup, nullptr);
    const ChainedCall seen_group = only();
    void* const coll = comm_->coll({.number = 4}, api, group);
    const ChainedCall seen_coll = only();
    EXPECT_EQ(seen_coll.parent, seen_api.handle) << "stopped, but not forgotten";
    EXPECT_EQ(seen_coll.group, seen_group.handle);
    EXPECT_EQ(seen_coll.number, 4u);
    EXPECT_EQ(seen_coll.func, "AllReduce");
    comm_->stop(coll);
    EXPECT_EQ(only().handle, seen_coll.handle);
    void* const op = comm_->op(coll, 2, 6);
    const ChainedCall seen_op = only();
    EXPECT_EQ(seen_op.parent, seen_coll.handle);
    EXPECT_EQ(seen_op.number, 6u);
    void* const step = comm_->step(op, 0);
    const ChainedCall seen_step = only();
    EXPECT_EQ(seen_step.parent, seen_op.handle);
    profiler_->record(step, 20, nullptr);
    const ChainedCall seen_state = only();
    EXPECT_EQ(seen_state.call, "record");
    EXPECT_EQ(seen_state.handle, seen_step.handle);
    EXPECT_EQ(seen_state.number, 20u);
    void* net = nullptr;
    EXPECT_EQ(comm_->ask(step, &net).identity.number, 4u) << "answered all the same";
    const ChainedCall seen_net = only();
    EXPECT_EQ(seen_net.type, kEventNetPlugin);
    EXPECT_EQ(seen_net.parent, seen_step.handle);
    EXPECT_EQ(seen_net.number, static_cast<std::uint64_t>(kNetEventId));
    for (const auto& [ours, theirs] :
         {std::pair{net, seen_net}, {step, seen_step}, {op, seen_op}, {group, seen_group}}) {
      comm_->stop(ours);
      EXPECT_EQ(only().handle, theirs.handle);
      comm_->stop(ours);
      EXPECT_THAT(take(), testing::IsEmpty());
    }
    comm_->close();
    EXPECT_EQ(only().call, "finalize");
    comm_->stop(group_api);
    EXPECT_THAT(take(), testing::IsEmpty()) << "nothing after its end";
  }
}

TEST_F(PluginChain, AnOlderProfilerGetsWhatItKnows) {
  open(kV4, 6, kAllEvents);
  take();
  EXPECT_EQ(comm_->plain(kEventGroupApi, nullptr), nullptr);
  void* const api = comm_->coll_api(true);
  EXPECT_NE(api, nullptr) << "ours all the same";
  EXPECT_THAT(take(), testing::IsEmpty());
  void* const group = comm_->plain(kEventGroup, nullptr);
  const ChainedCall seen_group = only();
  void* const coll = comm_->coll({.number = 4}, api, group);
  const ChainedCall seen = only();
  EXPECT_EQ(seen.parent, seen_group.handle) << "v4's parent is the group";
  EXPECT_EQ(seen.number, 4u);
  void* const op = comm_->op(coll, 2, 6);
  EXPECT_EQ(only().parent, seen.handle);
  void* const step = comm_->step(op, 0);
  EXPECT_EQ(only().type, kEventProxyStep);
  EXPECT_TRUE(comm_->ask(step).facts.collective.captured);
  EXPECT_EQ(only().type, kEventNetPlugin);
  profiler_->record(step, 23, nullptr);
  EXPECT_THAT(take(), testing::IsEmpty()) << "a state that v4 lacks";
  comm_->p2p("Send", 10);
  EXPECT_EQ(only().func, "Send");
  comm_->plain(kEventCeColl, nullptr);
  EXPECT_THAT(take(), testing::IsEmpty());
}

TEST_F(PluginChain, V5ProfilersGetNoCopyEngineEvents) {
  open(kV5, 6, kAllEvents);
  take();
  EXPECT_EQ(comm_->plain(kEventCeColl, nullptr), nullptr);
  EXPECT_THAT(take(), testing::IsEmpty());
  EXPECT_NE(comm_->plain(kEventGroupApi, nullptr), nullptr);
  EXPECT_EQ(only().type, kEventGroupApi);
}

TEST_F(PluginChain, V4UnderV4) {
  open(kAll, 4, kAllEvents);
  EXPECT_EQ(only().func, "tp");
  void* const group = comm_->plain(kEventGroup, nullptr);
  const ChainedCall seen = only();
  comm_->coll({.number = 1}, nullptr, group);
  EXPECT_EQ(only().parent, seen.handle);
}

TEST_F(PluginChain, ATooNewProfilerIsNamedAndGetsNothing) {
  open(kV6, 4, kAllEvents);
  EXPECT_THAT(lines_, testing::ElementsAre(testing::HasSubstr("too new")));
  void* const coll = comm_->coll({.number = 1}, nullptr);
  EXPECT_EQ(comm_->ask(comm_->step(comm_->op(coll, 4), 0)).identity.number, 1u);
  EXPECT_THAT(take(), testing::IsEmpty());
}

TEST_F(PluginChain, OnlyWhatItsMaskAsksForGoesOn) {
  open(kV5, 5, kEventColl);
  take();
  EXPECT_EQ(comm_->mask,
            kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventNetPlugin | kEventCollApi | kEventP2pApi);
  void* const group = comm_->plain(kEventGroup, nullptr);
  EXPECT_EQ(only().type, kEventGroup) << "as NCCL does for those above it";
  void* const coll = comm_->coll({.number = 1}, comm_->coll_api(false), group);
  EXPECT_EQ(take().size(), 2u);
  void* const op = comm_->op(coll, 4);
  void* const step = comm_->step(op, 0);
  EXPECT_TRUE(comm_->ask(step).facts.identified);
  comm_->stop(step);
  comm_->stop(op);
  EXPECT_THAT(take(), testing::IsEmpty());
}

TEST_F(PluginChain, ForeignOperationsStayOut) {
  open(kV5, 5, kAllEvents);
  take();
  void* const op = comm_->op(nullptr, 4, 0, ::getpid() + 1);
  void* const step = comm_->step(op, 0);
  EXPECT_EQ(comm_->ask(step).facts.unidentified, Reason::kForeignProcess);
  for (const ChainedCall& call : take()) EXPECT_EQ(call.type, kEventNetPlugin);
  void* const own = comm_->op(nullptr, 4);
  EXPECT_EQ(only().type, kEventProxyOp) << "known to the second profiler though not to us";
  EXPECT_FALSE(comm_->ask(comm_->step(own, 0)).facts.identified);
}

TEST_F(PluginChain, ExhaustedPoolsLeaveEventsOut) {
  open(kV5, 5, kAllEvents);
  take();
  int kept = 0;
  for (int i = 0; i < 20; ++i) kept += comm_->plain(kEventGroup, nullptr) != nullptr ? 1 : 0;
  EXPECT_EQ(kept, 8);
  EXPECT_EQ(take().size(), 8u);
  EXPECT_EQ(profiler_->counters().exhausted, 12u);
}

TEST(ChainProfiler, RefusalsSayWhy) {
  const auto missing = ChainProfiler::open("/nowhere/profiler.so");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(missing.error().message, testing::HasSubstr("/nowhere/profiler.so"));
  const auto by_name = ChainProfiler::open("nonsuch");
  ASSERT_FALSE(by_name);
  EXPECT_THAT(by_name.error().message, testing::HasSubstr("libnccl-profiler-nonsuch.so"));
  const auto no_table = ChainProfiler::open(std::string(CLUSTAR_CHAINED) + "_none.so");
  ASSERT_FALSE(no_table);
  EXPECT_THAT(no_table.error().message, testing::HasSubstr("ncclProfiler_v4"));
  for (const std::string& self : {std::string(CLUSTAR_CHAINED) + "_clustar.so", std::string(CLUSTAR_PLUGIN)}) {
    const auto itself = ChainProfiler::open(self);
    ASSERT_FALSE(itself) << self;
    EXPECT_EQ(itself.error().code, ErrorCode::kInvalidUsage);
    EXPECT_THAT(itself.error().message, testing::HasSubstr("itself"));
  }
}

}  // namespace
}  // namespace clustar::nccl_plugin
