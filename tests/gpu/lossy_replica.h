// Training steps whose gradients tell, of every element of a sum, whose contributions are in it. Host memory only, so
// that real NCCL on a GPU and bench/proxy without one run the same check.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace clustar::nccl_check {

inline constexpr int kMostRanks =
    16;  // of a LossyReplica: a sum of more would not be exact in float32 with room to spare

// What one step left on this rank.
struct StepRecord {
  std::uint64_t sums_digest = 0;          // of what the all-reduce returned
  std::uint64_t parameters_digest = 0;    // after the update
  std::vector<std::uint64_t> lacking;     // by rank: elements without its contribution
  std::uint64_t lacking_elements = 0;     // that lack any rank's
  std::uint64_t empty_elements = 0;       // that lack every rank's
  std::uint64_t unreadable_elements = 0;  // that are no sum of contributions
  std::string first_unreadable;           // "" = none
};

// Descends the quadratic |p - t|^2 / 2 from p = 0. Its gradient is rounded to a power of two u, of which rank r
// contributes 2^r u: the sum over any set of ranks is u times the set's bit mask, exact in whatever order they are
// added, and 0 for a contribution that is missing. Parameters steer the next gradients, so a replica that once differs
// soon makes sums that nobody can read. Not thread-safe.
class LossyReplica {
 public:
  // 0 <= rank < size <= kMostRanks; std::invalid_argument otherwise.
  LossyReplica(std::size_t elements, int rank, int size);

  std::size_t elements() const { return parameters_.size(); }
  // `out`, elements() long, receives this rank's contribution.
  void gradient(std::span<float> out) const;
  // Reads `sums`, elements() long, and takes the step that they say.
  StepRecord apply(std::span<const float> sums);
  // Root of the mean square of p - t; 0 = solved.
  double distance() const;

 private:
  // Of the gradient of element i on every rank: u above, never 0.
  float unit(std::size_t i) const;

  int rank_;
  int size_;
  std::vector<float> parameters_;
};

// Sums `gradient` over the ranks into `sums`, which holds nothing that a sum can be; complete on return.
using SumGradients = std::function<void(std::span<const float> gradient, std::span<float> sums)>;

// Takes `steps` (at least 1) steps. {steps: [one object per step], distance: [before, after]}; digests are 16 hex
// digits.
nlohmann::json train(LossyReplica& replica, int steps, const SumGradients& sum_gradients);

// A row of results as nccl-check writes one of each collective, around what train() returned.
nlohmann::json training_row(const nlohmann::json& training, std::size_t bytes, int size);

}  // namespace clustar::nccl_check
