#include "bench/udp/assembly.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace clustar::bench::udp {
namespace {

void stream(std::byte* to, const std::byte* from, std::size_t bytes) {
#ifdef __SSE2__
  const std::size_t in_front = std::min(bytes, (16 - reinterpret_cast<std::uintptr_t>(to) % 16) % 16);
  std::memcpy(to, from, in_front);
  std::size_t at = in_front;
  for (; at + 16 <= bytes; at += 16) {
    const __m128i some = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at));
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + at), some);
  }
  std::memcpy(to + at, from + at, bytes - at);
#else
  std::memcpy(to, from, bytes);
#endif
}

}  // namespace

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
    if (copy == Copy::kStreaming) stream(place(segment), payload, shape_.payload_bytes);
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
