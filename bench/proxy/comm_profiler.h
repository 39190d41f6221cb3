// The events of one communicator, started and stopped in NCCL's order. Sources: NCCL 2.28.9 src/plugin/profiler.cc
// (what starts under which mask, with which fields), src/enqueue.cc collTaskAppend and hostStreamPlanTask (order around
// a collective), src/transport/net.cc (order around a transfer).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bench/proxy/profiler_callback.h"
#include "bench/proxy/profiler_plugin.h"
#include "bench/proxy/ring_program.h"

namespace clustar::bench::proxy {

struct CollectiveRequest;

// Of one collective. Group API > collective API > collective; the group is a sibling, as in NCCL.
struct TaskEvents {
  int mask = 0;
  void* group_api = nullptr;
  void* coll_api = nullptr;
  void* group = nullptr;
  void* coll = nullptr;
};

// One ncclSend or ncclRecv.
struct P2pTask {
  bool send = false;
  int peer = 0;
  void* buffer = nullptr;
  std::size_t count = 0;
  DataType type = DataType::kFloat32;
};

// Of sends and receives between ncclGroupStart and ncclGroupEnd.
struct P2pEvents {
  int mask = 0;
  void* group_api = nullptr;
  void* group = nullptr;
  std::vector<void*> api;    // by task
  std::vector<void*> tasks;  // the same
};

// Works without a profiler, too: then it starts nothing.
class CommProfiler {
 public:
  // `profiler` null: none. Its init has succeeded and gave `context`.
  CommProfiler(std::unique_ptr<ProfilerPlugin> profiler, void* context, int rank)
      : profiler_(std::move(profiler)), context_(context), rank_(rank) {}

  // On the submitting thread. start_task() ends with the collective's own event, whose number is that of the function
  // in this communicator; stop_task() belongs right after the collective was queued, long before it has run.
  TaskEvents start_task(const CollectiveRequest& request, Protocol protocol, int channels);
  void stop_task(const TaskEvents& events);

  // The same for a group: `calls` are the tasks in the order in which a hook calls ncclSend and ncclRecv, numbers of
  // `tasks`, which are in the order of NCCL's plan.
  P2pEvents start_group(std::span<const P2pTask> tasks, std::span<const std::size_t> calls);
  void stop_group(const P2pEvents& events);

  // What a proxy operation needs, before start_op(). `task`: the collective's or the task's event.
  void prepare(ProxySub& sub, int mask, void* task) const;

  bool loaded() const { return profiler_ != nullptr; }
  int version() const { return profiler_ ? profiler_->version() : 0; }
  // NCCL finalizes with a context only. Once.
  int finalize();

 private:
  static constexpr std::size_t kFunctions = 8;
  void* start_group_api(int mask, int depth);
  void start_p2p(const P2pTask& task, std::size_t index, P2pEvents& events);
  void start_coll(const CollectiveRequest& request, Protocol protocol, int channels, TaskEvents& events);
  void kernel_launch(int mask, void* group_api);
  bool starts_tasks(const void* group) const;

  std::unique_ptr<ProfilerPlugin> profiler_;
  void* context_ = nullptr;
  int rank_ = 0;
  std::array<std::uint64_t, kFunctions> numbers_{};  // next sequence number, by ncclFunc_t
};

// Proxy events, on the progress thread. `transfer` counts from 0 within the operation.
struct ProxyOpFacts {
  int channel = 0;
  int peer = 0;
  int transfers = 0;
  int chunk_bytes = 0;  // NCCL multiplies it by the slice's steps
  bool is_send = false;
};
void start_op(ProxySub& sub, const ProxyOpFacts& facts);
void record_op_in_progress(ProxySub& sub);
void stop_op(ProxySub& sub);
void start_step(ProxySub& sub, std::size_t transfer);
void record_step(ProxySub& sub, std::size_t transfer, ProfilerState state);
void stop_step(ProxySub& sub, std::size_t transfer);

}  // namespace clustar::bench::proxy
