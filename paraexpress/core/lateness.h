// Which ranks come late to operations, and by how much. All ranks end an operation at about the same time, as the
// result needs them all; so who is late sees short ones, and no clock is compared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace clustar::paraexpress {

// One rank's share of what all ranks then compare.
class Lateness {
 public:
  void add(double seconds) {
    sum_ += seconds;
    ++operations_;
  }
  // Of the operations since the last call.
  double take_mean();

 private:
  double sum_ = 0;
  std::uint64_t operations_ = 0;
};

// By rank, from each rank's mean; empty where nobody is late by more than the noise: kNoise of the shortest mean, and
// kLeastLag.
inline constexpr double kNoise = 0.5, kLeastLag = 1e-3;
std::vector<double> lags_of(std::span<const double> means);

// Whether plans should be chosen for `found` instead of `known`: small changes are noise, too.
bool differs(std::span<const double> known, std::span<const double> found);

}  // namespace clustar::paraexpress
