// Which collective a message belongs to: NCCL's profiler events, kept just long enough to answer.
//
//   isend(phandle) -> NCCL's callback -> startEvent(NetPlugin, parent ProxyStep) -> ProxyOp -> Coll or P2p
//
// NCCL calls startEvent synchronously from our own isend (v2.27.7 src/plugin/profiler.cc ncclProfilerCallback), so the
// answer is there before a byte moves. Coll events stop as soon as the work is queued, and the proxy starts its
// operations when it comes to them (src/proxy.cc ncclProxyOpToArgs): an object is held until it and its children
// stopped, and stays readable until its place is taken again, the oldest first. An operation copies what it needs.
// Nothing here locks, allocates or calls CUDA between open and close: Coll and P2p events come from the application's
// thread or a CUDA host callback, the rest from the progress thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/profiler/chain_profiler.h"
#include "nccl_plugin/profiler/event_pool.h"
#include "nccl_plugin/profiler/profiler_event.h"
#include "transport/base/log.h"

namespace clustar::nccl_plugin {

// The net plugin's id in NetPlugin events, as NCCL's own are (type << 16 | version).
inline constexpr std::int64_t kNetEventId = (std::int64_t{0x636c} << 16) | 1;

// What isend hands through NCCL's callback as extension data, and startEvent fills.
struct MessageQuery {
  static constexpr std::uint64_t kMagic = 0x636c75737461721ull;
  std::uint64_t magic = kMagic;
  MessageFacts facts;  // but for `size`, which stays
  transport::MessageIdentity identity;
};

// Process-wide and a few MB, so never on a stack. Needs no destruction: the process's own one has none, because NCCL's
// proxy threads may still run when a process exits without destroying its communicators.
class Profiler {
 public:
  static constexpr std::uint32_t kMaxContexts = 2048;
  static constexpr std::uint32_t kMaxCollectives = 4096;
  static constexpr std::uint32_t kMaxOperations = 8192;
  static constexpr std::uint32_t kMaxOthers = 8192;
  // Ranks whose sends are numbered; those to ranks behind are unidentified.
  static constexpr std::uint32_t kMaxReceivers = 16384;
  struct Options {  // each 1 .. its maximum
    std::uint32_t contexts = kMaxContexts;
    std::uint32_t collectives = kMaxCollectives;  // Coll and P2p events held at a time
    std::uint32_t operations = kMaxOperations;    // ProxyOp events; their steps live in them
    std::uint32_t others = kMaxOthers;            // events that only the chained profiler wants
  };
  struct Counters {
    std::uint64_t started = 0;    // events that got an object
    std::uint64_t exhausted = 0;  // events that got none: their messages are unidentified
    std::uint64_t foreign = 0;    // operations of other processes
    std::uint64_t stale = 0;      // handles that name nothing any more, or never did
    std::uint64_t alive = 0;
  };
  struct Opening {
    CommFacts comm;                              // traffic_class: what the registry knows counts
    std::shared_ptr<const LossPolicy> policy;    // null: nothing may be lost
    std::shared_ptr<const ChainProfiler> chain;  // null: none. Its context is made and ended with ours
    int version = 5;                             // of NCCL's table: 4, 5 or 6
    nccl_abi::DebugLogger logger = nullptr;      // for the chained profiler
    Log log;
  };

  // The references outlive the profiler. `critical` is read when a collective starts.
  Profiler(const Options& options, CommRegistry& registry, const std::atomic<bool>& critical);
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  // A communicator's context: an opaque handle. What NCCL shall report is added to `mask`, which is not kept. Error:
  // kUnavailable: too many communicators.
  Result<void*> open(const Opening& opening, int* mask);
  // Its events are forgotten, stopped or not. Waits for calls that are under way in other threads. Not a context of
  // ours, or closed before: nothing.
  void close(void* context);

  // Any thread, any arguments: of another process, null, stopped before, made up. *handle receives null when the event
  // is not kept; its children are unidentified then.
  void start(void* context, void** handle, const ProfilerEvent& event);
  void stop(void* handle);
  void record(void* handle, int state, const void* args);

  // Walks the pools: not for the data path.
  Counters counters() const;

