// The end of events, and their way to the chained profiler.

#include <atomic>
#include <cstring>

#include "nccl_plugin/profiler/profiler.h"
#include "nccl_plugin/profiler/profiler_reader.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

// The mask bits by any of which NCCL reports `type`: each event comes for its own bit and for those of the events below
// it (v2.28.9, v2.30.7 src/plugin/profiler.cc).
constexpr std::uint64_t asked_by(std::uint64_t type) {
  constexpr std::uint64_t kSteps = kEventProxyStep | kEventNetPlugin;
  constexpr std::uint64_t kTasks = kEventProxyOp | kSteps | kEventKernelCh;
  constexpr std::uint64_t kApis = kEventP2pApi | kEventCollApi | kEventKernelLaunch;
  switch (type) {
    case kEventGroupApi: return type | kApis | kEventGroup | kEventColl | kEventP2p | kTasks;
    case kEventGroup: return type | kEventColl | kEventP2p | kTasks;
    case kEventCollApi: return type | kEventColl | kTasks;
    case kEventP2pApi: return type | kEventP2p | kTasks;
    case kEventColl:
    case kEventP2p: return type | kTasks;
    case kEventProxyOp: return type | kSteps;
    case kEventProxyStep: return kSteps;
    case kEventCeColl: return type | kEventCeSync | kEventCeBatch;
    default: return type;
  }
}

}  // namespace

void Profiler::stop(void* handle) {
  if (handle == nullptr) return;
  const EventHandle at = decode(handle);
  switch (at.kind) {
    case HandleKind::kCollective: return stop_collective(at);
    case HandleKind::kOperation: return stop_operation(at);
    case HandleKind::kStep: return stop_step(at);
    case HandleKind::kOther: return stop_other(at);
    case HandleKind::kApi:
    case HandleKind::kContext: return;  // of a group: start()
    default: return count_stale();
  }
}

void Profiler::stop_collective(const EventHandle& handle) {
  const Reader collective(collectives_, handle, HandleKind::kCollective, true);
  if (!collective || collectives_.word(handle.index)->stop(handle.generation) == ObjectWord::Stop::kStale) {
    return count_stale();
  }
  forward_stop({collective->context, collective->chained});
}

void Profiler::stop_operation(const EventHandle& handle) {
  const Reader operation(operations_, handle, HandleKind::kOperation);
  if (!operation) return count_stale();
  const ObjectWord::Stop result = operations_.word(handle.index)->stop(handle.generation);
  if (result == ObjectWord::Stop::kStale) return count_stale();
  forward_stop({operation->context, operation->chained});
  if (result == ObjectWord::Stop::kEnded) end_operation(*operation);
}

void Profiler::stop_step(const EventHandle& handle) {
  const Reader operation(operations_, handle, HandleKind::kStep);
  if (!operation) return count_stale();
  Step& step = operation->steps[handle.slot];
  std::uint64_t word = step.word.load(std::memory_order_acquire);
  // Read before the slot is given up: the next step writes its own.
  void* const chained = step.chained.load(std::memory_order_relaxed);
  if (!StepWord::names(word, handle.turn) ||
      !step.word.compare_exchange_strong(word, StepWord::make(StepWord::kFree, false, handle.turn, 0),
                                         std::memory_order_release, std::memory_order_relaxed)) {
    return count_stale();
  }
  forward_stop({operation->context, chained});
  if (operations_.word(handle.index)->drop_child(handle.generation)) end_operation(*operation);
}

void Profiler::stop_other(const EventHandle& handle) {
  const Reader other(others_, handle, HandleKind::kOther);
  if (!other || others_.word(handle.index)->stop(handle.generation) == ObjectWord::Stop::kStale) return count_stale();
  forward_stop({other->context, other->chained});
}

// Once for each operation: by the thread that ended it and still holds a reader.
void Profiler::end_operation(Operation& operation) {
  if (operation.parent.kind == HandleKind::kNone) return;
  const Reader parent(collectives_, operation.parent, HandleKind::kCollective, true);
  if (parent) collectives_.word(operation.parent.index)->drop_child(operation.parent.generation);
}

