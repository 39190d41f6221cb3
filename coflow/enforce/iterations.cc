#include "coflow/enforce/iterations.h"

#include <algorithm>
#include <utility>

namespace clustar::coflow::enforce {

namespace {

constexpr std::uint64_t kMixer = 0x9e3779b97f4a7c15ull;

constexpr std::uint64_t power(std::uint64_t base, std::size_t exponent) {
  return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

// The latest `kept` of them.
template <class T>
void keep_latest(std::vector<T>& all, std::size_t kept) {
  all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(kept));
  all.shrink_to_fit();
}

}  // namespace

// The distance at which most of what came last repeats, twice at least: a run of equal symbols within a period is
// shorter than two periods. The smallest, of those at which as much does.
void Repetition::take(std::size_t distance, std::uint64_t alike) {
  if (alike < distance || alike + distance <= most_) return;
  period_ = distance;
  most_ = alike + distance;
}

void Repetition::add(std::uint64_t symbol) {
  symbols_.push_back(static_cast<std::uint32_t>((symbol * kMixer) >> 32));
  ++count_;
  const std::uint32_t latest = back(0);
  const std::size_t before = symbols_.size() - 1;
  most_ = 0;
  period_ = 0;
  alike_.resize(std::min(before, kShort));
  for (std::size_t distance = 1; distance <= alike_.size(); ++distance) {
    std::uint64_t& alike = alike_[distance - 1];
    alike = back(distance) == latest ? alike + 1 : 0;
    take(distance, alike);
  }
  std::erase_if(longer_, [&](const Candidate& one) { return one.distance > before || back(one.distance) != latest; });
  for (Candidate& one : longer_) take(one.distance, ++one.alike);
  // A polynomial of the latest symbols, of which the oldest is taken out.
  constexpr std::uint64_t kOldest = power(kMixer, kPiece);
  piece_ = piece_ * kMixer + latest + 1;
  if (before >= kPiece) piece_ -= (std::uint64_t{back(kPiece)} + 1) * kOldest;
  if (before >= kPiece) look_for_longer();
  forget();
}

// Of the pieces that are kept each tells how long ago it came last.
void Repetition::look_for_longer() {
  const std::uint64_t print = (piece_ ^ piece_ >> 29) * kMixer;
  if (print >> 32 & (kPieces - 1)) return;
  if (places_.empty()) places_.resize(kPlaces);
  const std::uint64_t earlier = std::exchange(places_[print >> 40 & (kPlaces - 1)], count_);
  const std::uint64_t distance = count_ - earlier;
  if (earlier == 0 || distance <= kShort || distance > kLongest || distance + kPiece > symbols_.size()) return;
  const auto known = [&](const Candidate& one) { return one.distance == distance; };
  if (std::any_of(longer_.begin(), longer_.end(), known)) return;
  std::uint64_t alike = 0;
  while (alike < distance && distance + alike < symbols_.size() && back(alike) == back(distance + alike)) ++alike;
  if (alike < kPiece) return;  // another piece had its place
  const Candidate candidate{distance, alike};
  const auto least = std::min_element(longer_.begin(), longer_.end(),
                                      [](const Candidate& a, const Candidate& b) { return a.alike < b.alike; });
  if (longer_.size() < kCandidates) {
    longer_.push_back(candidate);
  } else if (least->alike < alike) {
    *least = candidate;
  }
  take(distance, alike);
}

void Repetition::forget() {
  const std::size_t kept = settled() ? std::max(kShort, period_) : 2 * kLongest;
  if (symbols_.size() < kept + kept / 4 + kPiece) return;
  keep_latest(symbols_, kept + kPiece);
}

void RepeatingCollectives::add(std::uint64_t kind, std::uint64_t bytes, Duration pause) {
  const std::uint64_t symbol = (kind ^ bytes) * kMixer;
  by_kind_.add(symbol);
  by_kind_and_pause_.add(symbol + (pauses(pause) ? 1 : 0));
  collectives_.push_back({bytes, pause});
  std::size_t period = std::max(by_kind_.period(), by_kind_and_pause_.period());
  const auto settled = [&](const Repetition& one) { return one.settled() && one.period() == period; };
  const bool for_long = settled(by_kind_) || settled(by_kind_and_pause_);
  const std::size_t kept = 2 * (for_long ? std::max(Repetition::kShort, period) : Repetition::kLongest);
  if (collectives_.size() >= kept + kept / 4) keep_latest(collectives_, kept);
  if (2 * period > collectives_.size()) period = 0;  // what came before was forgotten
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
