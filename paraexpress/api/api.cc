// The C API over the engine. No exception passes it; handles are looked up, so that a wrong one is an error.
#include <clustar/paraexpress.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "paraexpress/api/own_transport.h"
#include "paraexpress/engine/engine.h"
#include "transport/rendezvous/bootstrap.h"

namespace clustar::paraexpress {
namespace {

using rendezvous::Bootstrap;

thread_local std::string last_error;

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return CLUSTARPX_EINVAL;
    case ErrorCode::kInvalidUsage: return CLUSTARPX_EUSAGE;
    case ErrorCode::kUnavailable: return CLUSTARPX_ESYSTEM;
    case ErrorCode::kSystem: return CLUSTARPX_ESYSTEM;
    case ErrorCode::kRemote: return CLUSTARPX_EREMOTE;
    case ErrorCode::kInternal: return CLUSTARPX_EINTERNAL;
  }
  return CLUSTARPX_EINTERNAL;
}

int report(const Result<void>& result) {
  if (result) return CLUSTARPX_OK;
  last_error = result.error().message;
  return status_of(result.error().code);
}

template <class Body>
int guarded(Body&& body) noexcept {
  try {
    return report(std::forward<Body>(body)());
  } catch (const std::bad_alloc&) {
    last_error.clear();  // there is no memory for a text
    return CLUSTARPX_ESYSTEM;
  } catch (...) {
    last_error.clear();
    return CLUSTARPX_EINTERNAL;
  }
}

tl::unexpected<Error> wrong(std::string text) { return fail(ErrorCode::kInvalidArgument, std::move(text)); }

// One communicator. What it is made of outlives the engine.
struct Comm {
  std::unique_ptr<OwnTransport> transport{};
  std::unique_ptr<Bootstrap> bootstrap{};
  std::unique_ptr<Engine> engine{};
  std::uint32_t ranks = 1;
};
struct Started {
  std::shared_ptr<Comm> comm{};  // its engine outlives the operation
  std::unique_ptr<Operation> operation{};
};

// Handles of this process. Any thread.
template <class T>
class Handles {
 public:
  std::uint64_t add(std::shared_ptr<T> one) {
    const std::lock_guard lock(mutex_);
    all_.emplace(++last_, std::move(one));
    return last_;
  }
  std::shared_ptr<T> find(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(handle);
    return at == all_.end() ? nullptr : at->second;
  }
  std::shared_ptr<T> take(std::uint64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto at = all_.find(handle);
    if (at == all_.end()) return nullptr;
    auto one = std::move(at->second);
    all_.erase(at);
    return one;
  }

 private:
  std::mutex mutex_{};
  std::map<std::uint64_t, std::shared_ptr<T>> all_{};
  std::uint64_t last_ = 0;
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

// Of "HOST[:PORT],HOST,...": rank 0's HOST:PORT. A port stands behind the last colon, unless that is within [IPv6].
Result<std::string> root_of(const std::string& hosts, int ranks) {
  const auto count = std::count(hosts.begin(), hosts.end(), ',') + 1;
  if (hosts.empty() || count != ranks) {
    return wrong(fmt::format("hosts '{}' names {}, ranks is {}; allowed: a host per rank", hosts,
                             hosts.empty() ? 0 : count, ranks));
  }
  const std::string first = hosts.substr(0, hosts.find(','));
  const std::size_t colon = first.rfind(':'), bracket = first.rfind(']');
  const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
  return has_port ? first : first + ":29555";
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

Result<void> init(const clustarPxOptions_v1* options, clustarPx_t* out) {
  if (options == nullptr || out == nullptr) return wrong("a null pointer; allowed: options, and where the handle goes");
  if (options->size != sizeof *options) {
    return wrong(fmt::format("size {}; allowed: {}, sizeof(clustarPxOptions_v1)", options->size, sizeof *options));
  }
  auto engine = engine_options(*options);
  if (!engine) return tl::unexpected(engine.error());
  Bootstrap::Options meeting;
  meeting.rank = options->rank;
  meeting.size = options->ranks + options->helpers;
  if (meeting.size > 1) {
    if ((options->root != nullptr) == (options->hosts != nullptr)) {
      return wrong("root and hosts: allowed: one of them, the other null");
    }
    auto root = options->root != nullptr ? Result<std::string>(options->root) : root_of(options->hosts, options->ranks);
    if (!root) return tl::unexpected(root.error());
    meeting.root = std::move(*root);
  }
  const auto comm = std::make_shared<Comm>();
  comm->ranks = engine->ranks;
  auto transport = OwnTransport::choose(options->rank);
  if (!transport) return tl::unexpected(transport.error());
  comm->transport = std::move(*transport);
  auto bootstrap = Bootstrap::join(meeting);
  if (!bootstrap) return tl::unexpected(bootstrap.error());
  comm->bootstrap = std::move(*bootstrap);
  engine->device = comm->transport->device();
  engine->channel.job = comm->transport->job();
  auto made = Engine::create(
      comm->transport->transport(), [&](std::span<const std::byte> mine) { return comm->bootstrap->all_gather(mine); },
      *engine);
  if (!made) return tl::unexpected(made.error());
  comm->engine = std::move(*made);
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
  std::string text;
  if (arguments.datatype < 0 || arguments.datatype >= static_cast<int>(kDataTypes)) {
    text = fmt::format("datatype {}; allowed: CLUSTARPX_INT8 (0) to CLUSTARPX_BFLOAT16 (9)", arguments.datatype);
  } else if (arguments.reduction != CLUSTARPX_SUM && arguments.reduction != CLUSTARPX_MAX) {
    text = fmt::format("reduction {}; allowed: CLUSTARPX_SUM (0), CLUSTARPX_MAX (2)", arguments.reduction);
  } else if (arguments.root < 0 || arguments.root >= static_cast<int>(comm->ranks)) {
    text = fmt::format("root {}; allowed: 0 to {}", arguments.root, comm->ranks - 1);
  }
  if (!text.empty()) {
    comm->engine->abort(text);
    return wrong(std::move(text));
  }
  const auto type = static_cast<DataType>(arguments.datatype);
  const Reduction reduction = arguments.reduction == CLUSTARPX_MAX ? Reduction::kMax : Reduction::kSum;
  auto operation = begin(*comm->engine, type, reduction);
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
    return comm->engine->add_memory(memory, bytes);
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
    comm->engine->close();
    return {};
  });
}

const char* clustarPxLastError(void) { return clustar::paraexpress::last_error.c_str(); }

}  // extern "C"
#pragma GCC visibility pop
