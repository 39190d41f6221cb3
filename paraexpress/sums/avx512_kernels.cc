// Compiled with AVX-512 F and BW. Not with its BF16 conversions, which take denormals for 0.
#include <immintrin.h>

#include "paraexpress/sums/kernels.h"
#include "paraexpress/sums/vector_loop.h"

namespace clustar::paraexpress {
namespace {

__m512i load_bits(const std::byte* from) { return _mm512_loadu_si512(from); }
void store_bits(std::byte* to, __m512i value) { _mm512_storeu_si512(to, value); }
void stream_bits(std::byte* to, __m512i value) { _mm512_stream_si512(reinterpret_cast<__m512i*>(to), value); }

template <std::size_t Elements>
struct Integers {
  using Value = __m512i;
  static constexpr std::size_t kBytes = 64, kElements = Elements;
  static Value load(const std::byte* from) { return load_bits(from); }
  static Value finish(Value value) { return value; }
  static void store(std::byte* to, Value value) { store_bits(to, value); }
  static void stream(std::byte* to, Value value) { stream_bits(to, value); }
};

struct Int8 : Integers<64> {
  static Value add(Value so_far, Value next) { return _mm512_add_epi8(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm512_max_epi8(so_far, next); }
};
struct Uint8 : Int8 {
  static Value max(Value so_far, Value next) { return _mm512_max_epu8(so_far, next); }
};
struct Int32 : Integers<16> {
  static Value add(Value so_far, Value next) { return _mm512_add_epi32(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm512_max_epi32(so_far, next); }
};
struct Uint32 : Int32 {
  static Value max(Value so_far, Value next) { return _mm512_max_epu32(so_far, next); }
};
struct Int64 : Integers<8> {
  static Value add(Value so_far, Value next) { return _mm512_add_epi64(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm512_max_epi64(so_far, next); }
};
struct Uint64 : Int64 {
  static Value max(Value so_far, Value next) { return _mm512_max_epu64(so_far, next); }
};

struct Float32 {
  using Value = __m512;
  static constexpr std::size_t kBytes = 64, kElements = 16;
  static Value load(const std::byte* from) { return _mm512_loadu_ps(from); }
  static Value add(Value so_far, Value next) { return _mm512_add_ps(so_far, next); }
  // The second operand where the first is not greater: max_ps is this comparison.
  static Value max(Value so_far, Value next) { return _mm512_max_ps(next, so_far); }
  static Value finish(Value value) {
    const Value nan = _mm512_castsi512_ps(_mm512_set1_epi32(kNanFloat32));
    return _mm512_mask_mov_ps(value, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q), nan);
  }
  static void store(std::byte* to, Value value) { _mm512_storeu_ps(to, value); }
  static void stream(std::byte* to, Value value) { stream_bits(to, _mm512_castps_si512(value)); }
};

struct Float64 {
  using Value = __m512d;
  static constexpr std::size_t kBytes = 64, kElements = 8;
  static Value load(const std::byte* from) { return _mm512_loadu_pd(from); }
  static Value add(Value so_far, Value next) { return _mm512_add_pd(so_far, next); }
  static Value max(Value so_far, Value next) { return _mm512_max_pd(next, so_far); }
  static Value finish(Value value) {
    const Value nan = _mm512_castsi512_pd(_mm512_set1_epi64(kNanFloat64));
    return _mm512_mask_mov_pd(value, _mm512_cmp_pd_mask(value, value, _CMP_UNORD_Q), nan);
  }
  static void store(std::byte* to, Value value) { _mm512_storeu_pd(to, value); }
  static void stream(std::byte* to, Value value) { stream_bits(to, _mm512_castpd_si512(value)); }
};

// 32 elements of 16 bits, computed as two vectors of floats.
struct Pair {
  __m512 first, second;
};
struct Halves {
  using Value = Pair;
  static constexpr std::size_t kAhead = 4096;
  static constexpr std::size_t kBytes = 64, kElements = 32;
  static Value add(const Value& a, const Value& b) {
    return {_mm512_add_ps(a.first, b.first), _mm512_add_ps(a.second, b.second)};
  }
  static Value max(const Value& so_far, const Value& next) {
    return {_mm512_max_ps(next.first, so_far.first), _mm512_max_ps(next.second, so_far.second)};
  }
  static Value finish(const Value& value) { return value; }
};

struct Float16 : Halves {
  // From memory by halves: taking the upper half of a register costs more.
  static __m512 widen(const std::byte* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  static Value load(const std::byte* from) { return {widen(from), widen(from + 32)}; }
  static __m512i narrow(const Value& value) {
    constexpr int kNearestEven = 0;
    const __m256i first = _mm512_cvtps_ph(value.first, kNearestEven);
    const __m256i second = _mm512_cvtps_ph(value.second, kNearestEven);
    const __m512i halves = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    // A NaN is what is greater than infinity, without the sign.
    const __m512i magnitude = _mm512_and_si512(halves, _mm512_set1_epi16(0x7fff));
    const __mmask32 nan = _mm512_cmpgt_epi16_mask(magnitude, _mm512_set1_epi16(0x7c00));
    return _mm512_mask_mov_epi16(halves, nan, _mm512_set1_epi16(kNanFloat16));
  }
  static void store(std::byte* to, const Value& value) { store_bits(to, narrow(value)); }
  static void stream(std::byte* to, const Value& value) { stream_bits(to, narrow(value)); }
};

// `first` holds the elements with even numbers, `second` the odd ones: no element changes its lane.
struct Bfloat16 : Halves {
  static Value load(const std::byte* from) {
    const __m512i elements = load_bits(from);
    const __m512i odd = _mm512_and_si512(elements, _mm512_set1_epi32(static_cast<int>(0xffff0000)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(elements, 16)), _mm512_castsi512_ps(odd)};
  }
  // The upper half of each word is the rounded number.
  static __m512i rounded(__m512 value) {
    const __m512i word = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(word, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_epi32(sum, nan, _mm512_set1_epi32(kNanBfloat16 << 16));
  }
  static __m512i narrow(const Value& value) {
    const __m512i even = _mm512_srli_epi32(rounded(value.first), 16);
    return _mm512_mask_mov_epi16(even, 0xaaaaaaaa, rounded(value.second));
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

constinit const Kernels kAvx512Kernels = {row<Add, Store>(), row<Max, Store>(), row<Add, Stream>(), row<Max, Stream>()};

}  // namespace clustar::paraexpress
