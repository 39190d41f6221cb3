#include "transport/io/udp/buffer_pool.h"

#include <cassert>

namespace clustar::transport::io::udp {
namespace {

// Neighbours a power of two apart would share the few places of a cache that their headers can be in.
constexpr std::size_t kSkew = 17 * 64;

}  // namespace

BufferPool::BufferPool(std::size_t buffers, std::size_t bytes_each)
    : bytes_each_(bytes_each),
      stride_(bytes_each + kSkew),
      memory_(std::make_unique_for_overwrite<std::byte[]>(buffers * stride_)),
      holders_(buffers, 0) {
  free_.reserve(buffers);
  for (std::size_t i = buffers; i > 0; --i) free_.push_back(static_cast<BufferId>(i - 1));
}

BufferId BufferPool::take() {
  assert(!free_.empty());
  const BufferId buffer = free_.back();
  free_.pop_back();
  holders_[buffer] = 1;
  return buffer;
}

bool BufferPool::drop(BufferId buffer) {
  if (buffer >= holders_.size() || holders_[buffer] == 0) return false;
  if (--holders_[buffer] == 0) free_.push_back(buffer);
  return true;
}

}  // namespace clustar::transport::io::udp
