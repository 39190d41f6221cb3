#include "bench/udp/assembly.h"

#include <algorithm>
#include <cstring>

#include "transport/base/stream_copy.h"

namespace clustar::bench::udp {

Assembly::Assembly(const Shape& shape, std::span<std::byte> target)
    : shape_(shape), target_(target), came_(shape.segments, 0) {}

void Assembly::mark(std::uint64_t segment) {
  if (came_[segment] == 0) ++count_;
  came_[segment] = 1;
  next_ = segment + 1;
  end_ = std::max(end_, next_);
}

void Assembly::take(std::span<const std::byte> message, std::size_t segment_bytes, Copy copy) {
  for (std::size_t at = 0; at < message.size(); at += segment_bytes) {
    const auto datagram = message.subspan(at, std::min(segment_bytes, message.size() - at));
    const std::uint64_t segment = datagram.size() == shape_.datagram_bytes() ? segment_of(datagram.data()) : ~0ull;
    if (segment >= shape_.segments) {
      ++malformed_;
      continue;
    }
    const std::byte* payload = datagram.data() + kHeaderBytes;
    if (copy == Copy::kUsual) std::memcpy(place(segment), payload, shape_.payload_bytes);
    if (copy == Copy::kStreaming) stream_copy(place(segment), payload, shape_.payload_bytes);
    mark(segment);
  }
}

std::uint64_t Assembly::wrong(std::span<const std::byte> source) const {
  const std::uint64_t places = shape_.places();
  std::uint64_t wrong = 0;
  for (std::uint64_t segment = shape_.segments > places ? shape_.segments - places : 0; segment < shape_.segments;
       ++segment) {
    if (came_[segment] == 0) continue;
    const auto is = target_.subspan(shape_.target_offset(segment), shape_.payload_bytes);
    if (!std::ranges::equal(is, source.subspan(shape_.source_offset(segment), shape_.payload_bytes))) ++wrong;
  }
  return wrong;
}

}  // namespace clustar::bench::udp
