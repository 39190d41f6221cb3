// Loads the NCCL tuner of a library (ncclTunerPlugin_v4 .. v6) and asks it, per collective, as NCCL 2.28.9
// src/enqueue.cc getAlgoInfo does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/proxy/communicator.h"
#include "bench/proxy/plugin_library.h"
#include "nccl_plugin/abi/tuner.h"
#include "transport/base/result.h"

namespace clustar::bench::proxy {

inline constexpr int kTunerAlgos = 7;  // NCCL_NUM_ALGORITHMS
inline constexpr int kTunerProtos = 3;
using CostTable = std::array<std::array<float, kTunerProtos>, kTunerAlgos>;

struct TunedComm {
  std::uint64_t comm_id = 0;
  std::size_t ranks = 0;
  std::size_t nodes = 0;
};

// Calls return the plugin's ncclResult_t unchanged.
class TunerPlugin {
 public:
  // The newest table of `path` that is not newer than `newest` (4 to 6). Null: it exports none.
  // Errors: what open_library() says, a `newest` that does not exist.
  static Result<std::unique_ptr<TunerPlugin>> open(const std::string& path, int newest = 6);

  virtual ~TunerPlugin() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;  // "" when the table's name is NULL
  virtual int init(const TunedComm& comm, nccl_abi::DebugLogger logger, void** context) = 0;
  // `bytes`: the larger of one rank's input and output.
  virtual int get_coll_info(void* context, int function, std::size_t bytes, CostTable& costs, int* channels) = 0;
  virtual int finalize(void* context) = 0;  // `destroy` in v4

 protected:
  explicit TunerPlugin(Library library) : library_(std::move(library)) {}

 private:
  Library library_;
};

// What NCCL would offer a ring over `wanted`: that, and SIMPLE, which every communicator can run, as second best.
CostTable offered_costs(Protocol wanted);
// The cheapest of a ring's protocols that the tuner left. kInvalidUsage: none, where NCCL fails the collective, too.
Result<Protocol> cheapest_ring(const CostTable& costs, const char* function);

}  // namespace clustar::bench::proxy
