// Sums of arrays beside what the memory allows, on the same memory in the same run.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>

#include "paraexpress/sums/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace clustar::bench::micro {
namespace {

using paraexpress::DataType;
using paraexpress::InstructionSet;

constexpr std::size_t kMostInputs = 4, kMostBytes = std::size_t{64} << 20;
constexpr std::size_t kLine = 64, kPage = 4096;

// The result and the inputs of every benchmark here, so that all meet the same pages.
class Arrays {
 public:
  Arrays() : memory_(new (std::align_val_t{kPage}) std::byte[kSize]) { std::memset(memory_.get(), 0, kSize); }

  // At places that share no set of a cache and no bank of the memory, as those of separate allocations would.
  std::byte* at(std::size_t i) { return memory_.get() + i * kApart; }

 private:
  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kPage}); }
  };
  static constexpr std::size_t kApart = kMostBytes + 6 * kPage + kLine, kSize = (kMostInputs + 1) * kApart;
  std::unique_ptr<std::byte[], Delete> memory_;
};

Arrays& arrays() {
  static Arrays all;
  return all;
}

// All that is read and written; what a store may fetch before is not counted, as in STREAM.
void count_bytes(benchmark::State& state, std::size_t inputs, std::size_t bytes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>((inputs + 1) * bytes));
}

void sum(benchmark::State& state, DataType type, InstructionSet set, bool in_place) {
  const auto inputs = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  std::array<const void*, kMostInputs> from{};
  for (std::size_t i = 0; i < inputs; ++i) from[i] = arrays().at(in_place ? i : i + 1);
  const std::size_t count = bytes / paraexpress::element_bytes(type);
  for (auto _ : state) {
    paraexpress::reduce_into(arrays().at(0), std::span(from).first(inputs), count, type, paraexpress::Reduction::kSum,
                             set);
    benchmark::ClobberMemory();
  }
  count_bytes(state, inputs, bytes);
}

#if defined(__x86_64__)
#if defined(__clang__)
#define CLUSTAR_UNROLL _Pragma("unroll")
#else
#define CLUSTAR_UNROLL _Pragma("GCC unroll 4")
#endif

// STREAM's add, a[i] = b[i] + c[i] of doubles, by 32 bytes and of so many inputs.
template <std::size_t Inputs, bool Streaming>
__attribute__((target("avx2"))) void add_doubles(std::size_t bytes) {
  auto* const out = reinterpret_cast<double*>(arrays().at(0));
  const double* in[Inputs];
  for (std::size_t i = 0; i < Inputs; ++i) in[i] = reinterpret_cast<const double*>(arrays().at(i + 1));
  constexpr std::size_t kAtOnce = 16, kVector = 4;
  for (std::size_t at = 0; at < bytes / sizeof(double); at += kAtOnce) {
    CLUSTAR_UNROLL
    for (std::size_t i = at; i < at + kAtOnce; i += kVector) {
      __m256d sum = _mm256_load_pd(in[0] + i);
      CLUSTAR_UNROLL
      for (std::size_t input = 1; input < Inputs; ++input) sum = _mm256_add_pd(sum, _mm256_load_pd(in[input] + i));
      if constexpr (Streaming) {
        _mm256_stream_pd(out + i, sum);
      } else {
        _mm256_store_pd(out + i, sum);
      }
    }
  }
  _mm_sfence();
}

template <bool Streaming>
void memory_speed(benchmark::State& state) {
  if (!__builtin_cpu_supports("avx2")) {
    state.SkipWithError("this CPU has no AVX2");
    return;
  }
  const auto inputs = static_cast<std::size_t>(state.range(0)), bytes = static_cast<std::size_t>(state.range(1));
  for (auto _ : state) {
    if (inputs == 2) {
      add_doubles<2, Streaming>(bytes);
    } else {
      add_doubles<4, Streaming>(bytes);
    }
    benchmark::ClobberMemory();
  }
  count_bytes(state, inputs, bytes);
}
#endif

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"inputs", "bytes"})->ArgsProduct({{2, kMostInputs}, {64 << 10, kMostBytes}});
}

bool register_all() {
#if defined(__x86_64__)
  sizes(benchmark::RegisterBenchmark("sums/limit/stores", memory_speed<false>));
  sizes(benchmark::RegisterBenchmark("sums/limit/streaming_stores", memory_speed<true>));
#endif
  for (const InstructionSet set : {InstructionSet::kPortable, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (!paraexpress::supported(set)) continue;
    const std::string prefix = std::string("sums/") + name_of(set) + "/";
    for (std::size_t t = 0; t < paraexpress::kDataTypes; ++t) {
      const auto type = static_cast<DataType>(t);
      sizes(benchmark::RegisterBenchmark((prefix + name_of(type)).c_str(), sum, type, set, false));
    }
    sizes(benchmark::RegisterBenchmark((prefix + "float32/in_place").c_str(), sum, DataType::kFloat32, set, true));
  }
  return true;
}
[[maybe_unused]] const bool kRegistered = register_all();

}  // namespace
}  // namespace clustar::bench::micro
