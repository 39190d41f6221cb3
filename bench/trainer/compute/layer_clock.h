// How long each layer of a network takes, typically: what a replay is made from.
#pragma once

#include <cstddef>
#include <vector>

#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/model.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

// Medians, so that a step that the machine held up says nothing; of at most kMostKept steps, without the first, which
// loads libraries.
class LayerClock {
 public:
  static constexpr std::size_t kMostKept = 200;

  explicit LayerClock(const Model& model);
  // Of a pass over so many examples the times follow.
  void begin(std::size_t examples);
  void add(std::size_t node, graph::Pass pass, double seconds);
  // Of as many examples as the passes had, typically, too. kInvalidArgument: there was one pass only.
  Result<LayerTimes> times() const;

 private:
  struct Passes {
    std::size_t seen[graph::kPasses] = {};
    std::vector<double> kept[graph::kPasses];
  };
  const Model& model_;
  std::size_t passes_ = 0;
  std::vector<std::size_t> examples_;  // of the passes that are kept
  std::vector<Passes> nodes_;
};

}  // namespace clustar::bench::trainer
