// Gradients of the micro-batches of a step before its last one: DDP's no_sync, which keeps them on the rank.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace clustar::bench::trainer::parallel {

class GradientSum {
 public:
  // What a backward pass made, all of it, in whatever layout the step has.
  void add(std::span<const float> gradients);
  // Adds the sum so far to a part of the gradients of the step's last backward, as soon as that part is final.
  void add_to(std::span<float> gradients, std::size_t first, std::size_t count) const;
  void clear() { empty_ = true; }  // the step is over

 private:
  std::vector<float> sum_;
  bool empty_ = true;
};

}  // namespace clustar::bench::trainer::parallel
