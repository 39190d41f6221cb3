#include "mlt/core/send/parity_policy.h"

#include <algorithm>

namespace clustar::mlt {
namespace {

constexpr double kTarget = 1e-3;             // of blocks that parity does not make whole
constexpr double kHopeless = 0.5;            // of blocks, beyond which parity is given up
constexpr std::uint32_t kMostPercent = 15;   // of parity per data
constexpr std::uint32_t kPrior = 1024;       // packets that count as delivered before the first: one loss is no rate
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
  if (!options_.parity) return;
  ++group_;
  if (lost) ++group_lost_;
  if (group_ < kParityBlock) return;
  ++groups_[std::min<std::size_t>(group_lost_, groups_.size() - 1)];
  packets_ += group_;
  if (group_lost_ <= most_rows(kParityBlock)) lost_ += group_lost_;
  group_ = group_lost_ = 0;
  if (packets_ < 2 * kMemory) return;
  packets_ /= 2;
  lost_ /= 2;
  for (std::uint32_t& groups : groups_) groups /= 2;
}

double ParityPolicy::loss() const { return static_cast<double>(lost_) / (packets_ + kPrior); }

std::uint32_t ParityPolicy::rows(std::uint32_t packets, Duration min_rtt) const {
  if (!options_.parity || min_rtt < options_.parity_from || lost_ == 0) return 0;
  const std::uint32_t rows = rows_against(loss(), packets);
  return helps(rows) ? rows : 0;
}

// Of the groups that lost something, half at least lost no more than that: otherwise losses come in bursts, whatever
// their rate is.
bool ParityPolicy::helps(std::uint32_t rows) const {
  std::uint32_t cured = 0, others = 0;
  for (std::uint32_t lost = 1; lost < groups_.size(); ++lost) (lost <= rows ? cured : others) += groups_[lost];
  return cured >= others;
}

std::uint32_t ParityPolicy::rows_against(double loss, std::uint32_t packets) {
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
