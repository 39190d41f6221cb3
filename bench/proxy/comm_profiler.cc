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

void CommProfiler::start_group_api(TaskEvents& events) {
  if ((events.mask & kBelowGroupApi) == 0) return;
  EventV6 event = event_of(kEventGroupApi, nullptr);
  event.group_api = {false, 1};  // a collective outside of a group makes one of its own
  profiler_->start(context_, &events.group_api, event);
  if (events.group_api != nullptr) profiler_->record(events.group_api, kStateGroupStartApiStop, nullptr);
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

void CommProfiler::kernel_launch(const TaskEvents& events) {
  if ((events.mask & kEventKernelLaunch) == 0) return;
  void* handle = nullptr;
  profiler_->start(context_, &handle, event_of(kEventKernelLaunch, events.group_api));
  if (handle != nullptr) profiler_->stop(handle);
}

TaskEvents CommProfiler::start_task(const CollectiveRequest& request, Protocol protocol, int channels) {
  TaskEvents events;
  if (profiler_) {
    events.mask = profiler_->mask();
    start_group_api(events);
    if ((events.mask & kBelowCollApi) != 0) {
      EventV6 event = event_of(kEventCollApi, events.group_api);
      event.coll_api = {
          function_name(request.collective), request.count, datatype_name(request.type), request.root, nullptr, false};
      profiler_->start(context_, &events.coll_api, event);
      if (events.coll_api != nullptr) profiler_->stop(events.coll_api);
    }
    if (events.group_api != nullptr) profiler_->record(events.group_api, kStateGroupEndApiStart, nullptr);
    kernel_launch(events);
    if ((events.mask & kBelowGroup) != 0) profiler_->start(context_, &events.group, event_of(kEventGroup, nullptr));
    if ((events.mask & kBelowColl) != 0) start_coll(request, protocol, channels, events);
  }
  ++numbers_[static_cast<std::size_t>(function_of(request.collective))];
  return events;
}

void CommProfiler::stop_task(const TaskEvents& events) {
  for (void* handle : {events.coll, events.group, events.group_api}) {
    if (handle != nullptr) profiler_->stop(handle);
  }
}

void CommProfiler::prepare(ProxySub& sub, const TaskEvents& events) const {
  sub.profiler = profiler_.get();
  sub.context = context_;
  sub.mask = events.mask;
  sub.rank = rank_;
  sub.task_event = events.coll;
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
