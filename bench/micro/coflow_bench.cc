// Decisions of coflow schedulers on 150 ports (300 with both directions), one core.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "bench/coflow/generator.h"
#include "coflow/core/bssi_order.h"
#include "coflow/registry.h"

namespace clustar::bench::micro {
namespace {

using clustar::coflow::BssiItem;
using clustar::coflow::BssiOrder;
using clustar::coflow::CoflowId;
using clustar::coflow::Table;

constexpr std::size_t kPorts = 150;

// Generated coflows of the Facebook trace's mix, all there at once.
struct Waiting {
  explicit Waiting(std::size_t count) : table(kPorts, 125e6) {
    const auto trace = coflow::generate({.ports = kPorts, .coflows = count, .load = 0, .seed = 1}, 125e6);
    for (const auto& spec : trace.coflows) ids.push_back(table.add(spec, TimePoint{}).value());
  }
  Table table;
  std::vector<CoflowId> ids;
};

// The order alone, from the loads of all ports.
void bssi_order(benchmark::State& state) {
  const Waiting waiting(static_cast<std::size_t>(state.range(0)));
  std::vector<std::vector<BssiItem::Load>> loads;
  for (const CoflowId id : waiting.ids) {
    auto& one = loads.emplace_back();
    for (const auto& sender : waiting.table.coflow(id).senders) one.push_back({sender.port, sender.left});
    for (const auto& receiver : waiting.table.coflow(id).receivers) {
      one.push_back({static_cast<std::uint32_t>(kPorts) + receiver.port, receiver.left});
    }
  }
  std::vector<BssiItem> items;
  for (const auto& one : loads) items.push_back({one, 1});
  BssiOrder order(2 * kPorts);
  for (auto _ : state) benchmark::DoNotOptimize(order(items));
}
BENCHMARK(bssi_order)->Name("coflow/bssi_order")->ArgName("coflows")->Arg(100)->Arg(1000)->Arg(10000);

// Where each of so many coflows comes in the order of effective bottlenecks.
void sebf_order(benchmark::State& state) {
  const Waiting waiting(static_cast<std::size_t>(state.range(0)));
  std::vector<std::pair<double, CoflowId>> order;
  for (auto _ : state) {
    order.clear();
    for (const CoflowId id : waiting.ids) order.emplace_back(waiting.table.bottleneck(id), id);
    std::sort(order.begin(), order.end());
    benchmark::DoNotOptimize(order.data());
  }
}
BENCHMARK(sebf_order)->Name("coflow/sebf_order")->ArgName("coflows")->Arg(1000)->Arg(10000);

// All rates of all flows again, after so many coflows have come.
void allocate(benchmark::State& state, const char* policy) {
  const Waiting waiting(static_cast<std::size_t>(state.range(0)));
  const auto scheduler = clustar::coflow::find_policy(policy)->make(waiting.table);
  for (const CoflowId id : waiting.ids) scheduler->arrived(id, TimePoint{});
  for (auto _ : state) benchmark::DoNotOptimize(scheduler->allocate(TimePoint{}));
  state.counters["flows"] = static_cast<double>(waiting.table.flows());
}
BENCHMARK_CAPTURE(allocate, sebf, "sebf")->Name("coflow/allocate/sebf")->ArgName("coflows")->Arg(100)->Arg(1000);
BENCHMARK_CAPTURE(allocate, bssi, "bssi")->Name("coflow/allocate/bssi")->ArgName("coflows")->Arg(100)->Arg(1000);
BENCHMARK_CAPTURE(allocate, maxmin, "maxmin")->Name("coflow/allocate/maxmin")->ArgName("coflows")->Arg(100)->Arg(1000);

// What ours does when a flow has ended. Each iteration uses one up.
void match_flow_end(benchmark::State& state) {
  Waiting waiting(static_cast<std::size_t>(state.range(0)));
  const auto scheduler = clustar::coflow::find_policy("match")->make(waiting.table);
  for (const CoflowId id : waiting.ids) scheduler->arrived(id, TimePoint{});
  std::vector<clustar::coflow::FlowId> served;
  for (const auto& change : scheduler->allocate(TimePoint{}).changes) served.push_back(change.flow);
  std::size_t next = 0;
  for (auto _ : state) {
    if (next == served.size()) {
      state.SkipWithError("all flows that were served have ended; fewer iterations");
      break;
    }
    const auto flow = served[next++];
    if (waiting.table.flow(flow).left <= 0) continue;
    waiting.table.finish(flow);
    scheduler->flow_ended(flow, TimePoint{});
    for (const auto& change : scheduler->allocate(TimePoint{}).changes) {
      if (change.rate > 0) served.push_back(change.flow);
    }
  }
}
BENCHMARK(match_flow_end)->Name("coflow/match_flow_end")->ArgName("coflows")->Arg(100)->Arg(1000)->Iterations(1000);

}  // namespace
}  // namespace clustar::bench::micro
