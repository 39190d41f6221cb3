#include "bench/trainer/compute/layer_clock.h"

#include <algorithm>

#include "bench/report/report.h"

namespace clustar::bench::trainer {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LayerClock::LayerClock(const Model& model) : model_(model), nodes_(model.graph.nodes().size()) {}

void LayerClock::add(std::size_t node, graph::Pass pass, double seconds) {
  const auto p = static_cast<std::size_t>(pass);
  Passes& passes = nodes_[node];
  if (passes.seen[p]++ > 0 && passes.kept[p].size() < kMostKept) passes.kept[p].push_back(seconds);
}

LayerTimes LayerClock::times(std::size_t batch) const {
  LayerTimes times;
  times.model = model_.name;
  times.batch = batch;
  times.device = report::processor();
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    const auto of = [&](graph::Pass pass) { return median(nodes_[n].kept[static_cast<std::size_t>(pass)]); };
    times.layers.push_back({model_.graph.nodes()[n].name, of(graph::Pass::kForward),
                            of(graph::Pass::kParameterGradients), of(graph::Pass::kInputGradients)});
  }
  return times;
}

}  // namespace clustar::bench::trainer
