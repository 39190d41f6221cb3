#include "bench/proxy/comm_profiler.h"

#include <unistd.h>

#include <utility>

#include "bench/proxy/nccl_names.h"
#include "bench/proxy/operation.h"

namespace clustar::bench::proxy {
namespace {

using namespace nccl_abi;  // NOLINT: this file speaks the ABI

// Each event is started for the sake of those below it, too, which need it as a parent.
constexpr int kBelowStep = kEventProxyStep | kEventNetPlugin;
constexpr int kBelowOp = kBelowStep | kEventProxyOp;
constexpr int kBelowColl = kBelowOp | kEventColl | kEventKernelCh;
constexpr int kBelowCollApi = kBelowColl | kEventCollApi;
constexpr int kBelowP2p = kBelowOp | kEventP2p | kEventKernelCh;
constexpr int kBelowP2pApi = kBelowP2p | kEventP2pApi;
constexpr int kBelowGroup = kBelowColl | kEventGroup | kEventP2p;
constexpr int kBelowGroupApi = kBelowGroup | kEventGroupApi | kEventCollApi | kEventP2pApi | kEventKernelLaunch;

constexpr std::uint8_t kWarps = 16;  // of NCCL's ring kernels in SIMPLE

EventV6 event_of(std::uint64_t type, void* parent) {
  EventV6 event{};
  event.type = type;
  event.parent = parent;
  return event;
}

}  // namespace

void* CommProfiler::start_group_api(int mask, int depth) {
  if ((mask & kBelowGroupApi) == 0) return nullptr;
  void* handle = nullptr;
  EventV6 event = event_of(kEventGroupApi, nullptr);
  event.group_api = {false, depth};
  profiler_->start(context_, &handle, event);
  if (handle != nullptr) profiler_->record(handle, kStateGroupStartApiStop, nullptr);
  return handle;
}

void CommProfiler::start_coll(const CollectiveRequest& request, Protocol protocol, int channels, TaskEvents& events) {
  const bool moves_bytes = request.collective == Collective::kAllGather || request.collective == Collective::kBroadcast;
  EventV6 event = event_of(kEventColl, events.coll_api);
  event.rank = rank_;
  event.coll.seq_number = numbers_[static_cast<std::size_t>(function_of(request.collective))];
  event.coll.func = function_name(request.collective);
  event.coll.send_buffer = request.input;
  event.coll.recv_buffer = request.output;
  // NCCL turns what only moves data into bytes (collTaskAppend).
  event.coll.count = moves_bytes ? request.count * element_bytes(request.type) : request.count;
  event.coll.datatype = moves_bytes ? "ncclInt8" : datatype_name(request.type);
  event.coll.root = request.root;
  event.coll.channels = static_cast<std::uint8_t>(channels);
  event.coll.warps = kWarps;
  event.coll.algo = "RING";
  event.coll.proto = protocol_name(protocol);
  event.coll.parent_group = events.group;
  profiler_->start(context_, &events.coll, event);
}

void CommProfiler::kernel_launch(int mask, void* group_api) {
  if ((mask & kEventKernelLaunch) == 0) return;
  void* handle = nullptr;
  profiler_->start(context_, &handle, event_of(kEventKernelLaunch, group_api));
  if (handle != nullptr) profiler_->stop(handle);
}

TaskEvents CommProfiler::start_task(const CollectiveRequest& request, Protocol protocol, int channels) {
  TaskEvents events;
  if (profiler_) {
    events.mask = profiler_->mask();
    events.group_api = start_group_api(events.mask, 1);  // a collective outside of a group makes one of its own
    if ((events.mask & kBelowCollApi) != 0) {
      EventV6 event = event_of(kEventCollApi, events.group_api);
      event.coll_api = {
          function_name(request.collective), request.count, datatype_name(request.type), request.root, nullptr, false};
      profiler_->start(context_, &events.coll_api, event);
      if (events.coll_api != nullptr) profiler_->stop(events.coll_api);
    }
    if (events.group_api != nullptr) profiler_->record(events.group_api, kStateGroupEndApiStart, nullptr);
    kernel_launch(events.mask, events.group_api);
    if ((events.mask & kBelowGroup) != 0) profiler_->start(context_, &events.group, event_of(kEventGroup, nullptr));
    if ((events.mask & kBelowColl) != 0 && starts_tasks(events.group)) start_coll(request, protocol, channels, events);
  }
  ++numbers_[static_cast<std::size_t>(function_of(request.collective))];
  return events;
}

// NCCL 2.27, which knows profilers up to v4, starts tasks below a group that the profiler keeps, and no others
// (ncclProfilerStartTaskEvents); from 2.28 on the group is not asked for.
bool CommProfiler::starts_tasks(const void* group) const { return profiler_->version() > 4 || group != nullptr; }

void CommProfiler::stop_task(const TaskEvents& events) {
  for (void* handle : {events.coll, events.group, events.group_api}) {
    if (handle != nullptr) profiler_->stop(handle);
  }
}

// As ncclProfilerStartTaskEvents; the API call has stopped long ago and still is the parent.
void CommProfiler::start_p2p(const P2pTask& task, std::size_t index, P2pEvents& events) {
  EventV6 event = event_of(kEventP2p, events.api[index]);
  event.rank = rank_;
  event.p2p = {
      task.send ? "Send" : "Recv", task.buffer, datatype_name(task.type), task.count, task.peer, 1, events.group};
  profiler_->start(context_, &events.tasks[index], event);
}

P2pEvents CommProfiler::start_group(std::span<const P2pTask> tasks, std::span<const std::size_t> calls) {
  P2pEvents events;
  events.api.resize(tasks.size());
  events.tasks.resize(tasks.size());
  if (!profiler_ || tasks.empty()) return events;
  events.mask = profiler_->mask();
  events.group_api = start_group_api(events.mask, 2);  // the user's group and that of each call
  for (const std::size_t call : calls) {
    if ((events.mask & kBelowP2pApi) == 0) break;
    const P2pTask& task = tasks[call];
    EventV6 event = event_of(kEventP2pApi, events.group_api);
    event.p2p_api = {task.send ? "Send" : "Recv", task.count, datatype_name(task.type), nullptr, false};
    profiler_->start(context_, &events.api[call], event);
    if (events.api[call] != nullptr) profiler_->stop(events.api[call]);
  }
  if (events.group_api != nullptr) profiler_->record(events.group_api, kStateGroupEndApiStart, nullptr);
  kernel_launch(events.mask, events.group_api);
  if ((events.mask & kBelowGroup) != 0) profiler_->start(context_, &events.group, event_of(kEventGroup, nullptr));
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if ((events.mask & kBelowP2p) != 0 && starts_tasks(events.group)) start_p2p(tasks[i], i, events);
  }
  return events;
}

