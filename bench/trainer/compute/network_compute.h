// Trains for real: a model's graph, by some mathematics whose memory the caller's parameters and gradients are in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/compute.h"
#include "bench/trainer/compute/layer_clock.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/graph/network.h"
#include "bench/trainer/model.h"
#include "bench/trainer/precision/precision.h"

namespace clustar::bench::trainer {

class NetworkCompute final : public Compute {
 public:
  struct Options {
    std::uint64_t seed = 1;      // of the first parameters and of dropout
    int rank = 0;                // each drops others
    std::size_t most_share = 1;  // examples of one forward()
    Precision precision = Precision::kFloat32;
    LayerClock* clock = nullptr;  // hears how long each layer took; null: nobody
  };
  // `model`, `math` and what `options` point to outlive it; `plan` does not need to.
  NetworkCompute(const Model& model, const BucketPlan& plan, graph::DeviceMath& math, const Options& options);

  bool learns() const override { return true; }
  void set_tensor_offsets(std::span<const std::size_t> offsets) override { network_.set_tensor_offsets(offsets); }
  void initialise(std::span<float> parameters) const override { network_.initialise(parameters, options_.seed); }
  void forward(const float* parameters, std::span<const float> x, std::size_t examples, const Needs& needs) override;
  LossSum backward(const float* parameters, std::span<const std::uint16_t> labels, float scale, float* gradients,
                   const Ready& ready) override;
  void stand_still(double) override {}
  LossSum evaluate(const float* parameters, std::span<const float> x, std::span<const std::uint16_t> labels,
                   std::size_t examples) override;
  std::size_t largest_evaluation() const override { return most_evaluated_; }
  std::vector<float> state() const override { return network_.state(); }
  void set_state(std::span<const float> state) override { network_.set_state(state); }
  std::uint64_t passes() const override { return network_.passes(); }
  void set_passes(std::uint64_t passes) override { network_.set_passes(passes); }

 private:
  Options options_;
  std::size_t classes_;
  std::size_t most_evaluated_;
  graph::Network network_;
  std::span<const float> outputs_;  // of the latest forward()
  std::vector<float> output_gradient_;
};

}  // namespace clustar::bench::trainer
