#include "mlt/core/send/parity_policy.h"

#include <algorithm>

namespace clustar::mlt {
namespace {

constexpr double kTarget = 1e-3;             // of blocks that parity does not make whole
constexpr double kHopeless = 0.5;            // of blocks, beyond which parity is given up
constexpr std::uint32_t kMostPercent = 15;   // of parity per data
constexpr std::uint32_t kEvidence = 2;       // lost packets: one may be anything
constexpr std::uint32_t kMemory = 1u << 14;  // packets; twice as many at most

constexpr std::uint32_t most_rows(std::uint32_t packets) {
  return std::min(kMaxParity, std::max(1u, packets * kMostPercent / 100));
}

// That more than `spare` of `packets` are lost, each for itself.
double more_than(std::uint32_t spare, std::uint32_t packets, double loss) {
  double exactly = 1;
  for (std::uint32_t i = 0; i < packets; ++i) exactly *= 1 - loss;
  double up_to = exactly;
  for (std::uint32_t i = 0; i < spare && i < packets; ++i) {
    exactly *= (packets - i) * loss / ((i + 1) * (1 - loss));
    up_to += exactly;
  }
  return 1 - std::min(up_to, 1.0);
}

}  // namespace

void ParityPolicy::settled(bool lost) {
  ++group_;
  if (lost) ++group_lost_;
  if (group_ < kParityBlock) return;
  if (group_lost_ <= most_rows(kParityBlock)) {
    packets_ += group_;
    lost_ += group_lost_;
  }
  group_ = group_lost_ = 0;
  if (packets_ < 2 * kMemory) return;
  packets_ /= 2;
  lost_ /= 2;
}

double ParityPolicy::loss() const { return lost_ < kEvidence ? 0 : static_cast<double>(lost_) / packets_; }

std::uint32_t ParityPolicy::rows(std::uint32_t packets, Duration min_rtt) const {
  if (!options_.parity || min_rtt < options_.parity_from || lost_ < kEvidence) return 0;
  return rows_against(loss(), packets);
}

std::uint32_t ParityPolicy::rows_against(double loss, std::uint32_t packets) const {
  const std::uint32_t most = most_rows(packets);
  for (std::uint32_t rows = 0; rows <= most; ++rows) {
    if (more_than(rows, packets + rows, loss) < kTarget) return rows;
  }
  return more_than(most, packets + most, loss) < kHopeless ? most : 0;
}

// Of long messages by the mean and three deviations: the sum would be as long as they are.
bool ParityPolicy::exceeds(std::uint32_t packets, std::uint32_t may_miss) const {
  const double mean = loss() * packets;
  if (mean == 0) return false;
  const double beyond = may_miss - mean;
  return beyond < 0 || beyond * beyond < 9 * mean;
}

}  // namespace clustar::mlt
