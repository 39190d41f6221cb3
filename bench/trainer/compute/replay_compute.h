// Takes the time of a step somewhere else, layer by layer, and hands out gradients of the real size.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/compute.h"
#include "bench/trainer/compute/layer_times.h"
#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

// How a replay sees time: tests have one of their own.
struct ReplayClock {
  using Instant = std::chrono::steady_clock::time_point;
  std::function<Instant()> now = [] { return std::chrono::steady_clock::now(); };
  std::function<void(Instant)> sleep_until;  // empty: the calling thread sleeps
};

// A layer's end is due so long after the one before it, whatever the host did meanwhile: a GPU, too, computes on while
// the host starts collectives. What `needs` waits for moves all that is due later.
class ReplayCompute final : public Compute {
 public:
  // The tensors of `plan` are those of `model`, as large as it says.
  ReplayCompute(const Model& model, const BucketPlan& plan, LayerTimes times, double time_scale, std::uint64_t seed,
                ReplayClock clock = {});

  bool learns() const override { return false; }
  void set_tensor_offsets(std::span<const std::size_t> offsets) override {
    offsets_.assign(offsets.begin(), offsets.end());
  }
  void initialise(std::span<float> parameters) const override;
  void forward(const float* parameters, std::span<const float> x, std::size_t examples, const Needs& needs) override;
  LossSum backward(const float* parameters, std::span<const std::uint16_t> labels, float scale, float* gradients,
                   const Ready& ready) override;
  void stand_still(double seconds) override;
  LossSum evaluate(const float*, std::span<const float>, std::span<const std::uint16_t>, std::size_t) override {
    return {};
  }
  std::size_t largest_evaluation() const override { return 1; }
  std::vector<float> state() const override { return {}; }
  void set_state(std::span<const float>) override {}
  std::uint64_t passes() const override { return 0; }
  void set_passes(std::uint64_t) override {}

 private:
  struct Layer {
    std::size_t first_tensor = 0;
    std::size_t tensors = 0;
  };
  void pass_time(double seconds);
  void fill(std::size_t tensor, float* gradients);

  LayerTimes times_;
  double scale_;
  std::vector<Layer> layers_;
  std::vector<std::size_t> offsets_, sizes_;  // of tensors
  std::vector<float> values_;                 // that gradients are filled with, again and again
  ReplayClock clock_;
  ReplayClock::Instant due_;
  double examples_ = 0;  // of the latest forward(), by those of times_
};

// As large as the plan of the whole model, but for a byte_scale-th of each tensor and of the buckets' limits, so that
// there are as many buckets.
BucketPlan scaled_plan(const Model& model, std::size_t first_bytes, std::size_t bytes, double byte_scale);

}  // namespace clustar::bench::trainer
