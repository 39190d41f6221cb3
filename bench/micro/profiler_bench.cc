// Identity of a message: what isend pays for it, and what NCCL's events around it cost.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "nccl_plugin/loss/settings.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/profiler/profiler.h"

namespace clustar::bench::micro {
namespace {

using namespace nccl_abi;
using nccl_plugin::LossPolicy;
using nccl_plugin::MessageQuery;
using nccl_plugin::Profiler;

EventV5 event_of(std::uint64_t type, void* parent) {
  EventV5 event;
  std::memset(static_cast<void*>(&event), 0, sizeof event);
  event.type = type;
  event.parent = parent;
  return event;
}

// A communicator with one all-reduce under way.
class Communicator {
 public:
  explicit Communicator(std::shared_ptr<const LossPolicy> policy = nullptr) {
    Profiler::Opening opening;
    opening.policy = std::move(policy);
    opening.comm = {.comm_id = 1, .name = "dp", .ranks = 8, .nodes = 8, .rank = 0, .traffic_class = -1};
    const auto opened = profiler_->open(opening, nullptr);
    if (!opened) throw std::runtime_error(opened.error().message);
    context_ = *opened;
    operation_ = start_operation(start_collective());
  }
  ~Communicator() { profiler_->close(context_); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  void* start_collective() {
    EventV5 api = event_of(kEventCollApi, nullptr);
    EventV5 event = event_of(kEventColl, start(&api));
    event.coll.seq_number = number_++;
    event.coll.func = "AllReduce";
    event.coll.count = 1 << 24;
    event.coll.datatype = "ncclFloat32";
    event.coll.algo = "RING";
    event.coll.proto = "SIMPLE";
    return start(&event);
  }
  void* start_operation(void* collective) {
    EventV5 event = event_of(kEventProxyOp, collective);
    event.proxy_op.pid = ::getpid();
    event.proxy_op.steps = 14 * 2 * 4096;  // whole loops of 8 ranks
    event.proxy_op.is_send = 1;
    return start(&event);
  }
  void* start_step(int step) {
    EventV5 event = event_of(kEventProxyStep, operation_);
    event.proxy_step.step = step;
    return start(&event);
  }
  // What isend does: NCCL's callback makes an event of the query, and our table reads it. Not inlined, as NCCL's is
  // not.
  [[gnu::noinline]] void* ask(void* step, MessageQuery* query) {
    EventV5 event = event_of(kEventNetPlugin, step);
    event.net_plugin.id = nccl_plugin::kNetEventId;
    event.net_plugin.data = query;
    return start(&event);
  }
  void stop(void* handle) { profiler_->stop(handle); }

 private:
  [[gnu::noinline]] void* start(EventV5* event) {
    void* handle = nullptr;
    profiler_->start(context_, &handle, nccl_plugin::read_event(*event));
    return handle;
  }

  nccl_plugin::CommRegistry registry_;
  const std::atomic<bool> critical_{false};
  std::unique_ptr<Profiler> profiler_ = std::make_unique<Profiler>(Profiler::Options(), registry_, critical_);
  void* context_ = nullptr;
  void* operation_ = nullptr;
  std::uint64_t number_ = 0;
};

void identify_message(benchmark::State& state) {
  Communicator comm;
  void* const step = comm.start_step(0);
  for (auto _ : state) {
    MessageQuery query;
    comm.ask(step, &query);
    if (!query.identity.known) return state.SkipWithError("a message was not identified");
    benchmark::DoNotOptimize(query);
  }
}
BENCHMARK(identify_message)->Name("profiler/identify_message");

// The whole of what isend adds: NCCL's callback (here with the body of ncclProfilerCallback), the answer, the verdict
// and the FlowTag of a message that may lose, and the counting.
Communicator* callback_target = nullptr;
struct EventHandle {  // NCCL's ncclProxyEventHandle
  void* step;
  void* sub;
};
int callback(void** event, int type, void* phandle, std::int64_t, void* data) {
  if (type != kProfilerStart) return kSuccess;
  *event = callback_target->ask(static_cast<EventHandle*>(phandle)->step, static_cast<MessageQuery*>(data));
  return kSuccess;
}

void flow_of_isend(benchmark::State& state) {
  LossSettings config;
  config.rules = "func=allreduce";
  config.warmup = 0;
  const auto policy = std::make_shared<const LossPolicy>(LossPolicy::create(config).value());
  Communicator comm(policy);
  callback_target = &comm;
  EventHandle handle{comm.start_step(0), nullptr};
  const nccl_plugin::ChannelFacts channel{1, true, 10'000};
  const nccl_plugin::NetGuard guard{true, true, 1u << kAllReduce, 1u << kRing, 1u << kSimple};
  nccl_plugin::SendCounters counters;
  for (auto _ : state) {
    const auto flow = nccl_plugin::flow_of(*policy, callback, &handle, channel, guard, 1 << 20, 0);
    counters.add(flow);
    benchmark::DoNotOptimize(flow);
  }
  if (counters.of(nccl_plugin::Reason::kLossy) != counters.sent()) state.SkipWithError(counters.summary().c_str());
}
BENCHMARK(flow_of_isend)->Name("profiler/flow_of_isend");

void step_and_message(benchmark::State& state) {
  Communicator comm;
  int number = 0;
  for (auto _ : state) {
    void* const step = comm.start_step(number++);
    MessageQuery query;
    comm.ask(step, &query);
    comm.stop(step);
    if (!query.identity.known) return state.SkipWithError("a message was not identified");
    benchmark::DoNotOptimize(query);
  }
}
BENCHMARK(step_and_message)->Name("profiler/step_and_message");

void collective_and_operation(benchmark::State& state) {
  Communicator comm;
  for (auto _ : state) {
    void* const collective = comm.start_collective();
    comm.stop(collective);
    comm.stop(comm.start_operation(collective));
  }
}
BENCHMARK(collective_and_operation)->Name("profiler/collective_and_operation");

}  // namespace
}  // namespace clustar::bench::micro
