#include "bench/trainer/replica_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cstring>

#include "bench/trainer/digest.h"

namespace clustar::bench::trainer {

void ReplicaCheck::record(std::uint64_t step, std::span<const float> parameters) {
  if (bootstrap_ == nullptr) return;
  steps_.push_back(step);
  digests_.push_back(digest(std::as_bytes(parameters)));
}

Result<std::optional<Mismatch>> ReplicaCheck::compare() {
  if (digests_.empty()) return std::optional<Mismatch>();
  std::array<std::uint64_t, kGroup> mine{};
  std::memcpy(mine.data(), digests_.data(), digests_.size() * sizeof mine[0]);
  const auto gathered = bootstrap_->all_gather(std::as_bytes(std::span(mine)));
  if (!gathered) return tl::unexpected(gathered.error());
  const auto ranks = static_cast<std::size_t>(bootstrap_->size());
  std::optional<Mismatch> mismatch;
  for (std::size_t i = 0; i < digests_.size() && !mismatch; ++i) {
    const auto of_rank = [&](std::size_t rank) {
      std::uint64_t value = 0;
      std::memcpy(&value, gathered->data() + (rank * kGroup + i) * sizeof value, sizeof value);
      return value;
    };
    std::vector<std::string> different;
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      if (of_rank(rank) != of_rank(0)) different.push_back(fmt::format("{} ({:016x})", rank, of_rank(rank)));
    }
    if (different.empty()) continue;
    mismatch = Mismatch{
        steps_[i], fmt::format("replicas differ after step {}: rank 0 has parameters {:016x}, but "
                               "rank{} {}",
                               steps_[i], of_rank(0), different.size() == 1 ? "" : "s", fmt::join(different, ", "))};
  }
  steps_.clear();
  digests_.clear();
  return mismatch;
}

}  // namespace clustar::bench::trainer
