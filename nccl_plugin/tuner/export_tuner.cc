// The exported tables ncclTunerPlugin_v4 .. v6: tuner.h does the work. NCCL calls getCollInfo from the thread that
// enqueues, one at a time per communicator; communicators have a context each.
// Left null on purpose: getChunkSize (v6), so that NCCL keeps its own.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>

#include "nccl_plugin/abi/tuner.h"
#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/tuner/tuner.h"
#include "nccl_plugin/tuner/tuner_source.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr const char* kTunerName = "clustar";

struct TunerContext {
  std::shared_ptr<const TunerSource> source;
  TunerFacts facts;
};

// A wrong setting fails the communicator, as it does in the net plugin: NCCL passes the tuner's error on.
int init(void** context, CommFacts comm, std::size_t ranks, std::size_t nodes, DebugLogger logger) {
  constexpr std::size_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (context == nullptr || ranks < 1 || ranks > kMost || nodes < 1 || nodes > ranks) return kInvalidArgument;
  auto source = tuner_source(logger);
  if (!source) {
    if (logger != nullptr) {
      logger(kLogWarn, kLogInit | kLogEnv, "clustar", 0, "TUNER/clustar: %s", source.error().message.c_str());
    }
    return to_nccl(source.error().code);
  }
  auto made = std::make_unique<TunerContext>();
  made->source = std::move(*source);
  const TunerSource& from = *made->source;
  if (comm.comm_id != 0 && from.registry != nullptr) {
    if (auto known = from.registry->find(comm.comm_id)) comm = std::move(*known);
  }
  comm.ranks = static_cast<std::uint32_t>(ranks);
  comm.nodes = static_cast<std::uint32_t>(nodes);
  made->facts = {std::move(comm), from.ordered_lines, from.steer, from.by_planner};
  *context = made.release();
  return kSuccess;
}

int init_v4(std::size_t ranks, std::size_t nodes, DebugLogger logger, void** context) {
  return guarded([&] { return init(context, {}, ranks, nodes, logger); });
}

int init_v5(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes, DebugLogger logger,
            NvlDomainInfo*, void*) {
  return guarded([&] {
    CommFacts comm;
    comm.comm_id = comm_id;
    return init(context, std::move(comm), ranks, nodes, logger);
  });
}

// `registered` (whether this rank's buffers are) may differ between ranks, and so decides nothing.
int get_coll_info(void* context, int function, std::size_t bytes, int, float** cost, int algorithms, int protocols, int,
                  int*) {
  if (context == nullptr || cost == nullptr || algorithms < 0 || protocols < 0) return kInvalidArgument;
  return guarded([&] {
    const auto& tuner = *static_cast<const TunerContext*>(context);
    const std::size_t entries = static_cast<std::size_t>(algorithms) * static_cast<std::size_t>(protocols);
    const CostTable table{{reinterpret_cast<float*>(cost), entries}, algorithms, protocols};
    tune(tuner.facts, tuner.source->policy, function, bytes, table);
    return static_cast<int>(kSuccess);
  });
}

int finalize(void* context) {
  return guarded([&] {
    delete static_cast<TunerContext*>(context);
    return static_cast<int>(kSuccess);
  });
}

}  // namespace
}  // namespace clustar::nccl_plugin

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

CLUSTAR_EXPORT const clustar::nccl_abi::TunerV4 ncclTunerPlugin_v4;
CLUSTAR_EXPORT const clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5;
CLUSTAR_EXPORT const clustar::nccl_abi::TunerV6 ncclTunerPlugin_v6;

using namespace clustar::nccl_plugin;

const clustar::nccl_abi::TunerV4 ncclTunerPlugin_v4 = {
    .name = kTunerName,
    .init = init_v4,
    .getCollInfo = get_coll_info,
    .destroy = finalize,
};

const clustar::nccl_abi::TunerV5 ncclTunerPlugin_v5 = {
    .name = kTunerName,
    .init = init_v5,
    .getCollInfo = get_coll_info,
    .finalize = finalize,
};

const clustar::nccl_abi::TunerV6 ncclTunerPlugin_v6 = {
    .name = kTunerName,
    .init = init_v5,
    .getCollInfo = get_coll_info,
    .finalize = finalize,
    .getChunkSize = nullptr,
};
