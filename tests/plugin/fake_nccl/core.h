// NCCL's core as its plugins see it: which profiler and net call comes when, for one rank of one communicator. Nothing
// is computed; the transfers are those of model.h. Sources: NCCL v2.28.9 src/plugin/profiler.cc, src/enqueue.cc
// (collTaskAppend, hostStreamPlanTask, uploadProxyOps), src/proxy.cc (ncclProxyOpToArgs), src/transport/net.cc
// (sendProxyProgress, setXferNetAttrs). Threads as there: enqueue and launch are the application's, progress() is the
// progress thread's; nothing else is shared between the two than the inbox.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/profiler/profiler.h"
#include "tests/plugin/fake_nccl/model.h"

namespace clustar::tests::fake_nccl {

// A profiler's descriptor before a version's layout is given to it.
struct Event : nccl_plugin::ProfilerEvent {
  int rank = 0;
  void* group = nullptr;  // coll.parentGroup, p2p.parentGroup
  bool foreign = false;   // another process's operation, with that process's context (PXN)
};

// One communicator's context of one loaded profiler.
class ProfilerPort {
 public:
  virtual ~ProfilerPort() = default;
  virtual int version() const = 0;  // 4, 5, 6; 0 = no profiler is loaded
  virtual int mask() const = 0;
  virtual void start(void** handle, const Event& event) = 0;
  virtual void stop(void* handle) = 0;
  virtual void record(void* handle, int state) = 0;
};

// What goes wrong on purpose in one operation; positions are transfers, -1 = nowhere.
struct Faults {
  bool foreign_process = false;  // PXN: the task belongs to another process, and so do its pointers
  bool null_task = false;        // the Coll event was refused: parentObj is null
  void* forged_task = nullptr;   // not null: parentObj is this instead
  int lose_step_event = -1;      // the step's startEvent never comes: stepEventHandle is null
  int skip_step = -1;            // from here on, steps are numbered one too high
  int repeat_step = -1;          // from here on, one too low
  int no_phandle = -1;           // isend gets a null phandle
  int extra_transfers = 0;       // what the ProxyOp event says beyond the truth
  bool any() const;
};

// A task from the application's call to its last transfer. Shared by the threads; what changes after launch belongs to
// the application's thread.
struct TaskRun {
  Task task;
  std::vector<ChannelPlan> plans;
  // comm->seqNumber; of a send, those to the same rank before it.
  std::uint64_t number = 0;
  std::uint64_t ordinal = 0;  // all-reduces and reduce-scatters before it, captured ones left out; of a send its number
  std::uint64_t serial = 0;   // of all launches of the communicator
  Faults faults;
  bool ambiguous = false;  // v4: a graph ran on the communicator, and no event says which tasks were captured
  void* api_event = nullptr;
  void* group_event = nullptr;
  void* event = nullptr;
};

// ncclProxySubArgs and ncclProxyEventHandle, as far as the callback looks into them.
struct SubArgs {
  ProfilerPort* port = nullptr;
  int rank = 0;
  int activation_mask = 0;
  bool foreign = false;  // sub->profilerContext is another process's
};
struct ProxyEventHandle {
  void* step_event = nullptr;
  SubArgs* sub = nullptr;
};

struct ProxyOp {
  std::shared_ptr<const TaskRun> run;
  const ChannelPlan* plan = nullptr;
  SubArgs sub;
  void* event = nullptr;
  std::array<ProxyEventHandle, 8> handles{};
  std::uint32_t posted = 0;
  std::uint32_t transmitted = 0;
  std::uint32_t done = 0;

  const Transfer& transfer(std::uint32_t t) const { return plan->transfers[t]; }
};

// The net plugin's connections of one rank, one per channel.
class Wire {
 public:
  Wire();
  virtual ~Wire() = default;
  // ncclProxyState::netAttr: what setNetAttr was told last, by whichever communicator that shares the connections.
  nccl_abi::NetAttr told;
  virtual bool has_net_attr() const = 0;
  virtual void set_net_attr(const nccl_abi::NetAttr& attr) = 0;
  // False: the plugin gave no request, try again with the same phandle.
  virtual bool isend(const ProxyOp& op, std::uint32_t transfer, void* phandle) = 0;
  // Whether the oldest isend of the operation that is not done yet is done now.
  virtual bool test(const ProxyOp& op) = 0;
};

// ncclProfilerCallback of NCCL 2.27 and later, for phandles of this core.
int profiler_callback(void** handle, int type, void* phandle, std::int64_t plugin_id, void* data);
// NCCL 2.26: there is no profiler that takes NetPlugin events, so nothing is answered.
int silent_callback(void** handle, int type, void* phandle, std::int64_t plugin_id, void* data);

class Core {
 public:
  // The references outlive the core.
  Core(const Communicator& comm, ProfilerPort& profiler, Wire& wire);

  // The application's call, with its CollApi or P2pApi event (v5 and later); the first since a launch begins a group. A
  // receive has events here; its transfers are another class's.
  std::shared_ptr<TaskRun> enqueue(const Task& task, const Faults& faults = {});
  // One more replay of a captured task: a new Coll event under the old CollApi event, the number stays.
  std::shared_ptr<TaskRun> replay(const TaskRun& captured);
  // hostStreamPlanTask in halves: from begin_launch on, the progress thread may run the operations; end_launch stops
  // the Coll events, whatever became of them.
  void begin_launch(std::span<const std::shared_ptr<TaskRun>> runs);
  void end_launch(std::span<const std::shared_ptr<TaskRun>> runs);
  void launch(const std::shared_ptr<TaskRun>& run);

  // One round of the proxy over all operations; false: nothing is left to do.
  bool progress();

  // setXferNetAttrs, before an isend or irecv of the task; by the progress thread.
  void set_net_attr(const Task& task, bool send);

  const Communicator& comm() const { return comm_; }

 private:
  bool wants(int mask) const { return (profiler_.mask() & mask) != 0; }
  void start_group_api(const Task& task);
  void end_group_api();
  void start_task(TaskRun& run);
  void upload(const std::shared_ptr<TaskRun>& run);
  void append(std::unique_ptr<ProxyOp> op);
  bool post(ProxyOp& op);
  bool transmit(ProxyOp& op);
  bool complete(ProxyOp& op);

  const Communicator comm_;
  ProfilerPort& profiler_;
  Wire& wire_;
  // The application's thread.
  std::map<int, std::uint64_t> numbers_;
  std::map<int, std::uint64_t> sends_;  // by receiver
  std::uint64_t ordinal_ = 0;
  std::uint64_t serial_ = 0;
  bool captured_any_ = false;
  void* group_api_ = nullptr;
  // Between the threads.
  std::mutex mutex_;
  std::deque<std::unique_ptr<ProxyOp>> inbox_;  // guarded by mutex_
  // The progress thread.
  std::map<int, std::deque<std::unique_ptr<ProxyOp>>> operations_;  // by channel
};

}  // namespace clustar::tests::fake_nccl
