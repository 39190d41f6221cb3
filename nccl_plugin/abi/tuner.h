// ncclTuner_v4_t .. v6_t: the tables a tuner plugin exports as data objects `ncclTunerPlugin_vN`.
// Source of the layouts: NCCL v2.27.7-1 (v4), v2.28.9-1 (v5) and v2.30.7-1 (v6), src/include/plugin/tuner/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_abi {

// An entry of the cost table that NCCL will not take: others must not be touched back to life.
inline constexpr float kCostIgnored = -1.0f;

struct NvlDomainInfo {
  int domains;
  int min_ranks_per_domain;
  int max_ranks_per_domain;
};

// `cost` is declared float** but is NCCL's float[algos][protos], cast: the entry of (a, p) is
// reinterpret_cast<float*>(cost)[a * protos + p], microseconds: 0 is the best, kCostIgnored never.
// Source: NCCL v2.28.9 src/enqueue.cc getAlgoInfo.
struct TunerV4 {
  const char* name;
  int (*init)(std::size_t ranks, std::size_t nodes, DebugLogger, void** context);
  int (*getCollInfo)(void* context, int func, std::size_t bytes, int pipe_ops, float** cost, int algos, int protos,
                     int registered, int* channels);
  int (*destroy)(void* context);
};
struct TunerV5 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes, DebugLogger, NvlDomainInfo*,
              void* constants);
  int (*getCollInfo)(void* context, int func, std::size_t bytes, int pipe_ops, float** cost, int algos, int protos,
                     int registered, int* channels);
  int (*finalize)(void* context);
};
struct TunerV6 {
  const char* name;
  int (*init)(void** context, std::uint64_t comm_id, std::size_t ranks, std::size_t nodes, DebugLogger, NvlDomainInfo*,
              void* constants);
  int (*getCollInfo)(void* context, int func, std::size_t bytes, int pipe_ops, float** cost, int algos, int protos,
                     int registered, int* channels);
  int (*finalize)(void* context);
  int (*getChunkSize)(void* context, int func, std::size_t bytes, int algo, int proto, int channels,
                      std::size_t* chunk_size);  // optional
};
static_assert(sizeof(TunerV4) == 32 && sizeof(TunerV5) == 32 && sizeof(TunerV6) == 40);

}  // namespace clustar::nccl_abi