void Profiler::record(void* handle, int state, const void* args) {
  if (handle == nullptr || chains_.load(std::memory_order_relaxed) == 0) return;
  const Chained event = chained_of(handle);
  if (event.handle == nullptr) return;
  const Reader context(contexts_, decode(event.context), HandleKind::kContext);
  if (context && context->chain) context->chain->record(context->version, event.handle, state, args);
}

// Events that only the chained profiler wants.
void* Profiler::start_other(void* context, const ProfilerEvent& event, bool captured) {
  if (chains_.load(std::memory_order_relaxed) == 0) return nullptr;
  {
    const Reader comm(contexts_, decode(context), HandleKind::kContext);
    if (!comm || !chain_wants(*comm, event.type)) return nullptr;
  }
  const auto place = others_.claim();
  if (!place) return exhausted();
  place->object->context = context;
  place->object->chained = forward_start(context, event);
  ObjectWord* const word = others_.word(place->index);
  if (place->object->chained == nullptr) {
    word->abandon();
    return nullptr;
  }
  word->publish();
  return started(
      {.kind = HandleKind::kOther, .captured = captured, .index = place->index, .generation = place->generation});
}

bool Profiler::chain_wants(const Context& context, std::uint64_t type) const {
  if (!context.chain) return false;
  const int mask = __atomic_load_n(&context.chain_mask, __ATOMIC_RELAXED);
  return (asked_by(type) & static_cast<std::uint64_t>(mask)) != 0;
}

void* Profiler::forward_start(void* context, const ProfilerEvent& event) {
  if (chains_.load(std::memory_order_relaxed) == 0 || event.original == nullptr) return nullptr;
  const Reader comm(contexts_, decode(context), HandleKind::kContext);
  if (!comm || comm->version != event.version || !chain_wants(*comm, event.type)) return nullptr;
  void* handle = nullptr;
  int failed = kSuccess;
  if (event.version == 4) {
    EventV4 copy;
    std::memcpy(static_cast<void*>(&copy), event.original, sizeof copy);
    copy.parent = translate(copy.parent);
    failed = comm->chain->start(event.version, comm->chain_context, &handle, &copy);
  } else {
    EventV6 copy;
    std::memcpy(static_cast<void*>(&copy), event.original, sizeof copy);
    copy.parent = translate(copy.parent);
    if (event.type == kEventColl) copy.coll.parent_group = translate(copy.coll.parent_group);
    if (event.type == kEventP2p) copy.p2p.parent_group = translate(copy.p2p.parent_group);
    failed = comm->chain->start(event.version, comm->chain_context, &handle, &copy);
  }
  return failed == kSuccess ? handle : nullptr;
}

void Profiler::forward_stop(const Chained& event) {
  if (event.handle == nullptr) return;
  const Reader context(contexts_, decode(event.context), HandleKind::kContext);
  if (context && context->chain) context->chain->stop(context->version, event.handle);
}

Profiler::Chained Profiler::chained_of(const void* handle) {
  const EventHandle at = decode(handle);
  switch (at.kind) {
    case HandleKind::kCollective: {
      const Reader object(collectives_, at, at.kind, true);
      return object ? Chained{object->context, object->chained} : Chained();
    }
    case HandleKind::kOperation: {
      const Reader object(operations_, at, at.kind);
      return object ? Chained{object->context, object->chained} : Chained();
    }
    case HandleKind::kStep: {
      const Reader object(operations_, at, at.kind);
      if (!object) return {};
      const Step& step = object->steps[at.slot];
      void* const chained = step.chained.load(std::memory_order_relaxed);
      const bool alive = StepWord::names(step.word.load(std::memory_order_acquire), at.turn);
      return alive ? Chained{object->context, chained} : Chained();
    }
    case HandleKind::kOther: {
      const Reader object(others_, at, at.kind, true);
      return object ? Chained{object->context, object->chained} : Chained();
    }
    default: return {};
  }
}

}  // namespace clustar::nccl_plugin
