#include "nccl_plugin/collnet/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace clustar::nccl_plugin {

Result<void> check(const Window& window, std::size_t element) {
  const bool too_much = window.bytes_per_rank > std::numeric_limits<std::size_t>::max() / window.ranks;
  const std::size_t all = too_much ? 0 : window.bytes_per_rank * window.ranks;
  if (too_much || window.offset > all || window.bytes > all - window.offset) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a window of {} bytes from {}; allowed: within {} ranks' {} bytes each", window.bytes,
                            window.offset, window.ranks, window.bytes_per_rank));
  }
  if (window.bytes_per_rank % element != 0 || window.offset % element != 0 || window.bytes % element != 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("a window of {} bytes from {} of {} bytes a rank; allowed: multiples of the element's {}",
                            window.bytes, window.offset, window.bytes_per_rank, element));
  }
  return {};
}

Share share_of(const Window& window, std::uint32_t rank) {
  const std::size_t begin = std::max(window.offset, window.bytes_per_rank * rank);
  const std::size_t end = std::min(window.offset + window.bytes, window.bytes_per_rank * (rank + 1));
  if (begin >= end) return {rank, 0, 0};
  return {rank, begin - window.offset, end - begin};
}

std::vector<Share> shares_of(const Window& window) {
  std::vector<Share> shares;
  for (std::uint32_t rank = 0; rank < window.ranks; ++rank) {
    const Share share = share_of(window, rank);
    if (share.bytes > 0) shares.push_back(share);
  }
  return shares;
}

}  // namespace clustar::nccl_plugin
