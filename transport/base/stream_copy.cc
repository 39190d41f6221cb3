#include "transport/base/stream_copy.h"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace clustar {

#ifdef __SSE2__

void stream_copy(std::byte* to, const std::byte* from, std::size_t length) {
  constexpr std::size_t kLine = 64;
  const std::size_t before = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
  if (length < before + kLine) {
    std::memcpy(to, from, length);
    return;
  }
  std::memcpy(to, from, before);
  std::size_t at = before;
  for (; at + kLine <= length; at += kLine) {
    // A whole line at a time: parts of lines would reach the memory one by one.
    const auto* source = reinterpret_cast<const __m128i*>(from + at);
    auto* target = reinterpret_cast<__m128i*>(to + at);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, length - at);
}

void order_streamed() { _mm_sfence(); }

#else

void stream_copy(std::byte* to, const std::byte* from, std::size_t length) { std::memcpy(to, from, length); }
void order_streamed() {}

#endif

}  // namespace clustar
