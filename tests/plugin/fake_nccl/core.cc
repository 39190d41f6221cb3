#include "tests/plugin/fake_nccl/core.h"

#include <unistd.h>

#include <cstring>

#include "nccl_plugin/abi/profiler.h"

namespace clustar::tests::fake_nccl {
namespace {

using namespace nccl_abi;

// Each event is made when its own bit or that of any event below it is set (v2.28.9 src/plugin/profiler.cc).
constexpr int kStepEvents = kEventProxyStep | kEventNetPlugin;
constexpr int kOpEvents = kEventProxyOp | kStepEvents;
constexpr int kCollEvents = kEventColl | kOpEvents | kEventKernelCh;
constexpr int kP2pEvents = kEventP2p | kOpEvents | kEventKernelCh;
constexpr int kGroupEvents = kEventGroup | kCollEvents | kP2pEvents;
constexpr int kGroupApiEvents = kEventGroupApi | kEventCollApi | kEventP2pApi | kEventKernelLaunch | kGroupEvents;
constexpr int kStateSendGpuWait = 8;
constexpr int kStateSendWait = 9;
constexpr int kStateOpInProgress = 19;
constexpr int kStateSendPeerWait = 20;
constexpr int kStateGroupStartStop = 23;
constexpr int kStateGroupEndStart = 24;
// NCCL_STEPS / sliceSteps of a ring.
constexpr std::uint32_t kDepth = 4;
// A pid that this process does not have.
std::int32_t foreign_pid() { return getpid() == 1 ? 2 : 1; }

}  // namespace

bool Faults::any() const {
  return foreign_process || null_task || forged_task != nullptr || lose_step_event >= 0 || skip_step >= 0 ||
         repeat_step >= 0 || no_phandle >= 0 || extra_transfers != 0;
}

int profiler_callback(void** handle, int type, void* phandle, std::int64_t plugin_id, void* data) {
  const auto& slot = *static_cast<const ProxyEventHandle*>(phandle);
  const SubArgs& sub = *slot.sub;
  if (type == kProfilerStart) {
    if ((sub.activation_mask & kEventNetPlugin) == 0) return kSuccess;
    Event event;
    event.type = kEventNetPlugin;
    event.parent = slot.step_event;
    event.rank = sub.rank;
    event.plugin_id = plugin_id;
    event.data = data;
    event.foreign = sub.foreign;
    sub.port->start(handle, event);
  } else {
    sub.port->stop(*handle);
  }
  return kSuccess;
}

int silent_callback(void**, int, void*, std::int64_t, void*) { return kSuccess; }

Wire::Wire() {
  std::memset(&told, 0, sizeof told);
  told.op = told.algo = told.proto = kNetAttrUndefined;
}

Core::Core(const Communicator& comm, ProfilerPort& profiler, Wire& wire)
    : comm_(comm), profiler_(profiler), wire_(wire) {}

std::shared_ptr<TaskRun> Core::enqueue(const Task& task, const Faults& faults) {
  auto run = std::make_shared<TaskRun>();
  run->task = task;
  run->plans = plan(comm_, task);
  run->faults = faults;
  const int mask = task.is_collective() ? kEventCollApi | kCollEvents : kEventP2pApi | kP2pEvents;
  if (profiler_.version() < 5 || !wants(mask)) return run;
  start_group_api(task);
  Event event;
  event.type = task.is_collective() ? kEventCollApi : kEventP2pApi;
  event.parent = group_api_;
  event.rank = 0;  // NCCL leaves it
  event.func = function_name(task.api());
  event.count = task.count;
  event.datatype = task.datatype.name;
  event.graph_captured = task.captured;
  profiler_.start(&run->api_event, event);
  // Stopped before its children begin.
  if (run->api_event != nullptr) profiler_.stop(run->api_event);
  // A graph's launches come after the group that it captured.
  if (task.captured) end_group_api();
  return run;
}

void Core::start_group_api(const Task& task) {
  if (group_api_ != nullptr || !wants(kGroupApiEvents)) return;
  Event event;
  event.type = kEventGroupApi;
  event.graph_captured = task.captured;
  profiler_.start(&group_api_, event);
  if (group_api_ != nullptr) profiler_.record(group_api_, kStateGroupStartStop);
}

void Core::end_group_api() {
  if (group_api_ == nullptr) return;
  profiler_.record(group_api_, kStateGroupEndStart);
  profiler_.stop(group_api_);
  group_api_ = nullptr;
}

std::shared_ptr<TaskRun> Core::replay(const TaskRun& captured) {
  auto run = std::make_shared<TaskRun>(captured);
  run->event = nullptr;
  run->group_event = nullptr;
  return run;
}

void Core::start_task(TaskRun& run) {
  const Task& task = run.task;
  run.serial = serial_++;
  run.ordinal = ordinal_;
  captured_any_ = captured_any_ || task.captured;
  run.ambiguous = captured_any_ && profiler_.version() == 4;
  Event event;
  event.parent = profiler_.version() >= 5 ? run.api_event : run.group_event;
  event.group = run.group_event;
  event.rank = comm_.rank;
  event.func = function_name(task.function);
  event.count = event_count(task);
  event.datatype = event_datatype(task);
  if (task.is_collective()) {
    run.number = numbers_[task.function];
    event.type = kEventColl;
    event.number = run.number;
    event.algo = algorithm_name(task.algorithm);
    event.proto = protocol_name(task.protocol);
    if (!task.captured) {
      ++numbers_[task.function];
      if (task.function == kAllReduce || task.function == kReduceScatter) ++ordinal_;
    }
    if (wants(kCollEvents)) profiler_.start(&run.event, event);
  } else {
    event.type = kEventP2p;
    event.peer = task.peer;
    event.channels = static_cast<std::uint8_t>(comm_.channels);
    if (task.function == kSend) run.number = run.ordinal = sends_[task.peer]++;
    if (wants(kP2pEvents)) profiler_.start(&run.event, event);
  }
}

void Core::upload(const std::shared_ptr<TaskRun>& run) {
  const std::lock_guard lock(mutex_);
  if (run->task.function == kRecv) return;
  for (const ChannelPlan& channel : run->plans) {
    auto op = std::make_unique<ProxyOp>();
    op->run = run;
    op->plan = &channel;
    op->sub = {&profiler_, comm_.rank, profiler_.mask(), run->faults.foreign_process};
    inbox_.push_back(std::move(op));
  }
}

void Core::begin_launch(std::span<const std::shared_ptr<TaskRun>> runs) {
  void* group = nullptr;
  if (wants(kGroupEvents)) {
    Event event;
    event.type = kEventGroup;
    profiler_.start(&group, event);
  }
  for (const auto& run : runs) {
    run->group_event = group;
    start_task(*run);
  }
  for (const auto& run : runs) upload(run);
}

void Core::end_launch(std::span<const std::shared_ptr<TaskRun>> runs) {
  for (const auto& run : runs) {
    if (run->event != nullptr) profiler_.stop(run->event);
  }
  if (!runs.empty() && runs.front()->group_event != nullptr) profiler_.stop(runs.front()->group_event);
  end_group_api();
}

void Core::launch(const std::shared_ptr<TaskRun>& run) {
  begin_launch(std::span(&run, 1));
  end_launch(std::span(&run, 1));
}

void Core::append(std::unique_ptr<ProxyOp> op) {
  const Faults& faults = op->run->faults;
  if (wants(kOpEvents)) {
    Event event;
    event.type = kEventProxyOp;
    event.parent = faults.null_task ? nullptr : faults.forged_task != nullptr ? faults.forged_task : op->run->event;
    event.rank = comm_.rank;
    event.pid = faults.foreign_process ? foreign_pid() : getpid();
    event.channel = op->plan->channel;
    event.peer = (comm_.rank + 1) % static_cast<int>(comm_.ranks);
    event.steps = static_cast<int>(op->plan->transfers.size()) + faults.extra_transfers;
    event.is_send = true;
    event.foreign = faults.foreign_process;
    profiler_.start(&op->event, event);
    if (op->event != nullptr) profiler_.record(op->event, kStateOpInProgress);
  }
  operations_[op->plan->channel].push_back(std::move(op));
}

bool Core::post(ProxyOp& op) {
  if (op.posted == op.plan->transfers.size() || op.posted >= op.done + kDepth) return false;
  const Faults& faults = op.run->faults;
  const int step = static_cast<int>(op.posted);
  int told = step;
  if (faults.skip_step >= 0 && step >= faults.skip_step) ++told;
  if (faults.repeat_step >= 0 && step >= faults.repeat_step) --told;
  ProxyEventHandle& slot = op.handles[op.posted % op.handles.size()];
  slot.sub = &op.sub;
  slot.step_event = nullptr;
  if (wants(kStepEvents) && step != faults.lose_step_event) {
    Event event;
    event.type = kEventProxyStep;
    event.parent = op.event;
    event.rank = comm_.rank;
    event.step = told;
    event.foreign = faults.foreign_process;
    profiler_.start(&slot.step_event, event);
    if (slot.step_event != nullptr) profiler_.record(slot.step_event, kStateSendGpuWait);
  }
  ++op.posted;
  return true;
}

void Core::set_net_attr(const Task& task, bool send) {
  if (!wire_.has_net_attr()) return;
  NetAttr attr = wire_.told;
  const auto channels = static_cast<std::int32_t>(comm_.channels);
  (send ? attr.send : attr.recv) = {1, 1, channels, channels};
  attr.op = 1u << task.api();
  // NCCL leaves the previous operation's values for p2p.
  if (task.api() <= kAllReduce) {
    attr.algo = 1u << task.algorithm;
    attr.proto = 1u << task.protocol;
  }
  if (std::memcmp(&attr, &wire_.told, sizeof attr) == 0) return;
  wire_.told = attr;
  wire_.set_net_attr(attr);
}

bool Core::transmit(ProxyOp& op) {
  if (op.transmitted == op.posted) return false;
  const std::uint32_t t = op.transmitted;
  ProxyEventHandle& slot = op.handles[t % op.handles.size()];
  if (slot.step_event != nullptr) profiler_.record(slot.step_event, kStateSendPeerWait);
  set_net_attr(op.run->task, true);
  const bool hidden = static_cast<int>(t) == op.run->faults.no_phandle;
  if (!wire_.isend(op, t, hidden ? nullptr : &slot)) return false;
  if (slot.step_event != nullptr) profiler_.record(slot.step_event, kStateSendWait);
  ++op.transmitted;
  return true;
}

bool Core::complete(ProxyOp& op) {
  if (op.done == op.transmitted || !wire_.test(op)) return false;
  ProxyEventHandle& slot = op.handles[op.done % op.handles.size()];
  if (slot.step_event != nullptr) profiler_.stop(slot.step_event);
  slot.step_event = nullptr;
  ++op.done;
  return true;
}

bool Core::progress() {
  std::deque<std::unique_ptr<ProxyOp>> arrived;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(inbox_);
  }
  for (auto& op : arrived) append(std::move(op));
  bool left = false;
  for (auto& [channel, queue] : operations_) {
    if (queue.empty()) continue;
    left = true;
    ProxyOp& op = *queue.front();
    // One step a round, in this order, as sendProxyProgress does.
    if (!post(op) && !transmit(op)) complete(op);
    if (op.done != op.plan->transfers.size()) continue;
    if (op.event != nullptr) profiler_.stop(op.event);
    queue.pop_front();
  }
  return left || !arrived.empty();
}

}  // namespace clustar::tests::fake_nccl
