// Predicted scatter: the iovecs of one receive alternate between header slots and the places of the segments that
// should come next, so that the kernel's copy is the only one. What came otherwise is moved to where it belongs.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/udp/assembly.h"

namespace clustar::bench::udp {

struct ScatterCounts {
  std::uint64_t placed = 0;  // by the kernel, where they belong
  std::uint64_t moved = 0;   // placed elsewhere
  std::uint64_t copied = 0;  // came to a slot that had no prediction
};

// One message. Whatever the prediction, nothing is cut off: behind the predicted segments is room for a whole message.
class ScatterPlan {
 public:
  explicit ScatterPlan(const Shape& shape);

  // Predicts up to `most` missing segments from `first` on; returns how many. Places of segments that have come are
  // never offered to the kernel.
  std::size_t predict(Assembly& into, std::uint64_t first, std::size_t most);
  void fill(msghdr& header);
  // Looks at what was received into it, and takes out of the places what belongs elsewhere. `segment_bytes` as told by
  // UDP_GRO.
  void land(std::size_t length, std::size_t segment_bytes, ScatterCounts& counts);
  // Then puts it where it belongs. Of messages that were predicted together all land before one settles: what belongs
  // to a place of one may still lie in the way of another.
  void settle(Assembly& into);

 private:
  void gather();

  Shape shape_;
  std::uint64_t first_ = 0;
  std::size_t predicted_ = 0;
  std::size_t length_ = 0;
  std::size_t segment_bytes_ = 0;
  std::size_t here_ = 0;   // datagrams in predicted places
  std::size_t right_ = 0;  // of these from the front
  std::vector<std::byte> headers_;
  std::vector<std::byte> rest_;
  std::vector<std::byte> scratch_;
  std::vector<iovec> pieces_;
};

}  // namespace clustar::bench::udp
