#include "bench/trainer/compute/layer_clock.h"

#include <algorithm>

#include "bench/report/report.h"

namespace clustar::bench::trainer {
namespace {

template <class Number>
Number median(std::vector<Number> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

LayerClock::LayerClock(const Model& model) : model_(model), nodes_(model.graph.nodes().size()) {}

void LayerClock::begin(std::size_t examples) {
  if (passes_++ > 0 && examples_.size() < kMostKept) examples_.push_back(examples);
}

void LayerClock::add(std::size_t node, graph::Pass pass, double seconds) {
  const auto p = static_cast<std::size_t>(pass);
  Passes& passes = nodes_[node];
  if (passes.seen[p]++ > 0 && passes.kept[p].size() < kMostKept) passes.kept[p].push_back(seconds);
}

Result<LayerTimes> LayerClock::times() const {
  if (examples_.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "there was one step only, whose times are those of loading libraries, too; at least two are needed");
  }
  LayerTimes times;
  times.model = model_.name;
  times.batch = median(examples_);
  times.device = report::processor();
  for (std::size_t n = 1; n < nodes_.size(); ++n) {
    const auto of = [&](graph::Pass pass) { return median(nodes_[n].kept[static_cast<std::size_t>(pass)]); };
    times.layers.push_back({model_.graph.nodes()[n].name, of(graph::Pass::kForward),
                            of(graph::Pass::kParameterGradients), of(graph::Pass::kInputGradients)});
  }
  return times;
}

}  // namespace clustar::bench::trainer
