// The update where parameters and their gradients' sums are on a GPU.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/on_device.h"
#include "bench/trainer/parallel/optimizer.h"
#include "bench/trainer/reducer.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer::parallel {

// Buckets are sums, as with WholeOptimizer. float32 only.
class DeviceOptimizer final : public Optimizer {
 public:
  // All outlive it; `parameters` are the host's, in the layout of the reducer's plan, of which the device takes the
  // first ones.
  DeviceOptimizer(GradientReducer& reducer, OnDevice& device, std::span<float> parameters, const SgdOptions& options);

  void bring(std::size_t bucket) override;
  Result<StepCommunication> finish() override;
  void fetch() override { device_.copy_parameters(parameters_); }
  Result<std::vector<float>> momentum() override;
  void set_momentum(std::vector<float> flat, const BucketPlan&) override { device_.set(parameters_, flat); }
  std::size_t momentum_bytes() const override { return reducer_.plan().parameters() * sizeof(float); }

 private:
  GradientReducer& reducer_;
  OnDevice& device_;
  std::span<float> parameters_;
  SgdOptions options_;
};

}  // namespace clustar::bench::trainer::parallel
