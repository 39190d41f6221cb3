#include "nccl_plugin/profiler/profiler.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

#include "nccl_plugin/profiler/event_names.h"
#include "nccl_plugin/profiler/profiler_reader.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;
using transport::MessageIdentity;

constexpr std::uint64_t kOwnEvents = kEventColl | kEventP2p | kEventProxyOp | kEventProxyStep | kEventNetPlugin;
constexpr std::uint64_t kOutOfOrder = std::numeric_limits<std::uint64_t>::max();

// Differs between processes that share a machine, as far as 11 bits can: the address is random, too.
std::uint32_t mark_of(const void* self, std::int32_t pid) {
  std::uint64_t mixed = reinterpret_cast<std::uint64_t>(self) ^ static_cast<std::uint64_t>(pid) << 40;
  mixed *= 0x9e3779b97f4a7c15ull;
  return 0x800u | static_cast<std::uint32_t>(mixed >> 53);
}

std::uint8_t byte_of(int number) { return number < 0 ? MessageIdentity::kUnknown : static_cast<std::uint8_t>(number); }

// 0: not known, or more than 64 bits hold.
std::uint64_t bytes_of(const ProfilerEvent& event, int function, int datatype, std::uint32_t ranks) {
  // ncclReduceScatter's count is what each rank receives.
  const std::uint64_t shares = event.type == kEventColl && function == kReduceScatter ? ranks : 1;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(event.count, size_of_datatype(datatype), &bytes) ||
      __builtin_mul_overflow(bytes, shares, &bytes)) {
    return 0;
  }
  return bytes;
}

}  // namespace

Profiler::Profiler(const Options& options, CommRegistry& registry, const std::atomic<bool>& critical)
    : registry_(registry),
      critical_(critical),
      mark_(mark_of(this, ::getpid())),
      pid_(::getpid()),
      contexts_(std::min(options.contexts, kMaxContexts)),
      collectives_(std::min(options.collectives, kMaxCollectives)),
      operations_(std::min(options.operations, kMaxOperations)),
      others_(std::min(options.others, kMaxOthers)) {}

