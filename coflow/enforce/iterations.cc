#include "coflow/enforce/iterations.h"

#include <algorithm>
#include <utility>

namespace clustar::coflow::enforce {

// The distance at which most of what came last repeats, twice at least: a run of equal symbols within a period is
// shorter than two periods. The smallest, of those at which as much does.
void Repetition::add(std::uint64_t symbol) {
  const std::size_t known = std::min(symbols_.size(), kLongest);
  alike_.resize(known);
  std::size_t most = 0;
  period_ = 0;
  for (std::size_t distance = 1; distance <= known; ++distance) {
    std::uint32_t& alike = alike_[distance - 1];
    alike = symbols_[symbols_.size() - distance] == symbol ? alike + 1 : 0;
    if (alike < distance || alike + distance <= most) continue;
    period_ = distance;
    most = alike + distance;
  }
  symbols_.push_back(symbol);
  if (symbols_.size() >= 2 * kLongest) symbols_.erase(symbols_.begin(), symbols_.end() - kLongest);
}

void RepeatingCollectives::add(std::uint64_t kind, std::uint64_t bytes, Duration pause) {
  const std::uint64_t symbol = (kind ^ bytes) * 0x9e3779b97f4a7c15ull;
  by_kind_.add(symbol);
  by_kind_and_pause_.add(symbol + (pauses(pause) ? 1 : 0));
  collectives_.push_back({bytes, pause});
  constexpr std::size_t kKept = 2 * Repetition::kLongest;
  if (collectives_.size() >= 2 * kKept) collectives_.erase(collectives_.begin(), collectives_.end() - kKept);
  const std::size_t period = std::max(by_kind_.period(), by_kind_and_pause_.period());
  const bool another = std::exchange(period_, period) != period;
  if (period_ == 0) return;
  if (another || ++place_ == period_) return find_begin();
  begun_ += bytes;
}

// Whether it is a long one.
bool RepeatingCollectives::pauses(Duration pause) {
  seen_ = std::min(seen_ + 1, kPauses);
  mean_pause_ += (pause - mean_pause_) / static_cast<std::int64_t>(seen_);
  return 2 * pause > 3 * mean_pause_;
}

// It begins behind the longest pause of the last two iterations, place by place.
void RepeatingCollectives::find_begin() {
  const std::size_t end = collectives_.size();
  const auto pause = [&](std::size_t i) { return collectives_[end - 1 - i].pause; };  // i collectives ago
  Duration longest = Duration::min();
  place_ = 0;
  bytes_ = begun_ = 0;
  for (std::size_t i = 0; i < period_; ++i) {
    bytes_ += collectives_[end - 1 - i].bytes;
    const Duration both = pause(i) + pause(i + period_);
    if (both <= longest) continue;
    longest = both;
    place_ = i;
  }
  for (std::size_t i = 0; i <= place_; ++i) begun_ += collectives_[end - 1 - i].bytes;
}

IterationForecast RepeatingCollectives::forecast() const {
  if (period_ == 0) return {};
  return {.bytes = bytes_, .to_come = bytes_ - begun_};
}

Iterations::Id Iterations::find(std::uint64_t communicator, TimePoint now) {
  if (const auto found = by_id_.find(communicator); found != by_id_.end()) return found->second;
  Id id = static_cast<Id>(communicators_.size());
  if (id < kCommunicators) {
    communicators_.emplace_back();
  } else {
    // The one that has been silent for longest.
    id = kNone;
    for (Id i = 0; i < communicators_.size(); ++i) {
      const Communicator& one = communicators_[i];
      if (one.sending == 0 && (id == kNone || one.rests_since < communicators_[id].rests_since)) id = i;
    }
    if (id == kNone) return kNone;
    by_id_.erase(communicators_[id].id);
    communicators_[id] = Communicator();
  }
  communicators_[id].id = communicator;
  communicators_[id].rests_since = now;
  by_id_.emplace(communicator, id);
  return id;
}

IterationForecast Iterations::begins(Id id, const transport::MessageIdentity& identity, std::uint32_t peer,
                                     std::uint64_t bytes, TimePoint now) {
  Communicator& one = communicators_[id];
  // Sends are numbered by receiver, and those to another receiver are others.
  const bool is_send = identity.sender != transport::MessageIdentity::kNoRank;
  const std::uint64_t kind =
      std::uint64_t{identity.function} << 1 | std::uint64_t{identity.local_number} | (is_send ? (peer + 1ull) << 9 : 0);
  const auto [next, first] = one.next.try_emplace(kind, 0);
  if (first || identity.number >= next->second) {  // other flows of a collective are not another one
    next->second = identity.number + 1;
    one.collectives.add(kind, bytes, one.sending > 0 ? Duration(0) : now - one.rests_since);
  }
  return one.collectives.forecast();
}

void Iterations::sends(Id id) { ++communicators_[id].sending; }

void Iterations::rests(Id id, TimePoint now) {
  Communicator& one = communicators_[id];
  --one.sending;
  one.rests_since = now;
}

}  // namespace clustar::coflow::enforce
