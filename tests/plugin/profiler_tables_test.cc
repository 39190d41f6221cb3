// The profiler's tables as NCCL finds them in the plugin's .so.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/profiler/profiler.h"
#include "tests/own_process.h"
#include "tests/plugin/plugin_under_test.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using namespace nccl_abi;
using nccl_plugin::MessageQuery;

std::string warnings;  // of the latest Library

void log_line(int level, unsigned long, const char*, int, const char* format, ...) {
  if (level != kLogWarn) return;
  va_list arguments;
  va_start(arguments, format);
  char line[1024];
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  warnings += std::string(line) + "\n";
}

class Library {
 public:
  Library() : library_(::dlopen(kPluginPath, RTLD_NOW | RTLD_LOCAL)) { warnings.clear(); }
  ~Library() { ::dlclose(library_); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  template <class Table>
  const Table* table(const char* name) const {
    return static_cast<const Table*>(::dlsym(library_, name));
  }

 private:
  void* const library_;
};

int init(const ProfilerV4& table, void** context, int* mask) {
  return table.init(context, mask, "dp", 7, 2, 2, 0, log_line);
}
template <class Table>
int init(const Table& table, void** context, int* mask) {
  return table.init(context, 7, mask, "dp", 2, 2, 0, log_line);
}

// One message through a table, every type as its version has it; the padding holds anything.
template <class Event, class Table>
MessageQuery message(const Table& table, void* context) {
  const auto start = [&](std::uint64_t type, void* parent, const auto& fill) {
    Event event;
    std::memset(static_cast<void*>(&event), 0xa5, sizeof event);
    event.type = static_cast<decltype(event.type)>(type);
    event.parent = parent;
    event.rank = 0;
    fill(event);
    void* handle = nullptr;
    EXPECT_EQ(table.startEvent(context, &handle, &event), kSuccess);
    return handle;
  };
  void* const coll = start(kEventColl, nullptr, [](Event& event) {
    event.coll.seq_number = 3;
    event.coll.func = "AllReduce";
    event.coll.count = 100;
    event.coll.datatype = "ncclFloat32";
    event.coll.algo = "RING";
    event.coll.proto = "SIMPLE";
  });
  EXPECT_EQ(table.stopEvent(coll), kSuccess);
  void* const op = start(kEventProxyOp, coll, [](Event& event) {
    event.proxy_op.pid = ::getpid();
    event.proxy_op.channel = 9;
    event.proxy_op.steps = 4;
  });
  EXPECT_EQ(table.recordEventState(op, 19, nullptr), kSuccess);
  void* const step = start(kEventProxyStep, op, [](Event& event) { event.proxy_step.step = 0; });
  MessageQuery query;
  void* const net = start(kEventNetPlugin, step, [&](Event& event) {
    event.net_plugin.id = nccl_plugin::kNetEventId;
    event.net_plugin.data = &query;
  });
  EXPECT_EQ(net, nullptr);
  EXPECT_EQ(table.stopEvent(step), kSuccess);
  EXPECT_EQ(table.stopEvent(op), kSuccess);
  return query;
}

template <class Event, class Table>
void expect_identity(const char* name) {
  const Environment environment(Variables{});
  const Library library;
  const auto* table = library.template table<Table>(name);
  ASSERT_NE(table, nullptr) << name;
  EXPECT_STREQ(table->name, "clustar");
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(init(*table, &context, &mask), kSuccess) << warnings;
  EXPECT_NE(mask & kEventNetPlugin, 0);
  const MessageQuery query = message<Event>(*table, context);
  EXPECT_TRUE(query.identity.known);
  EXPECT_EQ(query.identity.communicator, 7u);
  EXPECT_EQ(query.identity.channel, 9u);
  EXPECT_EQ(query.identity.total_bytes, 400u);
  EXPECT_EQ(query.facts.ranks, 2u);
  EXPECT_EQ(query.facts.transfers, 4u);
  EXPECT_EQ(table->finalize(context), kSuccess);
  EXPECT_EQ(table->finalize(context), kSuccess);
  EXPECT_EQ(table->finalize(nullptr), kSuccess);
  EXPECT_EQ(table->startEvent(context, nullptr, nullptr), kSuccess);
}

TEST(ProfilerTables, EveryVersionIdentifiesAMessage) {
  expect_identity<EventV4, ProfilerV4>("ncclProfiler_v4");
  expect_identity<EventV5, ProfilerV5>("ncclProfiler_v5");
  expect_identity<EventV6, ProfilerV6>("ncclProfiler_v6");
}

TEST(ProfilerTables, ChainingToItselfIsAWarningAndNoLoop) {
  const Environment environment(Variables{{"CLUSTAR_CHAIN_PROFILER", kPluginPath}});
  const Library library;
  const auto* table = library.table<ProfilerV5>("ncclProfiler_v5");
  ASSERT_NE(table, nullptr);
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(init(*table, &context, &mask), kSuccess);
  EXPECT_THAT(warnings, testing::HasSubstr("is this plugin itself"));
  EXPECT_TRUE(message<EventV5>(*table, context).identity.known);
  EXPECT_EQ(table->finalize(context), kSuccess);
}

TEST(ProfilerTables, AMissingSecondProfilerIsAWarning) {
  const Environment environment(Variables{{"CLUSTAR_CHAIN_PROFILER", "/nowhere/profiler.so"}});
  const Library library;
  const auto* table = library.table<ProfilerV6>("ncclProfiler_v6");
  ASSERT_NE(table, nullptr);
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(init(*table, &context, &mask), kSuccess);
  EXPECT_THAT(warnings, testing::HasSubstr("/nowhere/profiler.so"));
  EXPECT_EQ(table->finalize(context), kSuccess);
}

TEST(ProfilerTables, AWrongSettingIsAnErrorThatNamesIt) {
  const Environment environment(Variables{{"CLUSTAR_LOSS_RULES", "colour=red"}});
  const Library library;
  const auto* table = library.table<ProfilerV5>("ncclProfiler_v5");
  ASSERT_NE(table, nullptr);
  void* context = &context;
  int mask = 0;
  EXPECT_NE(init(*table, &context, &mask), kSuccess);
  EXPECT_EQ(context, nullptr);
  EXPECT_THAT(warnings, testing::HasSubstr("LOSS_RULES"));
  // NCCL goes on without it, and may call it all the same.
  EXPECT_FALSE(message<EventV5>(*table, context).identity.known);
  EXPECT_EQ(table->finalize(context), kSuccess);
}

TEST(ProfilerTables, ReloadsLeaveMemoryFlat) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's own bookkeeping of loaded objects grows with every reload";
  const Environment environment(Variables{});
  const auto cycle = [] {
    const Library library;
    const auto* table = library.table<ProfilerV5>("ncclProfiler_v5");
    void* context = nullptr;
    int mask = 0;
    ASSERT_EQ(init(*table, &context, &mask), kSuccess);
    ASSERT_TRUE(message<EventV5>(*table, context).identity.known);
    ASSERT_EQ(table->finalize(context), kSuccess);
  };
  for (int i = 0; i < 20; ++i) cycle();
  const std::size_t before = resident_kib();
  for (int i = 0; i < 200; ++i) cycle();
  EXPECT_LT(resident_kib(), before + 512);
}

}  // namespace
}  // namespace clustar::tests
