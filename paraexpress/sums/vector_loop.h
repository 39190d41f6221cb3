// The loop that the files of vector instructions share; a copy of its own for each, as kernels.h asks.
//
// A vector type V has: kElements and kBytes of memory, Value (what it computes in), load, store, stream (a store past
// the caches to aligned memory), add and max of (so far, next), and finish, which is applied before the store. Where V
// has kAhead, a pass over long arrays asks for its inputs so many bytes before it needs them. That is for types of
// which the processor computes so much that it cannot look ahead far enough itself: its prefetching ends with each
// page.
#pragma once

#include <xmmintrin.h>

#include "paraexpress/sums/kernels.h"
#include "paraexpress/sums/operators.h"

namespace clustar::paraexpress {
namespace {

struct Store {
  static constexpr bool kLong = false;
  template <class V>
  static void apply(std::byte* out, typename V::Value value) {
    V::store(out, V::finish(value));
  }
};
struct Stream {
  static constexpr bool kLong = true;
  template <class V>
  static void apply(std::byte* out, typename V::Value value) {
    V::stream(out, V::finish(value));
  }
};

// It may point behind the array: a prefetch of what is not there does nothing.
template <class V, class Put, std::size_t Bytes>
[[gnu::always_inline]] inline void look_ahead(const std::byte* from) {
  if constexpr (requires { V::kAhead; }) {
    if constexpr (Put::kLong) {
      for (std::size_t at = 0; at < Bytes; at += kLine) {
        _mm_prefetch(reinterpret_cast<const char*>(from) + V::kAhead + at, _MM_HINT_NTA);
      }
    }
  } else {
    static_cast<void>(from);
  }
}

// `Vectors` vectors of each input before anything is written, so `out` may be an input.
template <class V, class Op, class Put, std::size_t Vectors>
[[gnu::always_inline]] inline std::size_t steps(std::byte* out, const std::byte* const* inputs, std::size_t n,
                                                std::size_t at, std::size_t end) {
  for (; at + Vectors * V::kBytes <= end; at += Vectors * V::kBytes) {
    typename V::Value values[Vectors];
    look_ahead<V, Put, Vectors * V::kBytes>(inputs[0] + at);
    for (std::size_t v = 0; v < Vectors; ++v) values[v] = V::load(inputs[0] + at + v * V::kBytes);
    for (std::size_t input = 1; input < n; ++input) {
      look_ahead<V, Put, Vectors * V::kBytes>(inputs[input] + at);
      for (std::size_t v = 0; v < Vectors; ++v) {
        values[v] = Op::template apply<V>(values[v], V::load(inputs[input] + at + v * V::kBytes));
      }
    }
    for (std::size_t v = 0; v < Vectors; ++v) Put::template apply<V>(out + at + v * V::kBytes, values[v]);
  }
  return at;
}

template <class V, class Op, class Put>
std::size_t kernel(std::byte* out, const std::byte* const* inputs, std::size_t n, std::size_t begin, std::size_t end) {
  constexpr std::size_t kElement = V::kBytes / V::kElements;
  constexpr std::size_t kVectors = 4;
  std::size_t at = begin * kElement;
  const std::size_t stop = end * kElement;
  if (n == 2) {
    // A number that the compiler knows, and pointers that no store can change.
    const std::byte* const both[2] = {inputs[0], inputs[1]};
    at = steps<V, Op, Put, kVectors>(out, both, 2, at, stop);
    at = steps<V, Op, Put, 1>(out, both, 2, at, stop);
  } else {
    at = steps<V, Op, Put, kVectors>(out, inputs, n, at, stop);
    at = steps<V, Op, Put, 1>(out, inputs, n, at, stop);
  }
  return at / kElement;
}

}  // namespace
}  // namespace clustar::paraexpress
