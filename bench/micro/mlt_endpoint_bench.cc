// The whole core of MLT: what a data packet costs its sender and its receiver together, without payload and sockets.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "bench/micro/mlt_pair.h"

namespace clustar::bench::micro {
namespace {

constexpr std::uint32_t kCollectiveBytes = 64 << 20;

// Warm, and kept for the process: Google Benchmark calls a benchmark many times, and hundreds of connections take
// longer to warm up than to measure.
MltPair* warm_pair(const std::vector<std::int64_t>& key, const PairOptions& options) {
  static std::map<std::vector<std::int64_t>, std::unique_ptr<MltPair>> pairs;
  std::unique_ptr<MltPair>& pair = pairs[key];
  if (pair == nullptr) {
    pair = std::make_unique<MltPair>(options);
    if (!pair->run_messages(std::uint64_t{2} * options.ahead * options.connections)) pair.reset();
  }
  return pair.get();
}

mlt::SendTerms tolerant_terms() {
  mlt::SendTerms terms;
  terms.tolerant = true;
  terms.communicator = 1;
  terms.ranks = terms.edges = 4;
  terms.collective_bytes = kCollectiveBytes;
  terms.tolerance_ppm = 10'000;
  return terms;
}

// An iteration is a data packet that arrived; control packets and, with loss, what was sent again are in its time.
void data_packet(benchmark::State& state, bool tolerant) {
  PairOptions options;
  options.message_bytes = static_cast<std::uint32_t>(state.range(0));
  options.core.segment = static_cast<std::uint16_t>(state.range(1));
  options.core.paths = static_cast<std::uint8_t>(state.range(2));
  options.connections = static_cast<std::uint32_t>(state.range(3));
  options.lose_every = state.range(4) == 0 ? 0 : static_cast<std::uint32_t>(100 / state.range(4));
  if (options.connections > 1) options.ahead = 1;
  if (tolerant) {
    options.terms = tolerant_terms();
    options.collective_bytes = kCollectiveBytes;
  }
  std::vector<std::int64_t> key{tolerant ? 1 : 0};
  for (std::size_t i = 0; i < 5; ++i) key.push_back(state.range(i));
  MltPair* pair = warm_pair(key, options);
  if (pair == nullptr) {
    state.SkipWithError("the endpoints came to a standstill");
    return;
  }
  const MltPair::Counters before = pair->counters();
  // A round moves up to a burst, so most iterations find their packet counted already.
  std::uint64_t wanted = before.packets;
  for (auto _ : state) {
    if (++wanted <= pair->counters().packets) continue;
    if (!pair->run_packets(1)) {
      state.SkipWithError("the endpoints came to a standstill");
      break;
    }
  }
  const MltPair::Counters& after = pair->counters();
  const double packets = static_cast<double>(after.packets - before.packets);
  state.SetItemsProcessed(state.iterations());
  state.counters["packets"] = packets;
  // Probes in one counter with the others: none at all in all repetitions has no relative deviation, and NaN is no
  // JSON.
  const std::uint64_t control = after.control + after.probes - before.control - before.probes;
  state.counters["control_each"] = static_cast<double>(control) / packets;
}

void all_cases(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "segment", "paths", "connections", "loss%"});
  benchmark->ArgsProduct({{64 << 10, 1 << 20}, {1408, 8900}, {1, 8}, {1, 256}, {0, 1}});
}
BENCHMARK_CAPTURE(data_packet, reliable, false)->Name("mlt/endpoint/reliable")->Apply(all_cases);
BENCHMARK_CAPTURE(data_packet, tolerant, true)
    ->Name("mlt/endpoint/tolerant")
    ->ArgNames({"bytes", "segment", "paths", "connections", "loss%"})
    ->ArgsProduct({{1 << 20}, {1408, 8900}, {8}, {1, 256}, {0, 1}});

}  // namespace
}  // namespace clustar::bench::micro
