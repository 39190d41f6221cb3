// Trains on a GPU. Where its gradients are summed by what reaches its memory, all stays there (OnDevice). Otherwise the
// trainer's parameters go there before each layer that reads them, and each gradient comes back when it is final: so
// collectives, codecs and the update are those of the processor, all of them, at the cost of a bucket's way through
// host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "bench/trainer/buckets.h"
#include "bench/trainer/compute/compute.h"
#include "bench/trainer/compute/network_compute.h"
#include "bench/trainer/compute/on_device.h"
#include "bench/trainer/graph/cuda/cuda_math.h"
#include "bench/trainer/graph/device_math.h"
#include "bench/trainer/model.h"

namespace clustar::bench::trainer {

class DeviceCompute final : public Compute, private OnDevice {
 public:
  // As NetworkCompute.
  DeviceCompute(const Model& model, const BucketPlan& plan, graph::CudaMath& math,
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
  OnDevice* on_device() override { return this; }

 private:
  void take(std::span<const float> parameters) override;
  void set(std::span<const float> parameters, std::span<const float> momentum) override;
  void copy_parameters(std::span<float> host) override;
  void copy_momentum(std::span<float> host) override;
  Buffer gradients() override { return {nullptr, reinterpret_cast<std::byte*>(gradients_.get())}; }
  Event ready() override { return {math_.mark()}; }
  void update(const SgdOptions& options, std::size_t first, std::size_t count) override;
  void upload(const float* parameters, std::size_t first_tensor, std::size_t count);

  graph::CudaMath& math_;
  std::vector<std::size_t> offsets_, sizes_;  // of tensors
  graph::Memory parameters_;
  graph::Memory gradients_;
  graph::Memory momentum_;  // null: all is the host's
  NetworkCompute network_;
};

}  // namespace clustar::bench::trainer
