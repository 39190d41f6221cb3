// The part of a reduce-scatter or an all-gather that one call is about: NCCL cuts what all ranks have together, rank
// after rank, into windows (v2.28.9 src/transport/coll_net.cc calcAlgoOffset).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/base/result.h"

namespace clustar::nccl_plugin {

struct Window {
  std::size_t bytes_per_rank = 0;
  std::size_t offset = 0;  // of the whole
  std::size_t bytes = 0;
  std::uint32_t ranks = 1;

  bool whole() const { return offset == 0 && bytes == bytes_per_rank * ranks; }
};

// What of a window is one rank's.
struct Share {
  std::uint32_t rank = 0;
  std::size_t begin = 0;  // in the window
  std::size_t bytes = 0;
};

// Error kInvalidArgument: it ends behind the whole, or has parts of an element of `element` bytes.
Result<void> check(const Window& window, std::size_t element);
// Of a window that was checked. Begin is 0 where there is nothing.
Share share_of(const Window& window, std::uint32_t rank);
// Those that are not empty, in the order of ranks.
std::vector<Share> shares_of(const Window& window);

}  // namespace clustar::nccl_plugin
