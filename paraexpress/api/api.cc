// The C API over the engine. No exception passes it; handles are looked up, so that a wrong one is an error.
#include <clustar/paraexpress.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "paraexpress/api/calls.h"
#include "paraexpress/api/own_transport.h"
#include "paraexpress/elastic/elastic.h"
#include "paraexpress/engine/engine.h"
#include "transport/rendezvous/bootstrap.h"

namespace clustar::paraexpress {
namespace {

using rendezvous::Bootstrap;

// One communicator. What it is made of outlives the engines.
struct Comm {
  std::unique_ptr<OwnTransport> transport{};
  std::unique_ptr<Bootstrap> bootstrap{};
  std::unique_ptr<Elastic> elastic{};
};
struct Started {
  std::shared_ptr<Comm> comm{};  // outlives the operation
  std::unique_ptr<Operation> operation{};
};

// Never destroyed: other threads may still call while the process ends.
Handles<Comm>& comms() {
  static auto* const all = new Handles<Comm>;
  return *all;
}
Handles<Started>& operations() {
  static auto* const all = new Handles<Started>;
  return *all;
}

Result<std::optional<Plan>> plan_named(const char* name) {
  if (name == nullptr) return std::optional<Plan>();
  if (const auto plan = plan_of(name)) return plan;
  return wrong(fmt::format("plan '{}'; allowed: null, direct, ring, double-tree, hierarchical, server, sharded", name));
}

Result<EngineOptions> engine_options(const clustarPxOptions_v1& options) {
  if (options.ranks < 1 || options.ranks > static_cast<int>(kMostRanks) || options.rank < 0 ||
      options.rank >= options.ranks) {
    return wrong(
        fmt::format("rank {} of {}; allowed: 1 to {} ranks, numbered from 0", options.rank, options.ranks, kMostRanks));
  }
  if (options.helpers < 0 || options.helpers > static_cast<int>(kMostHelpers)) {
    return wrong(fmt::format("{} helpers; allowed: 0 to {}", options.helpers, kMostHelpers));
  }
  if (options.stall_ms < 0) return wrong(fmt::format("stall_ms {}; allowed: 0 and more", options.stall_ms));
  const auto plan = plan_named(options.plan);
  if (!plan) return tl::unexpected(plan.error());
  EngineOptions engine;
  engine.rank = static_cast<Member>(options.rank);
  engine.ranks = static_cast<std::uint32_t>(options.ranks);
  engine.helpers = static_cast<std::uint32_t>(options.helpers);
  if (options.regions != nullptr) engine.regions = options.regions;
  engine.plan = *plan;
  if (options.stall_ms > 0) engine.stall = std::chrono::milliseconds(options.stall_ms);
  return engine;
}

Result<void> check(const clustarPxOptions_v1* options, const clustarPx_t* out) {
  if (options == nullptr || out == nullptr) return wrong("a null pointer; allowed: options, and where the handle goes");
  if (options->size == sizeof *options) return {};
  return wrong(fmt::format("size {}; allowed: {}, sizeof(clustarPxOptions_v1)", options->size, sizeof *options));
}

Result<void> init(const clustarPxOptions_v1* options, clustarPx_t* out) {
  if (const auto ok = check(options, out); !ok) return ok;
  auto engine = engine_options(*options);
  if (!engine) return tl::unexpected(engine.error());
  auto met = meet(options->root, options->hosts, options->rank, options->ranks, options->helpers);
  if (!met) return tl::unexpected(met.error());
  const auto comm = std::make_shared<Comm>();
  comm->transport = std::move(met->transport);
  comm->bootstrap = std::move(met->bootstrap);
  engine->device = comm->transport->device();
  engine->channel.job = comm->transport->job();
  auto made = Engine::create(
      comm->transport->transport(), [&](std::span<const std::byte> mine) { return comm->bootstrap->all_gather(mine); },
      *engine);
  if (!made) return tl::unexpected(made.error());
  comm->elastic = Elastic::around(comm->transport->transport(), std::move(*made), {*engine, met->root});
  *out = comms().add(comm);
  return {};
}

Result<void> check(const clustarPxPlace_v1* place) {
  if (place == nullptr || place->size == sizeof *place) return {};
  return wrong(fmt::format("size {} of a place; allowed: {}, sizeof(clustarPxPlace_v1)", place->size, sizeof *place));
}

void tell(clustarPxPlace_v1* out, const Resized& resized) {
  if (out == nullptr) return;
  out->rank = static_cast<int>(resized.place.rank);
  out->ranks = static_cast<int>(resized.place.ranks);
  out->epoch = resized.place.epoch;
  out->left = static_cast<int>(resized.left);
  out->joined = static_cast<int>(resized.joined);
  out->refused = static_cast<int>(resized.refused);
}

Result<void> join(const clustarPxOptions_v1* options, int wait_ms, clustarPx_t* out, clustarPxPlace_v1* place) {
  if (const auto ok = check(options, out); !ok) return ok;
  if (const auto ok = check(place); !ok) return ok;
  if (options->ranks != 0 || options->helpers != 0 || options->rank < 0 || wait_ms < 0) {
    return wrong(
        fmt::format("to join: rank {}, ranks {}, helpers {}, wait_ms {}; allowed: a rank of 0 or more, which "
                    "chooses a device, 0 ranks, 0 helpers, a wait of 0 or more",
                    options->rank, options->ranks, options->helpers, wait_ms));
  }
  const auto addresses = addresses_of(options->root, options->hosts, options->ranks);
  if (!addresses) return tl::unexpected(addresses.error());
  const auto comm = std::make_shared<Comm>();
  auto transport = OwnTransport::choose(options->rank);
  if (!transport) return tl::unexpected(transport.error());
  comm->transport = std::move(*transport);
  ElasticOptions elastic;
  elastic.engine.device = comm->transport->device();
  elastic.engine.channel.job = comm->transport->job();
  elastic.door = addresses->front();
  auto joined = Elastic::join(comm->transport->transport(), elastic, *addresses, std::chrono::milliseconds(wait_ms));
  if (!joined) return tl::unexpected(joined.error());
  comm->elastic = std::move(*joined);
  tell(place, {comm->elastic->place()});
  *out = comms().add(comm);
  return {};
}

// What a call may give to `start`: all ranks must fail with one that cannot.
struct Arguments {
  int datatype = CLUSTARPX_UINT8;
  int reduction = CLUSTARPX_SUM;
  int root = 0;
};

template <class Start>
Result<void> start(clustarPx_t handle, const Arguments& arguments, clustarPxOperation_t* out, Start&& begin) {
  if (out == nullptr) return wrong("a null pointer; allowed: where the operation's handle goes");
  const auto comm = comms().find(handle);
  if (comm == nullptr) return wrong(fmt::format("communicator {}; allowed: one that is not finalized", handle));
  const auto engine = comm->elastic->engine();
  const int ranks = static_cast<int>(comm->elastic->place().ranks);
  std::string text;
  if (arguments.datatype < 0 || arguments.datatype >= static_cast<int>(kDataTypes)) {
    text = fmt::format("datatype {}; allowed: CLUSTARPX_INT8 (0) to CLUSTARPX_BFLOAT16 (9)", arguments.datatype);
  } else if (arguments.reduction != CLUSTARPX_SUM && arguments.reduction != CLUSTARPX_MAX) {
    text = fmt::format("reduction {}; allowed: CLUSTARPX_SUM (0), CLUSTARPX_MAX (2)", arguments.reduction);
  } else if (arguments.root < 0 || arguments.root >= ranks) {
    text = fmt::format("root {}; allowed: 0 to {}", arguments.root, ranks - 1);
  }
  if (!text.empty()) {
    engine->abort(text);
    return wrong(std::move(text));
  }
  const auto type = static_cast<DataType>(arguments.datatype);
  const Reduction reduction = arguments.reduction == CLUSTARPX_MAX ? Reduction::kMax : Reduction::kSum;
  auto operation = begin(*engine, type, reduction);
  *out = operations().add(std::make_shared<Started>(Started{comm, std::move(operation)}));
  return {};
}

}  // namespace
}  // namespace clustar::paraexpress

