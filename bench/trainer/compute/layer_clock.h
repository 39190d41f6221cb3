// How long each layer of a network takes, typically: what a replay is made from.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

// Medians, so that a step that the machine held up says nothing; of at most kMostKept steps, without the first, which
// loads libraries.
class LayerClock {
 public:
  static constexpr std::size_t kMostKept = 200;

  explicit LayerClock(const Model& model);
  void add(std::size_t node, graph::Pass pass, double seconds);
  // Zeros where no second step was. `batch`: examples of one step on this rank.
  LayerTimes times(std::size_t batch) const;

 private:
  struct Passes {
    std::size_t seen[graph::kPasses] = {};
    std::vector<double> kept[graph::kPasses];
  };
  const Model& model_;
  std::vector<Passes> nodes_;
};

}  // namespace clustar::bench::trainer