 private:
  static constexpr std::size_t kFunctions = 16;
  static constexpr std::size_t kSteps = 8;  // NCCL_STEPS

  struct Context {
    CommFacts comm;
    std::shared_ptr<const LossPolicy> policy;
    std::shared_ptr<const ChainProfiler> chain;
    int version = 0;
    void* chain_context = nullptr;
    int chain_mask = 0;  // the chained profiler may change it at any time
    // One more than the highest sequence number seen, by function.
    std::array<std::atomic<std::uint64_t>, kFunctions> next{};
    std::atomic<std::uint64_t> starts{0};  // events whose number NCCL does not tell, or not alike on all ranks
    // Sends so far, by receiver; from open() to close().
    std::unique_ptr<std::atomic<std::uint64_t>[]> sends;
    std::uint32_t receivers = 0;
  };
  struct Collective {
    void* context = nullptr;
    void* chained = nullptr;  // the chained profiler's handle
    MessageFacts facts;       // but for what operation and step know
    transport::MessageIdentity identity;
  };
  //  63 state 62 | 61 in order | 40 turn 32 | 31 step 0
  struct Step {
    std::atomic<std::uint64_t> word{0};
    std::atomic<void*> chained{nullptr};
  };
  struct Operation {
    void* context = nullptr;
    void* chained = nullptr;
    bool is_send = false;
    EventHandle parent;  // kNone: none is held
    MessageFacts facts;
    transport::MessageIdentity identity;
    std::atomic<std::uint64_t> next_step{0};  // kOutOfOrder once a step was missing
    std::array<Step, kSteps> steps;
  };
  struct Other {
    void* context = nullptr;
    void* chained = nullptr;
  };
  struct Chained {  // an event of the chained profiler
    void* context = nullptr;
    void* handle = nullptr;
  };
  // Takes a reader of a handle's object for a scope.
  template <class Pool>
  class Reader;

  void* start_collective(void* context, const ProfilerEvent& event);
  void describe(Context& context, const ProfilerEvent& event, Collective* out);
  bool was_captured(Context& context, const ProfilerEvent& event, int function) const;
  void* start_operation(void* context, const ProfilerEvent& event);
  bool inherit(const ProfilerEvent& event, Operation* out);
  void* start_step(const ProfilerEvent& event);
  void* begun_step(const Operation& operation, EventHandle parent, std::uint32_t number) const;
  void* start_api(void* context, const ProfilerEvent& event);
  void* start_other(void* context, const ProfilerEvent& event, bool captured);
  void answer(void* parent, MessageQuery* query);

  void stop_collective(const EventHandle& handle);
  void stop_operation(const EventHandle& handle);
  void stop_step(const EventHandle& handle);
  void stop_other(const EventHandle& handle);
  void end_operation(Operation& operation);

  bool chain_wants(const Context& context, std::uint64_t type) const;
  // The chained profiler's handle of a started event; null: it does not want it.
  void* forward_start(void* context, const ProfilerEvent& event);
  void forward_stop(const Chained& event);
  // Of any handle of ours; all null: it names nothing, or the chained profiler has no such event.
  Chained chained_of(const void* handle);
  void* translate(void* parent) { return parent == nullptr ? nullptr : chained_of(parent).handle; }

  EventHandle decode(const void* handle) const { return EventHandle::decode(handle, mark_); }
  void* started(const EventHandle& handle);
  void* exhausted();
  void count_stale();

  CommRegistry& registry_;
  const std::atomic<bool>& critical_;
  const std::uint32_t mark_;
  std::atomic<std::int32_t> pid_;         // of the latest open: a process that forks opens its own communicators
  std::atomic<std::uint32_t> chains_{0};  // contexts with a chained profiler

  EventPool<Context, kMaxContexts> contexts_;
  EventPool<Collective, kMaxCollectives> collectives_;
  EventPool<Operation, kMaxOperations> operations_;
  EventPool<Other, kMaxOthers> others_;

  alignas(64) std::atomic<std::uint64_t> started_{0};
  std::atomic<std::uint64_t> exhausted_{0};
  std::atomic<std::uint64_t> foreign_{0};
  std::atomic<std::uint64_t> stale_{0};
};

}  // namespace clustar::nccl_plugin
