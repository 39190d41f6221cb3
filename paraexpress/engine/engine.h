// Moves the bytes of ParaExpress: collectives of the ranks of a group by a plan, over any transport (waist 1).
//
// Strict contract: an operation gives the exact result of all ranks, the same bits on each, or fails with an error that
// names who is to blame. A rank that fails tells the others why before it closes; one that has its result already
// learns of it in its next operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "paraexpress/core/group.h"
#include "paraexpress/core/order.h"
#include "paraexpress/core/plans/build.h"
#include "paraexpress/engine/waits.h"
#include "paraexpress/sums/reduce.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar::paraexpress {

// How the members meet: gives what each says, ranks in their order, then helpers; all say equally much. It blocks, and
// is called by Engine::create and serve_as_helper alone, in their thread, once.
using AllGather = std::function<Result<std::vector<std::byte>>(std::span<const std::byte>)>;

struct EngineOptions {
  Member rank = 0;
  std::uint32_t ranks = 1;    // 1 .. kMostRanks
  std::uint32_t helpers = 0;  // processes that add (helper.h), 0 .. kMostHelpers
  // A region map (core/region_map.h); empty: one region; kProbeRegions: the map that create() finds.
  std::string regions{};
  // Of all operations that can go by it (core/collective.h); nothing: the planner chooses by the size. What create()
  // measures of the network says which plan, and how long chunks are.
  std::optional<Plan> plan{};
  // Of buffers from so many bytes on, and no `plan`: the ring, in which each rank hears one other at a time. Where
  // several send to one at once (incast), switches drop packets, which kernel TCP recovers from slowly; the planner
  // knows nothing of it.
  std::optional<std::uint64_t> ring_from{};
  std::uint64_t chunk_bytes = 1 << 20;  // at most so much is one message: kLeastChunk .. kMostChunk
  int device = 0;                       // of the transport
  // How long an operation may stand still, and ranks wait for each other to connect.
  Duration stall = std::chrono::seconds(60);
  // Within create(), where it is not zero, instead of `stall`.
  Duration setup{};
  // create() ends in an error then, whatever moves, and a moment later (farewells).
  Waits::Instant setup_until = Waits::Instant::max();
  // Of the membership: members of another one are refused.
  std::uint64_t epoch = 0;
  transport::ChannelOptions channel{};
  // After one or more operations ended that had not when they were started: in the engine's thread, or in close().
  // Short, and it calls nothing of the engine.
  std::function<void()> on_end{};
};
// What a member says in create()'s all-gather, of so many members.
std::size_t exchange_bytes(std::uint32_t members);
inline constexpr const char* kProbeRegions = "probe";
inline constexpr std::uint32_t kMostRanks = 256;
inline constexpr std::uint64_t kLeastChunk = 4 << 10;
inline constexpr std::uint64_t kMostChunk = 64 << 20;

// What went over the network, of this rank, with what create() measured by.
struct EngineTraffic {
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  std::uint64_t messages_sent = 0, messages_received = 0;
};

// A started operation. Its memory stays valid and untouched until wait() returned, with a result or an error, or the
// engine is closed.
class Operation {
 public:
  virtual ~Operation() = default;
  // True: wait() does not block any more.
  virtual bool done() const = 0;
  // Seconds from its start to its end, on this rank; or why it failed. Blocks.
  virtual Result<double> wait() = 0;
};

// Thread rule: any thread, but operations must be started in the same order on all ranks. A few run at once, in a
// thread of the engine's own, the newest first: in training it is the one that is needed first (MLSL, ByteScheduler).
// Those on the same memory run in the order of their starts.
class Engine {
 public:
  // Connects all ranks and measures the network; blocks, each wait within it for `stall` at most. The transport
  // outlives the engine.
  static Result<std::unique_ptr<Engine>> create(transport::Transport& transport, const AllGather& all_gather,
                                                const EngineOptions& options);
  virtual ~Engine() = default;  // as close()

  // Registers memory that operations may use, whole or in parts, until it is removed or the engine is closed. An
  // operation on other memory fails the engine on all ranks.
  virtual Result<void> add_memory(void* memory, std::size_t bytes) = 0;
  // What add_memory() took, with the same arguments: it is not registered any more, and its owner's. Error: an
  // operation there has not ended.
  virtual Result<void> remove_memory(void* memory, std::size_t bytes) = 0;

  // In place: every rank has the reduction of all ranks' elements. With no elements it is done at once.
  virtual std::unique_ptr<Operation> all_reduce(void* elements, std::size_t count, DataType type,
                                                Reduction reduction = Reduction::kSum) = 0;
  // In place: of `ranks` blocks of `bytes`, each rank brings the one of its number and has all afterwards.
  virtual std::unique_ptr<Operation> all_gather(void* blocks, std::size_t bytes) = 0;
  // In place: of `ranks` blocks of `count` elements, each rank has the reduction in the one of its number afterwards.
  // The others' contents are of no use then.
  virtual std::unique_ptr<Operation> reduce_scatter(void* blocks, std::size_t count, DataType type,
                                                    Reduction reduction = Reduction::kSum) = 0;
  // All ranks have the root's bytes afterwards. Ranks that disagree about the root get an error, at the latest in the
  // next operation without helpers.
  virtual std::unique_ptr<Operation> broadcast(void* bytes, std::size_t count, Member root) = 0;
  // What else the operations from here on are, as all ranks must agree about it, in this order: ranks that differ get
  // no bytes of each other (but for 1 case in 127), so that none has a result of what another takes for something else.
  // They wait for an error: an abort() of one that knows better, or `stall`. Without helpers.
  virtual void agree_on(std::uint64_t what) = 0;
  // An all-reduce in two halves. In between each part of the result is at some rank, and the memory may not be used for
  // anything but its pull: of the same elements and type.
  virtual std::unique_ptr<Operation> push(void* elements, std::size_t count, DataType type,
                                          Reduction reduction = Reduction::kSum) = 0;
  virtual std::unique_ptr<Operation> pull(void* elements, std::size_t count, DataType type) = 0;

  // Waits until all operations that were started have ended. Then between them there is room for something else, unless
  // something was pushed and not pulled, which fails the engine.
  virtual Result<void> settle() = 0;

  // The plan that an all-reduce of so many bytes goes by.
  virtual Plan plan_for(std::uint64_t bytes) const = 0;
  // By how much the planner takes its best plan of such an all-reduce to be faster than a ring: 1 or more. The same on
  // all ranks, after as many operations.
  virtual double gain_over_ring(std::uint64_t bytes) const = 0;
  // Helpers that are there; the ranks agree on it after each operation that has some.
  virtual std::uint32_t helpers() const = 0;
  // The region map that it goes by, as text.
  virtual std::string regions() const = 0;
  // What probing said of them, one line for people, also where it found none. Empty: nobody asked for it.
  virtual std::string regions_found() const = 0;
  virtual EngineTraffic traffic() const = 0;

  // Fails all operations, and tells the other ranks why.
  virtual void abort(const std::string& why) = 0;
  // Waits for the other ranks to be done too, 3 s at most, so that nobody loses what is still on its way. Operations
  // that are not done fail. Idempotent.
  virtual void close() = 0;
};

}  // namespace clustar::paraexpress