using clustar::Result;
using clustar::paraexpress::comms;
using clustar::paraexpress::DataType;
using clustar::paraexpress::Engine;
using clustar::paraexpress::guarded;
using clustar::paraexpress::operations;
using clustar::paraexpress::Reduction;
using clustar::paraexpress::start;
using clustar::paraexpress::wrong;

#pragma GCC visibility push(default)
extern "C" {

int clustarPxInit(const clustarPxOptions_v1* options, clustarPx_t* out) {
  return guarded([&] { return clustar::paraexpress::init(options, out); });
}

int clustarPxRegister(clustarPx_t handle, void* memory, size_t bytes) {
  return guarded([&]() -> Result<void> {
    const auto comm = comms().find(handle);
    if (comm == nullptr) return wrong("a communicator that is none; allowed: one that is not finalized");
    return comm->elastic->add_memory(memory, bytes);
  });
}

int clustarPxAllReduce(clustarPx_t comm, void* elements, size_t count, int datatype, int reduction,
                       clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {datatype, reduction}, out, [&](Engine& engine, DataType type, Reduction how) {
      return engine.all_reduce(elements, count, type, how);
    });
  });
}

int clustarPxReduceScatter(clustarPx_t comm, void* blocks, size_t count, int datatype, int reduction,
                           clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {datatype, reduction}, out, [&](Engine& engine, DataType type, Reduction how) {
      return engine.reduce_scatter(blocks, count, type, how);
    });
  });
}

