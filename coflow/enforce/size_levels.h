// In which order bulk goes by its size: small first. Sizes that are known have their place at once; of an unknown one
// counts what was sent, in steps whose limits follow from the sizes that were seen (PIAS, Bai et al., NSDI 2015). Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace clustar::coflow::enforce {

struct SizeShare {
  std::uint64_t bytes = 0;  // > 0
  double share = 0;         // of all that come, by number
};

// Limits a_1 < a_2 < ... of at most `levels` (>= 1) levels with the least mean completion time of a queue with strict
// priority between them: a message of size x that ends in level j takes
//   lambda E[min(X, a_j)^2] / (2 (1 - rho(a_(j-1))) (1 - rho(a_j)))  +  x / (1 - rho(a_(j-1)))
// at a line of 1 byte per unit of time, where rho(a) = lambda E[min(X, a)] and rho(infinity) = `load`, 0 < load < 1.
// `sizes` grow, and their shares are not negative. Exact over limits at the sizes themselves.
std::vector<std::uint64_t> best_limits(std::span<const SizeShare> sizes, std::size_t levels, double load);

class SizeLevels {
 public:
  static constexpr std::uint64_t kMost = 255;  // the largest level

  // Unknown sizes begin with limits of Aalo's kind: 1 MB, doubled 12 times.
  SizeLevels();

  // Quarters of an octave from 64 KiB on.
  static std::uint64_t of_size(std::uint64_t bytes);
  // Of a message of unknown size of which so much was sent.
  std::uint64_t of_attained(std::uint64_t bytes) const;
  // The first limit above: where of_attained() is another.
  std::uint64_t next_limit(std::uint64_t attained) const;

  // One of this size came. After each kLearn the limits are those of the sizes that came.
  void saw(std::uint64_t bytes);
  std::span<const std::uint64_t> limits() const { return limits_; }

  static constexpr std::size_t kLevels = 8;
  static constexpr std::uint64_t kLearn = 1024;
  static constexpr double kLoad = 0.8;

 private:
  std::vector<std::uint64_t> limits_;
  std::array<std::uint64_t, 64> counts_{};  // by octave; what is older weighs less
  std::array<std::uint64_t, 64> largest_{};
  std::uint64_t seen_ = 0;
};

}  // namespace clustar::coflow::enforce
