#include "paraexpress/core/membership.h"

#include <algorithm>

namespace clustar::paraexpress {

MembershipRound::MembershipRound(const Place& place, bool leaves, std::uint32_t waiting, std::uint32_t most)
    : place_(place), before_(place), leaves_(leaves), waiting_(waiting), most_(most) {}

// Of an agreement: who waits, then whether each rank leaves. Of a vote: whether building failed.
std::vector<std::uint64_t> MembershipRound::numbers() const {
  if (step_ == Step::kVote) return {built_well_ ? std::uint64_t{0} : std::uint64_t{1}};
  std::vector<std::uint64_t> all(1 + place_.ranks, 0);
  // Rank 0 holds the door: where it leaves, they are sent to the next one.
  if (place_.rank == 0 && !leaves_) all[0] = waiting_;
  all[1 + place_.rank] = leaves_ ? 1 : 0;
  return all;
}

void MembershipRound::agreed(std::span<const std::uint64_t> maxima) {
  if (step_ == Step::kVote) {
    refused_ = maxima[0] != 0;
    // What was tried in vain keeps its epoch to itself.
    if (refused_) {
      const std::uint64_t tried = place_.epoch;
      place_ = before_;
      place_.epoch = tried;
    }
    step_ = Step::kDone;
    return;
  }
  for (Member rank = 0; rank < place_.ranks; ++rank) {
    if (maxima[1 + rank] == 0) survivors_.push_back(rank);
  }
  const auto stay = static_cast<std::uint32_t>(survivors_.size());
  left_ = place_.ranks - stay;
  newcomers_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(maxima[0], most_ - std::min(stay, most_)));
  if (leaves_) {
    step_ = stay > 1 ? Step::kLend : Step::kOut;
    return;
  }
  if (left_ == 0) return try_newcomers();
  const auto own = std::ranges::find(survivors_, place_.rank);
  place_ = {place_.epoch + 1, static_cast<Member>(own - survivors_.begin()), stay};
  step_ = Step::kBuildWithout;
}

void MembershipRound::built(bool well) {
  if (step_ == Step::kBuildWith) {
    built_well_ = well;
    step_ = Step::kVote;
    return;
  }
  if (!well) return failed();
  try_newcomers();
}

void MembershipRound::try_newcomers() {
  before_ = place_;
  step_ = Step::kDone;
  if (newcomers_ == 0) return;
  place_.epoch += 1;
  place_.ranks += newcomers_;
  step_ = Step::kBuildWith;
}

Place place_of_newcomer(const Place& place, std::uint32_t newcomers, std::uint32_t number) {
  return {place.epoch, place.ranks - newcomers + number, place.ranks};
}

}  // namespace clustar::paraexpress