int clustarPxAllGather(clustarPx_t comm, void* blocks, size_t bytes, clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {}, out, [&](Engine& engine, DataType, Reduction) { return engine.all_gather(blocks, bytes); });
  });
}

int clustarPxBroadcast(clustarPx_t comm, void* memory, size_t bytes, int root, clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {CLUSTARPX_UINT8, CLUSTARPX_SUM, root}, out, [&](Engine& engine, DataType, Reduction) {
      return engine.broadcast(memory, bytes, static_cast<clustar::paraexpress::Member>(root));
    });
  });
}

int clustarPxPush(clustarPx_t comm, void* elements, size_t count, int datatype, int reduction,
                  clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {datatype, reduction}, out,
                 [&](Engine& engine, DataType type, Reduction how) { return engine.push(elements, count, type, how); });
  });
}

int clustarPxPull(clustarPx_t comm, void* elements, size_t count, int datatype, clustarPxOperation_t* out) {
  return guarded([&] {
    return start(comm, {datatype}, out,
                 [&](Engine& engine, DataType type, Reduction) { return engine.pull(elements, count, type); });
  });
}

int clustarPxTest(clustarPxOperation_t operation, int* done) {
  return guarded([&]() -> Result<void> {
    if (done == nullptr) return wrong("a null pointer; allowed: where the answer goes");
    const auto one = operations().find(operation);
    if (one == nullptr) return wrong(fmt::format("operation {}; allowed: one that is not waited for yet", operation));
    *done = one->operation->done() ? 1 : 0;
    return {};
  });
}

int clustarPxWait(clustarPxOperation_t operation) {
  return guarded([&]() -> Result<void> {
    const auto one = operations().take(operation);
    if (one == nullptr) return wrong(fmt::format("operation {}; allowed: one that is not waited for yet", operation));
    const auto seconds = one->operation->wait();
    return seconds ? Result<void>() : tl::unexpected(seconds.error());
  });
}

int clustarPxFinalize(clustarPx_t handle) {
  return guarded([&]() -> Result<void> {
    const auto comm = comms().take(handle);
    if (comm == nullptr) return wrong(fmt::format("communicator {}; allowed: one that is not finalized", handle));
    comm->elastic->close();
    return {};
  });
}

int clustarPxResize(clustarPx_t handle, clustarPxPlace_v1* out) {
  return guarded([&]() -> Result<void> {
    const auto comm = comms().find(handle);
    if (comm == nullptr) return wrong("a communicator that is none; allowed: one that is not finalized");
    if (const auto ok = clustar::paraexpress::check(out); !ok) {
      comm->elastic->engine()->abort(ok.error().message);
      return ok;
    }
    const auto resized = comm->elastic->resize();
    if (!resized) return tl::unexpected(resized.error());
    clustar::paraexpress::tell(out, *resized);
    clustar::paraexpress::last_error() = resized->shut;
    return {};
  });
}

int clustarPxLeave(clustarPx_t handle) {
  return guarded([&]() -> Result<void> {
    // Where it cannot leave at all, it stays as it is.
    if (const auto comm = comms().find(handle); comm != nullptr) {
      if (const auto ok = comm->elastic->may_change(); !ok) return ok;
    }
    const auto comm = comms().take(handle);
    if (comm == nullptr) return wrong(fmt::format("communicator {}; allowed: one that is not finalized", handle));
    auto left = comm->elastic->leave();
    comm->elastic->close();
    return left;
  });
}

int clustarPxJoin(const clustarPxOptions_v1* options, int wait_ms, clustarPx_t* out, clustarPxPlace_v1* place) {
  return guarded([&] { return clustar::paraexpress::join(options, wait_ms, out, place); });
}

const char* clustarPxLastError(void) { return clustar::paraexpress::last_error().c_str(); }

}  // extern "C"
#pragma GCC visibility pop
