#include "tests/proxy/recording_plugin.h"

#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/tuner.h"
#include "tests/proxy/memory_calls.h"

namespace clustar::tests::recording {
namespace {

using namespace nccl_abi;  // NOLINT: this file speaks the ABI

struct Context {
  std::uint64_t comm = 0;
  int rank = 0;
  int version = 0;
};
struct Event {
  std::size_t id = 0;
  std::uint64_t type = 0;
  Context* context = nullptr;
  bool open = true;
};

struct State {
  std::mutex mutex;
  std::vector<Record> records;
  std::vector<std::unique_ptr<Event>> events;  // kept after their stop: a handle may come back
  std::set<const Event*> known;
  std::set<const Context*> contexts;             // between init and finalize
  std::vector<std::unique_ptr<Context>> memory;  // of all: events point to it until reset()
  std::map<std::string, int> failures;
  std::string violations;
  int mask = kEventNetPlugin;
  std::uint64_t exhausted = 0;
  unsigned forbidden = 0;
  ProfilerCallback callback = nullptr;
};
State g;

void violation(const std::string& text) { g.violations += text + "\n"; }

Record& add(Call call) {
  Record& record = g.records.emplace_back();
  record.call = call;
  record.thread = std::this_thread::get_id();
  return record;
}

int failure(const char* call) {
  const auto found = g.failures.find(call);
  return found == g.failures.end() ? kSuccess : found->second;
}

std::size_t id_of(const void* handle, const char* what) {
  if (handle == nullptr) return 0;
  const auto* event = static_cast<const Event*>(handle);
  if (g.known.contains(event)) return event->id;
  violation(std::string(what) + " is no event");
  return 0;
}

std::string text_of(const char* text) { return text != nullptr ? text : "(null)"; }

// By overload, what v4 and v5 have under other names.
template <class Coll>
void describe_coll(const Coll& coll, Record& record) {
  record.number = coll.seq_number;
  record.text = text_of(coll.func);
  record.datatype = text_of(coll.datatype);
  record.algo = text_of(coll.algo);
  record.proto = text_of(coll.proto);
  record.count = coll.count;
  record.root = coll.root;
  record.channels = coll.channels;
  if constexpr (requires { coll.parent_group; }) record.group = id_of(coll.parent_group, "parentGroup");
}

template <class Descriptor>
void describe(const Descriptor& event, Record& record) {
  record.type = event.type;
  record.rank = event.rank;
  switch (event.type) {
    case kEventColl: describe_coll(event.coll, record); break;
    case kEventProxyOp:
      record.pid = event.proxy_op.pid;
      record.channel = event.proxy_op.channel;
      record.peer = event.proxy_op.peer;
      record.steps = event.proxy_op.steps;
      record.is_send = event.proxy_op.is_send != 0;
      break;
    case kEventProxyStep: record.step = event.proxy_step.step; break;
    case kEventP2p:
      record.text = text_of(event.p2p.func);
      record.datatype = text_of(event.p2p.datatype);
      record.count = event.p2p.count;
      record.peer = event.p2p.peer;
      record.channels = event.p2p.channels;
      if constexpr (requires { event.p2p.parent_group; }) record.group = id_of(event.p2p.parent_group, "parentGroup");
      break;
    case kEventNetPlugin:
      record.plugin_id = event.net_plugin.id;
      if (event.net_plugin.data != nullptr) *static_cast<bool*>(event.net_plugin.data) = true;
      break;
    default: break;
  }
  if constexpr (requires { event.coll_api; }) {
    if (event.type == kEventCollApi) {
      record.text = text_of(event.coll_api.func);
      record.datatype = text_of(event.coll_api.datatype);
      record.count = event.coll_api.count;
    }
    if (event.type == kEventP2pApi) {
      record.text = text_of(event.p2p_api.func);
      record.datatype = text_of(event.p2p_api.datatype);
      record.count = event.p2p_api.count;
    }
  }
}

template <class Descriptor>
int start(void* context, void** handle, Descriptor* event) {
  const std::lock_guard lock(g.mutex);
  auto* owner = static_cast<Context*>(context);
  if (!g.contexts.contains(owner)) violation("startEvent with a context that init did not give");
  Record& record = add(Call::kStart);
  record.event = g.records.size();
  record.parent = id_of(event->parent, "a parent");
  describe(*event, record);
  if (owner != nullptr) {
    record.comm = owner->comm;
    record.comm_rank = owner->rank;
    record.version = owner->version;
  }
  if ((g.exhausted & record.type) != 0) return kSuccess;
  g.events.push_back(std::make_unique<Event>(Event{record.event, record.type, owner, true}));
  *handle = g.events.back().get();
  g.known.insert(g.events.back().get());
  return kSuccess;
}

void on_event(Call call, void* handle, int state, const EventStateArgs* args) {
  const std::lock_guard lock(g.mutex);
  auto* event = static_cast<Event*>(handle);
  if (!g.known.contains(event)) return violation("stopEvent or recordEventState of what is no event");
  if (!event->open) violation("stopEvent or recordEventState after the event's stop");
  Record& record = add(call);
  record.event = event->id;
  record.type = event->type;
  record.comm = event->context->comm;
  record.comm_rank = event->context->rank;
  record.state = state;
  if (args != nullptr) record.bytes = args->transferred;
  if (call == Call::kStop) event->open = false;
}

int stop(void* handle) {
  on_event(Call::kStop, handle, 0, nullptr);
  return kSuccess;
}
int record_state(void* handle, int state, EventStateArgs* args) {
  on_event(Call::kState, handle, state, args);
  return kSuccess;
}

int open_context(int version, void** context, std::uint64_t comm, int* mask, const char* name, int nodes, int ranks,
                 int rank) {
  const std::lock_guard lock(g.mutex);
  Record& record = add(Call::kProfilerInit);
  record.version = version;
  record.comm = comm;
  record.rank = record.comm_rank = rank;
  record.ranks = ranks;
  record.nodes = nodes;
  record.text = text_of(name);
  if (const int result = failure("profiler_init"); result != kSuccess) return result;
  *mask = g.mask;
  auto* made = g.memory.emplace_back(std::make_unique<Context>(Context{comm, rank, version})).get();
  g.contexts.insert(made);
  *context = made;
  return kSuccess;
}

int init_v4(void** context, int* mask, const char* name, std::uint64_t comm, int nodes, int ranks, int rank,
            DebugLogger) {
  return open_context(4, context, comm, mask, name, nodes, ranks, rank);
}
template <int V>
int init(void** context, std::uint64_t comm, int* mask, const char* name, int nodes, int ranks, int rank, DebugLogger) {
  return open_context(V, context, comm, mask, name, nodes, ranks, rank);
}

int finalize(void* context) {
  const std::lock_guard lock(g.mutex);
  auto* made = static_cast<Context*>(context);
  if (g.contexts.erase(made) == 0) {
    violation("the profiler's finalize with a context that init did not give");
    return kInvalidArgument;
  }
  Record& record = add(Call::kProfilerFinalize);
  record.comm = made->comm;
  record.rank = made->rank;
  return kSuccess;
}

int tuner_init(int version, void** context, std::uint64_t comm, std::size_t ranks, std::size_t nodes) {
  const std::lock_guard lock(g.mutex);
  Record& record = add(Call::kTunerInit);
  record.version = version;
  record.comm = comm;
  record.ranks = static_cast<int>(ranks);
  record.nodes = static_cast<int>(nodes);
  *context = &g;
  return failure("tuner_init");
}
int tuner_init_v4(std::size_t ranks, std::size_t nodes, DebugLogger, void** context) {
  return tuner_init(4, context, 0, ranks, nodes);
}
template <int V>
int tuner_init_with(void** context, std::uint64_t comm, std::size_t ranks, std::size_t nodes, DebugLogger,
                    NvlDomainInfo* domains, void* constants) {
  if (domains == nullptr || constants == nullptr) return kInvalidArgument;
  return tuner_init(V, context, comm, ranks, nodes);
}

int get_coll_info(void* context, int function, std::size_t bytes, int, float** cost, int algos, int protos, int, int*) {
  const std::lock_guard lock(g.mutex);
  if (context != &g || algos != 7 || protos != 3) violation("getCollInfo with another context or table");
  Record& record = add(Call::kCollInfo);
  record.number = static_cast<std::uint64_t>(function);
  record.bytes = bytes;
  auto* costs = reinterpret_cast<float*>(cost);
  for (int p = 0; p < protos; ++p) {
    float& entry = costs[kRing * protos + p];
    if (entry != kCostIgnored) record.proto += std::to_string(p);
    if ((g.forbidden & 1u << p) != 0) entry = kCostIgnored;
  }
  return failure("get_coll_info");
}

int tuner_end(void* context) {
  const std::lock_guard lock(g.mutex);
  if (context != &g) violation("the tuner's finalize with another context");
  add(Call::kTunerFinalize);
  return kSuccess;
}

// Outside of the lock: the callback comes back as startEvent.
void posted(bool is_send, int n, void** phandles) {
  for (int i = 0; i < n; ++i) {
    {
      const std::lock_guard lock(g.mutex);
      add(Call::kPosted).is_send = is_send;
    }
    void* handle = nullptr;
    bool answered = false;
    g.callback(&handle, kProfilerStart, phandles[i], 0x1234, &answered);
    if (handle == nullptr) continue;
    if (!answered) {
      const std::lock_guard lock(g.mutex);
      violation("the callback's data did not reach startEvent");
    }
    if (is_send) {
      g.callback(&handle, kProfilerStop, nullptr, 0, nullptr);
    } else {
      g.callback(&handle, kProfilerUpdate, nullptr, 0, &answered);
      g.callback(&handle, kProfilerUpdateAndStop, nullptr, 0, &answered);
    }
  }
}

void called(const char* call) {
  const std::lock_guard lock(g.mutex);
  const std::string name = call;
  if (name == "listen" || name == "connect" || name == "close_send" || name == "finalize" || name == "init") {
    add(Call::kNet).text = name;
  }
}

[[maybe_unused]] const bool kHooked = [] {
  memory::hooks() = {called, [](ProfilerCallback callback) { g.callback = callback; }, posted};
  return true;
}();

void reset() {
  const std::lock_guard lock(g.mutex);
  std::erase_if(g.memory, [](const auto& context) { return !g.contexts.contains(context.get()); });
  g.records.clear();
  g.events.clear();
  g.known.clear();
  g.failures.clear();
  g.violations.clear();
  g.mask = kEventNetPlugin;
  g.exhausted = 0;
  g.forbidden = 0;
}

std::vector<Record> records() {
  const std::lock_guard lock(g.mutex);
  return g.records;
}
void mark() {
  const std::lock_guard lock(g.mutex);
  add(Call::kMark);
}
void set_mask(int mask) { g.mask = mask; }
void exhaust(std::uint64_t types) { g.exhausted = types; }
void forbid(unsigned protocols) { g.forbidden = protocols; }
void fail(const char* call, int result) { g.failures[call] = result; }
const char* violations() { return g.violations.c_str(); }

}  // namespace
}  // namespace clustar::tests::recording

