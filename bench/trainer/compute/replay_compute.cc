#include "bench/trainer/compute/replay_compute.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kValues = 16'384;
constexpr float kLargest = 1e-3F;
constexpr std::uint64_t kStream = 1ull << 43;
// Shorter sleeps are not worth waking up for: they are made up for by the next one.
constexpr std::chrono::microseconds kShortest{50};

std::vector<float> values_of(std::uint64_t seed) {
  Rng rng(seed, kStream);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>((2 * rng.uniform() - 1) * kLargest);
  return values;
}

}  // namespace

ReplayCompute::ReplayCompute(const Model& model, const BucketPlan& plan, LayerTimes times, double time_scale,
                             std::uint64_t seed, ReplayClock clock)
    : times_(std::move(times)),
      scale_(time_scale),
      offsets_(plan.tensor_offset),
      sizes_(plan.tensor_elements),
      values_(values_of(seed)),
      clock_(std::move(clock)) {
  if (!clock_.sleep_until) {
    clock_.sleep_until = [](ReplayClock::Instant until) { std::this_thread::sleep_until(until); };
  }
  std::size_t tensor = 0;
  for (std::size_t n = 1; n < model.graph.nodes().size(); ++n) {
    const std::size_t count = model.graph.tensors_of(model.graph.nodes()[n]).size();
    layers_.push_back({tensor, count});
    tensor += count;
  }
}

void ReplayCompute::initialise(std::span<float> parameters) const {
  std::fill(parameters.begin(), parameters.end(), 0.0F);
}

void ReplayCompute::pass_time(double seconds) {
  due_ += std::chrono::duration_cast<ReplayClock::Instant::duration>(
      std::chrono::duration<double>(seconds * scale_ * examples_));
  if (due_ - clock_.now() >= kShortest) clock_.sleep_until(due_);
}

void ReplayCompute::forward(const float*, std::span<const float>, std::size_t examples, const Needs& needs) {
  examples_ = static_cast<double>(examples) / static_cast<double>(times_.batch);
  due_ = clock_.now();
  for (std::size_t n = 0; n < layers_.size(); ++n) {
    if (needs && layers_[n].tensors > 0) {
      const ReplayClock::Instant before = clock_.now();
      needs(layers_[n].first_tensor, layers_[n].tensors);
      due_ += clock_.now() - before;
    }
    pass_time(times_.layers[n].forward_s);
  }
}

LossSum ReplayCompute::backward(const float*, std::span<const std::uint16_t>, float, float* gradients,
                                const Ready& ready) {
  due_ = std::max(due_, clock_.now());  // whatever was settled after forward()
  for (std::size_t n = layers_.size(); n-- > 0;) {
    pass_time(times_.layers[n].parameters_s);
    for (std::size_t t = layers_[n].tensors; t-- > 0;) {
      fill(layers_[n].first_tensor + t, gradients);
      ready(layers_[n].first_tensor + t);
    }
    pass_time(times_.layers[n].inputs_s);
  }
  return {};
}

void ReplayCompute::stand_still(double seconds) {
  due_ += std::chrono::duration_cast<ReplayClock::Instant::duration>(std::chrono::duration<double>(seconds));
}

// A reduction left sums there.
void ReplayCompute::fill(std::size_t tensor, float* gradients) {
  float* to = gradients + offsets_[tensor];
  for (std::size_t left = sizes_[tensor]; left > 0;) {
    const std::size_t count = std::min(left, values_.size());
    std::memcpy(to, values_.data(), count * sizeof(float));
    to += count;
    left -= count;
  }
}

BucketPlan scaled_plan(const Model& model, std::size_t first_bytes, std::size_t bytes, double byte_scale) {
  std::vector<std::size_t> elements = model.tensor_elements();
  for (std::size_t& count : elements) {
    count = static_cast<std::size_t>(std::ceil(static_cast<double>(count) / byte_scale));
  }
  const auto scaled = [&](std::size_t limit) {
    return std::max<std::size_t>(1, static_cast<std::size_t>(static_cast<double>(limit) / byte_scale));
  };
  return plan_buckets(elements, scaled(first_bytes), scaled(bytes));
}

}  // namespace clustar::bench::trainer