clustar::Result<void*> Profiler::open(const Opening& opening, int* mask) {
  auto policy = opening.policy ? opening.policy : std::make_shared<const LossPolicy>();
  const auto place = contexts_.claim();
  if (!place) {
    return fail(ErrorCode::kUnavailable, "more than " + std::to_string(kMaxContexts) +
                                             " communicators at a time; this one's messages are not identified");
  }
  pid_.store(::getpid(), std::memory_order_relaxed);
  Context& context = *place->object;
  context.comm = opening.comm;
  registry_.add_profiler(opening.comm);
  // NCCL gives the class to the net plugin, which it initializes first (v2.28.9 src/init.cc).
  if (const auto known = registry_.find(opening.comm.comm_id)) context.comm.traffic_class = known->traffic_class;
  context.policy = std::move(policy);
  context.chain = nullptr;
  context.version = opening.version;
  context.chain_context = nullptr;
  context.chain_mask = 0;
  for (auto& next : context.next) next.store(0, std::memory_order_relaxed);
  context.starts.store(0, std::memory_order_relaxed);
  context.receivers = std::min(opening.comm.ranks, kMaxReceivers);
  context.sends = std::make_unique<std::atomic<std::uint64_t>[]>(context.receivers);
  if (opening.chain) {
    const CommFacts& comm = opening.comm;
    const int failed =
        opening.chain->init(opening.version, &context.chain_context, comm.comm_id, &context.chain_mask,
                            comm.name.empty() ? nullptr : comm.name.c_str(), static_cast<int>(comm.nodes),
                            static_cast<int>(comm.ranks), comm.rank, opening.logger);
    if (opening.chain->table_for(opening.version) == 0) {
      opening.log.warn("chain_profiler: " + opening.chain->name() + " is too new for this NCCL: it gets no events");
    } else if (failed != kSuccess) {
      opening.log.warn("chain_profiler: " + opening.chain->name() + " failed to start: it gets no events");
    } else {
      context.chain = opening.chain;
      chains_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (mask != nullptr) {
    const std::uint64_t api = opening.version >= 5 ? std::uint64_t{kEventCollApi | kEventP2pApi} : 0;
    int wanted = static_cast<int>(kOwnEvents | api);
    if (context.chain) wanted |= context.chain_mask;
    // One mask for all of NCCL's communicators, which read it meanwhile: it never shrinks, not even for a moment.
    std::atomic_ref(*mask).fetch_or(wanted, std::memory_order_relaxed);
  }
  ObjectWord* const word = contexts_.word(place->index);
  word->publish();
  return EventHandle{.kind = HandleKind::kContext, .index = place->index, .generation = place->generation}.encode(
      mark_);
}

void Profiler::close(void* context) {
  const EventHandle handle = decode(context);
  if (handle.kind != HandleKind::kContext) return count_stale();
  Context* const closing = contexts_.acquire(handle);
  if (closing == nullptr) return count_stale();
  ObjectWord* const word = contexts_.word(handle.index);
  // Of two that close at once, one goes on; its own reader keeps the place until it is done.
  if (word->stop(handle.generation) == ObjectWord::Stop::kStale) {
    word->release();
    return count_stale();
  }
  while (word->reader_count() > 1) std::this_thread::yield();
  const auto of_context = [context](const auto& object) { return object.context == context; };
  operations_.discard_if(of_context);
  collectives_.discard_if(of_context);
  others_.discard_if(of_context);
  if (closing->chain) {
    closing->chain->finalize(closing->version, closing->chain_context);
    chains_.fetch_sub(1, std::memory_order_relaxed);
  }
  registry_.remove_profiler(closing->comm.comm_id);
  closing->chain = nullptr;
  closing->policy = nullptr;
  closing->sends = nullptr;
  closing->receivers = 0;
  closing->comm = CommFacts();
  word->release();
}

void Profiler::start(void* context, void** handle, const ProfilerEvent& event) {
  if (handle == nullptr) return;
  *handle = nullptr;
  switch (event.type) {
    case kEventColl:
    case kEventP2p: *handle = start_collective(context, event); return;
    case kEventProxyOp: *handle = start_operation(context, event); return;
    case kEventProxyStep: *handle = start_step(event); return;
    case kEventCollApi:
    case kEventP2pApi: *handle = start_api(context, event); return;
    case kEventNetPlugin: {
      auto* const query = static_cast<MessageQuery*>(event.data);
      if (event.plugin_id == kNetEventId && query != nullptr && query->magic == MessageQuery::kMagic) {
        answer(event.parent, query);
      }
      *handle = start_other(context, event, false);
      return;
    }
    case kEventGroup:
      *handle = start_other(context, event, false);
      // NCCL 2.27 begins tasks only in a group that was kept (src/plugin/profiler.cc ncclProfilerStartTaskEvents). Any
      // handle will do; this one needs no place.
      if (*handle == nullptr && event.version == 4) *handle = context;
      return;
    default: *handle = start_other(context, event, false); return;
  }
}

// Without the API's event, whether a graph captured the task is not known: taken for yes. v4 has no such event; there a
// collective's number that comes again is a replay's, because NCCL does not count those, and of sends nothing is known.
bool Profiler::was_captured(Context& context, const ProfilerEvent& event, int function) const {
  bool captured = event.type == kEventP2p;
  if (event.version >= 5) {
    const EventHandle api = decode(event.parent);
    const bool told = api.kind == HandleKind::kApi || api.kind == HandleKind::kOther;
    captured = !told || api.captured;
  }
  if (event.type != kEventColl || function < 0 || captured) return captured;
  std::atomic<std::uint64_t>& next = context.next[static_cast<std::size_t>(function)];
  std::uint64_t seen = next.load(std::memory_order_relaxed);
  while (seen <= event.number && !next.compare_exchange_weak(seen, event.number + 1, std::memory_order_relaxed)) {
  }
  return seen > event.number;
}

// Fills all but the chained profiler's part.
void Profiler::describe(Context& context, const ProfilerEvent& event, Collective* out) {
  const int function = function_of(event.func);
  const bool numbered = event.type == kEventColl && function >= 0;
  const bool captured = was_captured(context, event, function);
  const bool sends = event.type == kEventP2p && function == kSend;
  const auto receiver = static_cast<std::uint32_t>(event.peer);
  const bool countable = event.peer >= 0 && receiver < context.receivers && context.comm.rank >= 0 &&
                         context.comm.rank < MessageIdentity::kNoRank;

  MessageFacts& facts = out->facts;
  facts = MessageFacts();
  facts.identified = !sends || countable;
  facts.comm_id = context.comm.comm_id;
  facts.ranks = context.comm.ranks;
  facts.edges = context.comm.edges();
  facts.collective.function = function;
  facts.collective.datatype = datatype_of(event.datatype);
  facts.collective.algorithm = algorithm_of(event.algo);
  facts.collective.protocol = protocol_of(event.proto);
  facts.collective.bytes = bytes_of(event, function, facts.collective.datatype, context.comm.ranks);
  facts.collective.captured = captured;
  // NCCL counts each function by itself; the ledger needs one number for both. The sum of both grows with either.
  if (event.type == kEventColl && (function == kAllReduce || function == kReduceScatter)) {
    const int other = function == kAllReduce ? kReduceScatter : kAllReduce;
    const auto before = context.next[static_cast<std::size_t>(other)].load(std::memory_order_relaxed);
    facts.collective.ordinal = before + event.number;
    facts.ledger_number = static_cast<std::uint32_t>(facts.collective.ordinal);
  }
  // The n-th send from each rank to one receiver makes one exchange, so that all of them share that number.
  if (sends && countable) {
    facts.collective.ordinal = context.sends[receiver].fetch_add(1, std::memory_order_relaxed);
    facts.ledger_number = static_cast<std::uint32_t>(facts.collective.ordinal);
    facts.channels = event.channels;
    facts.receiver = event.peer;
  }
  facts.verdict = context.policy->judge(context.comm, facts.collective, critical_.load(std::memory_order_relaxed));

  MessageIdentity& identity = out->identity;
  identity = MessageIdentity();
  identity.known = facts.identified;
  if (!identity.known) return;
  identity.local_number = !numbered || captured;
  identity.communicator = context.comm.comm_id;
  identity.number = sends                   ? facts.collective.ordinal
                    : identity.local_number ? context.starts.fetch_add(1, std::memory_order_relaxed)
                                            : event.number;
  if (sends) identity.sender = static_cast<std::uint16_t>(context.comm.rank);
  identity.total_bytes = facts.collective.bytes;
  identity.function = byte_of(function);
  identity.datatype = byte_of(facts.collective.datatype);
  identity.algorithm = byte_of(facts.collective.algorithm);
  identity.protocol = byte_of(facts.collective.protocol);
}

void* Profiler::start_collective(void* context, const ProfilerEvent& event) {
  const EventHandle at = decode(context);
  const Reader comm(contexts_, at, HandleKind::kContext);
  if (!comm) {
    count_stale();
    return nullptr;
  }
  const auto place = collectives_.claim();
  if (!place) {
    // Its number counts all the same: the next one's must not seem to be the first.
    Collective unkept;
    describe(*comm, event, &unkept);
    return exhausted();
  }
  place->object->context = context;
  describe(*comm, event, place->object);
  place->object->chained = forward_start(context, event);
  collectives_.word(place->index)->publish();
  return started({.kind = HandleKind::kCollective, .index = place->index, .generation = place->generation});
}

// What an operation takes over from its collective, and holds of it. False: there is none.
bool Profiler::inherit(const ProfilerEvent& event, Operation* out) {
  if (event.parent == nullptr) return false;
  const EventHandle handle = decode(event.parent);
  const Reader parent(collectives_, handle, HandleKind::kCollective, true);
  if (!parent) {
    count_stale();
    return false;
  }
  out->context = parent->context;
  out->facts = parent->facts;
  out->identity = parent->identity;
  if (collectives_.word(handle.index)->add_child(handle.generation)) out->parent = handle;
  return true;
}

void* Profiler::start_operation(void* context, const ProfilerEvent& event) {
  const bool foreign = event.pid != pid_.load(std::memory_order_relaxed);
  if (foreign) foreign_.fetch_add(1, std::memory_order_relaxed);
  const auto place = operations_.claim();
  if (!place) return exhausted();
  Operation& operation = *place->object;
  ObjectWord* const word = operations_.word(place->index);
  operation.context = nullptr;
  operation.chained = nullptr;
  operation.parent = EventHandle();
  operation.facts = MessageFacts();
  operation.identity = MessageIdentity();
  operation.next_step.store(0, std::memory_order_relaxed);
  for (Step& step : operation.steps) step.word.store(0, std::memory_order_relaxed);
  if (foreign) {
    // PXN: context and parent are pointers of the process whose collective it is.
    operation.facts.unidentified = Reason::kForeignProcess;
  } else {
    const bool known = inherit(event, &operation);
    if (!known) operation.context = context;
    operation.chained = forward_start(operation.context, event);
    if (!known && operation.chained == nullptr) {
      word->abandon();
      return nullptr;
    }
  }
  operation.is_send = event.is_send;
  operation.facts.transfers = static_cast<std::uint32_t>(std::max(event.steps, 0));
  operation.identity.channel = event.channel;
  word->publish();
  return started({.kind = HandleKind::kOperation, .index = place->index, .generation = place->generation});
}

// A receive's step comes again where irecv gave no request, and NCCL keeps the last handle only (v2.28.9
// src/transport/net.cc recvProxyProgress): another one would leave the operation with a step that never stops. Null:
// the step is new.
void* Profiler::begun_step(const Operation& operation, EventHandle parent, std::uint32_t number) const {
  parent.kind = HandleKind::kStep;
  parent.slot = number % kSteps;
  const std::uint64_t word = operation.steps[parent.slot].word.load(std::memory_order_acquire);
  parent.turn = StepWord::turn(word);
  const bool begun = StepWord::state(word) == StepWord::kAlive && StepWord::step(word) == number;
  return begun ? parent.encode(mark_) : nullptr;
}

void* Profiler::start_step(const ProfilerEvent& event) {
  if (event.parent == nullptr) return nullptr;
  const EventHandle parent = decode(event.parent);
  const Reader operation(operations_, parent, HandleKind::kOperation);
  // A step that is none leaves the order of those behind it unknown.
  if (operation && event.step < 0) operation->next_step.store(kOutOfOrder, std::memory_order_relaxed);
  if (!operation || event.step < 0) {
    count_stale();
    return nullptr;
  }
  const auto number = static_cast<std::uint32_t>(event.step);
  if (!operation->is_send) {
    if (void* const begun = begun_step(*operation, parent, number)) return begun;
  }
  std::uint64_t expected = number;
  const bool in_order =
      operation->next_step.compare_exchange_strong(expected, number + std::uint64_t{1}, std::memory_order_relaxed);
  if (!in_order) operation->next_step.store(kOutOfOrder, std::memory_order_relaxed);

  EventHandle handle = parent;
  handle.kind = HandleKind::kStep;
  handle.slot = number % kSteps;
  Step& step = operation->steps[handle.slot];
  std::uint64_t word = step.word.load(std::memory_order_acquire);
  handle.turn = (StepWord::turn(word) + 1) & EventHandle::kTurnMask;
  // A slot whose step has not stopped, or two that start at once.
  if (StepWord::state(word) != StepWord::kFree ||
      !step.word.compare_exchange_strong(word, StepWord::make(StepWord::kBuilding, false, handle.turn, 0),
                                         std::memory_order_acquire, std::memory_order_relaxed)) {
    return exhausted();
  }
  if (!operations_.word(parent.index)->add_child(parent.generation)) {
    step.word.store(StepWord::make(StepWord::kFree, false, handle.turn, 0), std::memory_order_release);
    return exhausted();
  }
  step.chained.store(forward_start(operation->context, event), std::memory_order_relaxed);
  step.word.store(StepWord::make(StepWord::kAlive, in_order, handle.turn, number), std::memory_order_release);
  return started(handle);
}

void Profiler::answer(void* parent, MessageQuery* query) {
  const std::size_t size = query->facts.size;
  query->facts = MessageFacts();
  query->identity = MessageIdentity();
  query->facts.size = size;
  if (parent == nullptr) return;
  const EventHandle handle = decode(parent);
  const Reader operation(operations_, handle, HandleKind::kStep);
  if (!operation) return count_stale();
  const std::uint64_t word = operation->steps[handle.slot].word.load(std::memory_order_acquire);
  if (!StepWord::names(word, handle.turn)) return count_stale();
  if (!operation->is_send) return;  // the handle of a receive says nothing of a message that is sent
  query->facts = operation->facts;
  query->identity = operation->identity;
  query->facts.size = size;
  query->facts.transfer = query->identity.transfer = StepWord::step(word);
  query->facts.in_order = StepWord::in_order(word);
}

void* Profiler::start_api(void* context, const ProfilerEvent& event) {
  if (void* const kept = start_other(context, event, event.graph_captured)) return kept;
  return EventHandle{.kind = HandleKind::kApi, .captured = event.graph_captured}.encode(mark_);
}

Profiler::Counters Profiler::counters() const {
  Counters out;
  out.started = started_.load(std::memory_order_relaxed);
  out.exhausted = exhausted_.load(std::memory_order_relaxed);
  out.foreign = foreign_.load(std::memory_order_relaxed);
  out.stale = stale_.load(std::memory_order_relaxed);
  out.alive = collectives_.alive() + operations_.alive() + others_.alive();
  return out;
}

void* Profiler::started(const EventHandle& handle) {
  started_.fetch_add(1, std::memory_order_relaxed);
  return handle.encode(mark_);
}

void* Profiler::exhausted() {
  exhausted_.fetch_add(1, std::memory_order_relaxed);
  return nullptr;
}

void Profiler::count_stale() { stale_.fetch_add(1, std::memory_order_relaxed); }

}  // namespace clustar::nccl_plugin
