// What the machine itself allows: the figures beside which a transport's own are read.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace clustar::bench::micro {
namespace {

// Copies blocks of `bytes` one behind the other through `span` bytes of source and destination.
void copy(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(state.range(0)), span = static_cast<std::size_t>(state.range(1));
  std::vector<std::byte> from(span, std::byte{1}), to(span, std::byte{2});
  std::size_t at = 0;
  for (auto _ : state) {
    std::memcpy(to.data() + at, from.data() + at, bytes);
    benchmark::ClobberMemory();
    at = at + 2 * bytes <= span ? at + bytes : 0;
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(copy)
    ->Name("limit/memcpy")
    ->ArgNames({"bytes", "span"})
    ->Args({4096, 4096})
    ->Args({4096, 64 << 20})
    ->Args({1 << 20, 1 << 20})
    ->Args({1 << 20, 64 << 20});

// RFC 1071, as a loop that a compiler may vectorise: what a user-space checksum costs at least.
void internet_checksum(benchmark::State& state) {
  const auto words = static_cast<std::size_t>(state.range(0)) / sizeof(std::uint32_t);
  std::vector<std::uint32_t> data(words, 0x01020304);
  for (auto _ : state) {
    benchmark::DoNotOptimize(data.data());
    std::uint64_t sum = 0;
    for (const std::uint32_t word : data) sum += word;
    while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
    benchmark::DoNotOptimize(sum);
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(internet_checksum)->Name("limit/internet_checksum")->ArgName("bytes")->Arg(1448)->Arg(8948)->Arg(1 << 20);

#if defined(__x86_64__)
// CRC32C by the CPU's instruction, one stream: its latency of 3 cycles for 8 bytes is the limit.
__attribute__((target("sse4.2"))) std::uint64_t crc32c(const std::vector<std::uint64_t>& data) {
  std::uint64_t crc = 0xffffffff;
  for (const std::uint64_t word : data) crc = __builtin_ia32_crc32di(crc, word);
  return crc;
}

void crc32c_instruction(benchmark::State& state) {
  if (!__builtin_cpu_supports("sse4.2")) {
    state.SkipWithError("this CPU has no CRC32C instruction");
    return;
  }
  std::vector<std::uint64_t> data(static_cast<std::size_t>(state.range(0)) / sizeof(std::uint64_t), 0x0102030405060708);
  for (auto _ : state) {
    benchmark::DoNotOptimize(data.data());
    benchmark::DoNotOptimize(crc32c(data));
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(data.size() * sizeof(std::uint64_t)));
}
BENCHMARK(crc32c_instruction)->Name("limit/crc32c")->ArgName("bytes")->Arg(1448)->Arg(8944)->Arg(1 << 20);
#endif

// Gradients summed into a buffer: what a reduction step does with every byte that arrives.
void sum_floats(benchmark::State& state) {
  const auto floats = static_cast<std::size_t>(state.range(0)) / sizeof(float);
  std::vector<float> from(floats, 1.0f), to(floats, 2.0f);
  for (auto _ : state) {
    benchmark::DoNotOptimize(from.data());
    for (std::size_t i = 0; i < floats; ++i) to[i] += from[i];
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(sum_floats)->Name("limit/sum_fp32")->ArgName("bytes")->Arg(64 << 10)->Arg(16 << 20);

}  // namespace
}  // namespace clustar::bench::micro
