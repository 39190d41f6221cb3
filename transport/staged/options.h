// How GPU memory is staged, and what was.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "gdr/device_copy.h"
#include "gdr/memory.h"
#include "transport/api/importance_table.h"
#include "transport/base/log.h"
#include "transport/base/time.h"

namespace clustar::transport::staged {

struct Options {
  // For each channel. Called when it registers GPU memory first, by whichever thread does. What it makes ends with the
  // channel, after a second at most for copies under way.
  gdr::MakeCopy make_copy;
  std::string gdr;                                         // DeviceProperties::gdr
  std::uint32_t kinds = gdr::bit(gdr::MemoryKind::kCuda);  // staged ones; a dma-buf needs its address, too
  bool emulated = false;                                   // NCCL is asked to flush, and a flush takes some tests
  // A channel's arena is so many slices from the first registration of GPU memory on, and more as soon as a request
  // could need more by the lengths that are registered.
  std::size_t slice_bytes = 128 * 1024;
  std::uint32_t slices = 128;
  std::size_t most_bytes = std::size_t{1} << 30;  // of GPU memory in one request, as NCCL's (MAX_NET_SIZE)
  std::uint32_t max_copies = 16;                  // of one channel, under way
  std::shared_ptr<ImportanceTable> importance{};  // null: programs mark nothing
};

struct Counters {
  std::atomic<std::uint64_t> sent{0};  // messages that began in GPU memory
  std::atomic<std::uint64_t> sent_bytes{0};
  std::atomic<std::uint64_t> received{0};  // requests with a part in GPU memory
  std::atomic<std::uint64_t> received_bytes{0};
  std::atomic<std::uint64_t> larger_arenas{0};
};

struct Context {
  Options options;
  std::string name;  // of the inner transport
  const Clock& clock;
  Log log;
  Counters counters{};
};

}  // namespace clustar::transport::staged
