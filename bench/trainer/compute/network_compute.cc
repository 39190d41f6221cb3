#include "bench/trainer/compute/network_compute.h"

#include <algorithm>

#include "bench/trainer/random.h"

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kMostEvaluated = 256;             // examples at a time
constexpr std::size_t kEvaluatedFloats = 16u << 20;     // of all activations together
constexpr std::uint64_t kFirstDrawStream = 1ull << 42;  // of dropout: one for each rank

// Examples that are evaluated at a time: no more than training has, where activations are large.
std::size_t evaluation_batch(const graph::Graph& graph, std::size_t share) {
  std::size_t floats = 0;
  for (const graph::Node& node : graph.nodes()) floats += node.shape.elements();
  return std::clamp(kEvaluatedFloats / floats, std::min(share, kMostEvaluated), kMostEvaluated);
}

std::uint64_t draws_of(std::uint64_t seed, int rank) {
  return Rng(seed, kFirstDrawStream + static_cast<std::uint64_t>(rank)).next();
}

}  // namespace

NetworkCompute::NetworkCompute(const Model& model, const BucketPlan& plan, graph::DeviceMath& math,
                               const Options& options)
    : options_(options),
      classes_(model.classes),
      most_evaluated_(evaluation_batch(model.graph, options.most_share)),
      network_(model.graph, math, plan.tensor_offset, std::max(most_evaluated_, options.most_share),
               draws_of(options.seed, options.rank), options.precision) {
  if (options_.clock != nullptr) {
    network_.observe([clock = options_.clock](std::size_t node, graph::Pass pass, double seconds) {
      clock->add(node, pass, seconds);
    });
  }
}

void NetworkCompute::forward(const float* parameters, std::span<const float> x, std::size_t examples,
                             const Needs& needs) {
  if (options_.clock != nullptr) options_.clock->begin(examples);
  outputs_ = network_.forward(parameters, x.data(), examples, needs);
}

LossSum NetworkCompute::backward(const float* parameters, std::span<const std::uint16_t> labels, float scale,
                                 float* gradients, const Ready& ready) {
  output_gradient_.resize(outputs_.size());
  const LossSum loss = softmax_cross_entropy(outputs_, labels, classes_, scale, output_gradient_);
  network_.backward(parameters, output_gradient_, gradients, ready);
  return loss;
}

LossSum NetworkCompute::evaluate(const float* parameters, std::span<const float> x,
                                 std::span<const std::uint16_t> labels, std::size_t examples) {
  return softmax_cross_entropy(network_.evaluate(parameters, x.data(), examples), labels, classes_, 1.0f, {});
}

}  // namespace clustar::bench::trainer
