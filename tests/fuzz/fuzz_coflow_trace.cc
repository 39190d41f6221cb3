// The parser of coflow-benchmark's format: any text is a trace whose flows are within its ports, or an error that names
// the file.
#include <cmath>
#include <cstdint>
#include <string_view>

#include "bench/coflow/benchmark_format.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using clustar::fuzz::require;
  constexpr std::size_t kMost = 4096;  // a line of n mappers and n reducers has n^2 flows
  if (size > kMost) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const bool whole_mb : {false, true}) {
    const auto trace = clustar::bench::coflow::parse_benchmark(text, "fuzz", {.whole_mb = whole_mb});
    if (!trace) {
      require(trace.error().message.starts_with("fuzz"));
      continue;
    }
    for (const auto& coflow : trace->coflows) {
      for (const auto& flow : coflow.flows) {
        require(flow.src < trace->ports && flow.dst < trace->ports);
        require(std::isfinite(flow.bytes) && flow.bytes >= 0);
      }
    }
  }
  return 0;
}
