// What it costs a message to be counted, and an exporter to read all counters.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "transport/message/traffic_book.h"

namespace clustar::bench::micro {
namespace {

using transport::DeviceCounters;
using transport::TrafficBook;

void traffic_count(benchmark::State& state) {
  TrafficBook book;
  auto account = book.open(160, "10.0.0.1", 3);
  for (auto _ : state) {
    account->sent(4096);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(traffic_count)->Name("traffic/count");

void traffic_read(benchmark::State& state) {
  TrafficBook book;
  std::vector<TrafficBook::Entry> open;
  for (int i = 0; i < state.range(0); ++i) open.push_back(book.open(i % 4, "10.0.0." + std::to_string(i % 64), i));
  for (auto _ : state) {
    DeviceCounters counters;
    book.fill(counters);
    benchmark::DoNotOptimize(counters);
  }
}
BENCHMARK(traffic_read)->Name("traffic/read")->ArgName("channels")->Arg(8)->Arg(512);

}  // namespace
}  // namespace clustar::bench::micro
