// Trains on a device with memory of its own: the trainer's parameters go there before each layer that reads them, and
// each gradient comes back when it is final. So collectives, codecs and the update are those of the processor, all of
// them; a bucket's way through host memory is what it costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/compute.h"
#include "bench/trainer/compute/network_compute.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

class DeviceCompute final : public Compute {
 public:
  // As NetworkCompute.
  DeviceCompute(const Model& model, const BucketPlan& plan, graph::DeviceMath& math,
                const NetworkCompute::Options& options);

  bool learns() const override { return true; }
  void set_tensor_offsets(std::span<const std::size_t> offsets) override;
  void initialise(std::span<float> parameters) const override { network_.initialise(parameters); }
  void forward(const float* parameters, std::span<const float> x, std::size_t examples, const Needs& needs) override;
  LossSum backward(const float* parameters, std::span<const std::uint16_t> labels, float scale, float* gradients,
                   const Ready& ready) override;
  void stand_still(double) override {}
  LossSum evaluate(const float* parameters, std::span<const float> x, std::span<const std::uint16_t> labels,
                   std::size_t examples) override;
  std::size_t largest_evaluation() const override { return network_.largest_evaluation(); }
  std::vector<float> state() const override { return network_.state(); }
  void set_state(std::span<const float> state) override { network_.set_state(state); }
  std::uint64_t passes() const override { return network_.passes(); }
  void set_passes(std::uint64_t passes) override { network_.set_passes(passes); }

 private:
  void upload(const float* parameters, std::size_t first_tensor, std::size_t count);

  graph::DeviceMath& math_;
  std::vector<std::size_t> offsets_, sizes_;  // of tensors
  graph::Memory parameters_;
  graph::Memory gradients_;
  NetworkCompute network_;
};

}  // namespace clustar::bench::trainer
