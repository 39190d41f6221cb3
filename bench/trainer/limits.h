// What `clustar train` takes, for its options and for what chooses or multiplies values before it starts ranks.
#pragma once

#include <cstddef>

namespace clustar::bench::trainer {

template <typename T>
struct Limits {
  T least;
  T most;
};

inline constexpr Limits<int> kEpochs{1, 100'000};
inline constexpr Limits<int> kBatch{1, 1 << 20};  // of all ranks together
inline constexpr Limits<double> kRate{0, 1000};
inline constexpr Limits<std::size_t> kExamples{5, 1'000'000};  // generated

}  // namespace clustar::bench::trainer