void CommProfiler::stop_group(const P2pEvents& events) {
  for (void* handle : events.tasks) {
    if (handle != nullptr) profiler_->stop(handle);
  }
  for (void* handle : {events.group, events.group_api}) {
    if (handle != nullptr) profiler_->stop(handle);
  }
}

void CommProfiler::prepare(ProxySub& sub, int mask, void* task) const {
  sub.profiler = profiler_.get();
  sub.context = context_;
  sub.mask = mask;
  sub.rank = rank_;
  sub.task_event = task;
}

int CommProfiler::finalize() {
  void* context = std::exchange(context_, nullptr);
  return profiler_ && context != nullptr ? profiler_->finalize(context) : kSuccess;
}

void start_op(ProxySub& sub, const ProxyOpFacts& facts) {
  if (sub.profiler == nullptr || (sub.mask & kBelowOp) == 0) return;
  EventV6 event = event_of(kEventProxyOp, sub.task_event);
  event.rank = sub.rank;
  event.proxy_op = {getpid(),          static_cast<std::uint8_t>(facts.channel),
                    facts.peer,        facts.transfers,
                    facts.chunk_bytes, facts.is_send ? 1 : 0};
  sub.profiler->start(sub.context, &sub.op_event, event);
}

void record_op_in_progress(ProxySub& sub) {
  if (sub.op_event == nullptr) return;
  EventStateArgs none{};
  sub.profiler->record(sub.op_event, kStateProxyOpInProgress, &none);
}

void stop_op(ProxySub& sub) {
  if (void* handle = std::exchange(sub.op_event, nullptr)) sub.profiler->stop(handle);
}

void start_step(ProxySub& sub, std::size_t transfer) {
  ProxyEventHandle& handle = sub.handles[transfer % kSteps];
  handle.sub = &sub;
  if (sub.profiler == nullptr || (sub.mask & kBelowStep) == 0) return;
  EventV6 event = event_of(kEventProxyStep, sub.op_event);
  event.rank = sub.rank;
  event.proxy_step.step = static_cast<int>(transfer);
  sub.profiler->start(sub.context, &handle.step_event, event);
}

void record_step(ProxySub& sub, std::size_t transfer, ProfilerState state) {
  void* handle = sub.handles[transfer % kSteps].step_event;
  if (sub.op_event == nullptr || handle == nullptr) return;
  EventStateArgs args{};
  args.transferred = sub.transfer_size;
  sub.profiler->record(handle, state, &args);
}

void stop_step(ProxySub& sub, std::size_t transfer) {
  if (void* handle = std::exchange(sub.handles[transfer % kSteps].step_event, nullptr)) sub.profiler->stop(handle);
}

}  // namespace clustar::bench::proxy