using namespace clustar::tests::recording;  // NOLINT: the tables below are C names

#define RECORDING_EXPORT extern "C" __attribute__((visibility("default")))

RECORDING_EXPORT clustar::nccl_abi::ProfilerV4 ncclProfiler_v4;
RECORDING_EXPORT clustar::nccl_abi::ProfilerV5 ncclProfiler_v5;
RECORDING_EXPORT clustar::nccl_abi::ProfilerV6 ncclProfiler_v6;
RECORDING_EXPORT clustar::nccl_abi::TunerV4 ncclTunerPlugin_v4;
RECORDING_EXPORT clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5;
RECORDING_EXPORT clustar::nccl_abi::TunerV6 ncclTunerPlugin_v6;
RECORDING_EXPORT clustar::tests::RecordingControl recording_control;

clustar::nccl_abi::ProfilerV4 ncclProfiler_v4 = {"Recording", init_v4, start, stop, record_state, finalize};
clustar::nccl_abi::ProfilerV5 ncclProfiler_v5 = {"Recording", init<5>, start, stop, record_state, finalize};
clustar::nccl_abi::ProfilerV6 ncclProfiler_v6 = {"Recording", init<6>, start, stop, record_state, finalize};
clustar::nccl_abi::TunerV4 ncclTunerPlugin_v4 = {"Recording", tuner_init_v4, get_coll_info, tuner_end};
clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5 = {"Recording", tuner_init_with<5>, get_coll_info, tuner_end};
clustar::nccl_abi::TunerV6 ncclTunerPlugin_v6 = {"Recording", tuner_init_with<6>, get_coll_info, tuner_end, nullptr};
clustar::tests::RecordingControl recording_control = {reset,   records, mark, set_mask,
                                                      exhaust, forbid,  fail, violations};
