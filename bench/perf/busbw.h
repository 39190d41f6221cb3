// All-reduce bus bandwidth between two ranks, through bench/proxy's Communicator: what a collective gets of the wire.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "bench/perf/driver.h"
#include "bench/perf/plugin_wire.h"
#include "bench/proxy/bootstrap.h"
#include "bench/proxy/communicator.h"

namespace clustar::bench::perf {

class Busbw {
 public:
  // Collective over both ranks. `plugin` must outlive it.
  static Result<std::unique_ptr<Busbw>> open(proxy::NetPlugin& plugin, int device, int rank, const std::string& root,
                                             std::chrono::milliseconds timeout);

  // `count` all-reduces of `bytes` (float, sum, in place), timed as a whole, then one more of fresh values that is
  // checked and not timed.
  Result<Sample> run(std::size_t bytes, std::uint64_t count, std::uint64_t seed, std::atomic<std::uint64_t>& progress);
  Result<void> close() { return communicator_->close(); }

 private:
  std::unique_ptr<proxy::Communicator> communicator_;
  Memory memory_;
};

}  // namespace clustar::bench::perf
