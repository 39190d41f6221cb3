// Compiled with AVX2 and F16C.
#include <immintrin.h>

#include "paraexpress/sums/kernels.h"
#include "paraexpress/sums/vector_loop.h"

namespace clustar::paraexpress {
namespace {

__m256i load_bits(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
void store_bits(std::byte* to, __m256i value) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), value); }
void stream_bits(std::byte* to, __m256i value) { _mm256_stream_si256(reinterpret_cast<__m256i*>(to), value); }
__m256i choose(__m256i no, __m256i yes, __m256i where) { return _mm256_blendv_epi8(no, yes, where); }

template <std::size_t Elements>
struct Integers {
  using Value = __m256i;
  static constexpr std::size_t kBytes = 32, kElements = Elements;
  static Value load(const std::byte* from) { return load_bits(from); }
  static Value finish(Value value) { return value; }
  static void store(std::byte* to, Value value) { store_bits(to, value); }
  static void stream(std::byte* to, Value value) { stream_bits(to, value); }
};

struct Int8 : Integers<32> {
  static Value add(Value so_far, Value next) { return _mm256_add_epi8(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm256_max_epi8(so_far, next); }
};
struct Uint8 : Int8 {
  static Value max(Value so_far, Value next) { return _mm256_max_epu8(so_far, next); }
};
struct Int32 : Integers<8> {
  static Value add(Value so_far, Value next) { return _mm256_add_epi32(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm256_max_epi32(so_far, next); }
};
struct Uint32 : Int32 {
  static Value max(Value so_far, Value next) { return _mm256_max_epu32(so_far, next); }
};
struct Int64 : Integers<4> {
  static Value add(Value so_far, Value next) { return _mm256_add_epi64(so_far, next); }
  static Value max(Value so_far, Value next) { return choose(so_far, next, _mm256_cmpgt_epi64(next, so_far)); }
};
struct Uint64 : Int64 {
  static Value max(Value so_far, Value next) {
    // Compared as signed numbers, half the range lower.
    const Value half = _mm256_set1_epi64x(static_cast<long long>(1ull << 63));
    return choose(so_far, next, _mm256_cmpgt_epi64(_mm256_xor_si256(next, half), _mm256_xor_si256(so_far, half)));
  }
};

struct Float32 {
  using Value = __m256;
  static constexpr std::size_t kBytes = 32, kElements = 8;
  static Value load(const std::byte* from) { return _mm256_castsi256_ps(load_bits(from)); }
  static Value add(Value so_far, Value next) { return _mm256_add_ps(so_far, next); }
  // The second operand where the first is not greater: max_ps is this comparison.
  static Value max(Value so_far, Value next) { return _mm256_max_ps(next, so_far); }
  static Value finish(Value value) {
    const Value nan = _mm256_castsi256_ps(_mm256_set1_epi32(kNanFloat32));
    return _mm256_blendv_ps(value, nan, _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  static void store(std::byte* to, Value value) { store_bits(to, _mm256_castps_si256(value)); }
  static void stream(std::byte* to, Value value) { stream_bits(to, _mm256_castps_si256(value)); }
};

struct Float64 {
  using Value = __m256d;
  static constexpr std::size_t kBytes = 32, kElements = 4;
  static Value load(const std::byte* from) { return _mm256_castsi256_pd(load_bits(from)); }
  static Value add(Value so_far, Value next) { return _mm256_add_pd(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm256_max_pd(next, so_far); }
  static Value finish(Value value) {
    const Value nan = _mm256_castsi256_pd(_mm256_set1_epi64x(kNanFloat64));
    return _mm256_blendv_pd(value, nan, _mm256_cmp_pd(value, value, _CMP_UNORD_Q));
  }
  static void store(std::byte* to, Value value) { store_bits(to, _mm256_castpd_si256(value)); }
  static void stream(std::byte* to, Value value) { stream_bits(to, _mm256_castpd_si256(value)); }
};

// 16 elements of 16 bits, computed as two vectors of floats.
struct Pair {
  __m256 first, second;
};
struct Halves {
  using Value = Pair;
  static constexpr std::size_t kAhead = 4096;
  static constexpr std::size_t kBytes = 32, kElements = 16;
  static Value add(const Value& a, const Value& b) {
    return {_mm256_add_ps(a.first, b.first), _mm256_add_ps(a.second, b.second)};
  }
  static Value max(const Value& so_far, const Value& next) {
    return {_mm256_max_ps(next.first, so_far.first), _mm256_max_ps(next.second, so_far.second)};
  }
  static Value finish(const Value& value) { return value; }
};

struct Float16 : Halves {
  // From memory by halves: taking the upper half of a register costs more than the conversion.
  static __m256 widen(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  static Value load(const std::byte* from) { return {widen(from), widen(from + 16)}; }
  static __m256i narrow(const Value& value) {
    constexpr int kNearestEven = 0;
    const __m128i first = _mm256_cvtps_ph(value.first, kNearestEven);
    const __m128i second = _mm256_cvtps_ph(value.second, kNearestEven);
    const __m256i halves = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
    // A NaN is what is greater than infinity, without the sign.
    const __m256i magnitude = _mm256_and_si256(halves, _mm256_set1_epi16(0x7fff));
    return choose(halves, _mm256_set1_epi16(kNanFloat16), _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7c00)));
  }
  static void store(std::byte* to, const Value& value) { store_bits(to, narrow(value)); }
  static void stream(std::byte* to, const Value& value) { stream_bits(to, narrow(value)); }
};

// `first` holds the elements with even numbers, `second` the odd ones: no element changes its lane.
struct Bfloat16 : Halves {
  static Value load(const std::byte* from) {
    const __m256i elements = load_bits(from);
    const __m256i odd = _mm256_and_si256(elements, _mm256_set1_epi32(static_cast<int>(0xffff0000)));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(elements, 16)), _mm256_castsi256_ps(odd)};
  }
  static __m256i narrow(const Value& value) {
    const __m256i even = _mm256_castps_si256(value.first), odd = _mm256_castps_si256(value.second);
    const __m256i upper = _mm256_blend_epi16(_mm256_srli_epi32(even, 16), odd, 0xaa);
    const __m256i lower = _mm256_blend_epi16(even, _mm256_slli_epi32(odd, 16), 0xaa);
    // (lower + 0x7fff, + 1 if `upper` is odd) / 2: its highest bit is the carry into `upper`. The average adds 1
    // itself.
    const __m256i half = _mm256_add_epi16(_mm256_and_si256(upper, _mm256_set1_epi16(1)), _mm256_set1_epi16(0x7ffe));
    const __m256i minus_carry = _mm256_srai_epi16(_mm256_avg_epu16(lower, half), 15);
    // A NaN is what is greater than infinity, without the sign: one that was computed is quiet, so `upper` shows it.
    const __m256i magnitude = _mm256_and_si256(upper, _mm256_set1_epi16(0x7fff));
    const __m256i nan = _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(0x7f80));
    return choose(_mm256_sub_epi16(upper, minus_carry), _mm256_set1_epi16(kNanBfloat16), nan);
  }
  static void store(std::byte* to, const Value& value) { store_bits(to, narrow(value)); }
  static void stream(std::byte* to, const Value& value) { stream_bits(to, narrow(value)); }
};

template <class Op, class Put>
constexpr KernelRow row() {
  return {kernel<Int8, Op, Put>,    kernel<Uint8, Op, Put>,   kernel<Int32, Op, Put>,   kernel<Uint32, Op, Put>,
          kernel<Int64, Op, Put>,   kernel<Uint64, Op, Put>,  kernel<Float16, Op, Put>, kernel<Float32, Op, Put>,
          kernel<Float64, Op, Put>, kernel<Bfloat16, Op, Put>};
}

}  // namespace

constinit const Kernels kAvx2Kernels = {row<Add, Store>(), row<Max, Store>(), row<Add, Stream>(), row<Max, Stream>()};

}  // namespace clustar::paraexpress
