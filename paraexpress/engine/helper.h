// A helper: a process that adds for the ranks and has nothing of its own to contribute (BytePS's summation service,
// Jiang et al., OSDI 2020). Where helpers have NICs of their own, ranks move less.
//
// It holds nothing that cannot be replaced: each rank keeps its contribution until the result is there, so the ranks go
// on without a helper that is gone or stands still.
#pragma once

#include <atomic>
#include <cstdint>

#include "paraexpress/core/order.h"
#include "paraexpress/engine/engine.h"

namespace clustar::paraexpress {

struct HelperOptions {
  std::uint32_t helper = 0;   // 0 .. helpers - 1
  std::uint32_t helpers = 1;  // 1 .. kMostHelpers
  std::uint32_t ranks = 1;
  int device = 0;                                      // of the transport
  Duration stall = std::chrono::seconds(60);           // as the ranks' own
  std::uint64_t most_bytes = std::uint64_t{16} << 30;  // of memory for an operation
  transport::ChannelOptions channel{};
};
struct HelperReport {
  std::uint64_t operations = 0;
  EngineTraffic traffic{};
};

// Blocks until the ranks close their engines, or `stop` is true. `all_gather` is that of the ranks' engines: all ranks,
// then all helpers. Error: which rank is gone, or that the helper itself cannot do what it is told to.
Result<HelperReport> serve_as_helper(transport::Transport& transport, const AllGather& all_gather,
                                     const HelperOptions& options, const std::atomic<bool>& stop);

}  // namespace clustar::paraexpress
