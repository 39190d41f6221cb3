#include "mlt/core/send/paths.h"

#include <algorithm>

#include "mlt/core/options_check.h"

namespace clustar::mlt {

namespace {

constexpr double kRttGain = 1.0 / 8;
constexpr double kMarkGain = 1.0 / 16;
constexpr double kMaxSample = 10e9;  // ns

}  // namespace

PathSelector::PathSelector(std::uint32_t paths, const PathOptions& options) : options_(options), size_(paths) {
  require_option(paths >= 1 && paths <= kMaxPaths, "PathSelector: paths must be 1 .. 32");
  require_option(options.loss_threshold > 0 && options.loss_threshold < 1,
                 "PathSelector: loss_threshold must be between 0 and 1");
  require_option(options.silent_losses >= 2, "PathSelector: silent_losses must be 2 .. 255");
  require_option(options.backoff >= std::chrono::microseconds(1) && options.backoff <= options.backoff_max,
                 "PathSelector: backoff must be 1 us .. backoff_max");
  require_option(options.backoff_max <= std::chrono::hours(1), "PathSelector: backoff_max must be at most 1 h");
  require_option(options.probe_packets >= 1 && options.probe_packets <= 64,
                 "PathSelector: probe_packets must be 1 .. 64");
  require_option(options.probe_timeout > Duration::zero() && options.probe_timeout <= std::chrono::hours(1),
                 "PathSelector: probe_timeout must be above 0, at most 1 h");
  for (Path& path : paths_) {
    path.backoff = options.backoff;
  }
  list_good();
}

PathSelector::Choice PathSelector::choose(Rng& rng, TimePoint now) {
  if (now >= next_check_) {
    next_check_ = TimePoint::max();
    std::uint32_t due = kMaxPaths;
    for (std::uint32_t i = 0; i < size_; ++i) {
      Path& path = paths_[i];
      if (path.state == State::kProbing && now >= path.until) {
        path.probe_acks > 0 ? restore(i, now) : sideline(i, now);
      }
      if (path.state == State::kGood) continue;
      if (path.state == State::kSidelined && now >= path.until && due == kMaxPaths) {
        set_state(path.state, State::kProbing);
        path.probe_acks = 0;
        path.lost_in_row = 0;
        path.since = now;
        path.until = now + options_.probe_timeout;
        due = i;
      }
      next_check_ = std::min(next_check_, path.until);
    }
    if (due != kMaxPaths) return {static_cast<std::uint8_t>(due), true};
  }
  const std::uint8_t a = good_[rng.below(good_count_)];
  const std::uint8_t b = good_[rng.below(good_count_)];
  return {score(b) < score(a) ? b : a, false};
}

std::uint8_t PathSelector::best() const {
  return *std::min_element(good_.begin(), good_.begin() + good_count_,
                           [&](std::uint8_t a, std::uint8_t b) { return score(a) < score(b); });
}

void PathSelector::on_ack(std::uint32_t index, Duration rtt, bool marked, TimePoint now) {
  if (index >= size_) return;
  Path& path = paths_[index];
  const double sample = std::clamp(static_cast<double>(rtt.count()), 1.0, kMaxSample);
  path.srtt += path.srtt == 0 ? sample : (sample - path.srtt) * kRttGain;
  path.marks += ((marked ? 1 : 0) - path.marks) * kMarkGain;
  path.lost_in_row = 0;
  path.last_ack = now;
  if (path.state == State::kGood) {
    count(path, false);
    if (is_lossy(index)) sideline(index, now);
    return;
  }
  if (path.state == State::kProbing && ++path.probe_acks >= options_.probe_packets) restore(index, now);
}

void PathSelector::count(Path& path, bool lost) {
  path.outcomes = std::min(path.outcomes + 1, kFull);
  path.loss += ((lost ? 1 : 0) - path.loss) / path.outcomes;
}

void PathSelector::on_loss(std::uint32_t index, TimePoint now) {
  if (index >= size_) return;
  Path& path = paths_[index];
  if (path.state == State::kProbing) sideline(index, now);
  if (path.state != State::kGood) return;  // what was sent before it was sidelined
  count(path, true);
  if (path.lost_in_row++ == 0) path.row_since = now;
  if (is_silent(index)) sideline(index, now);
}

double PathSelector::others_loss(std::uint32_t index, double unknown, std::uint32_t part) const {
  std::array<double, kMaxPaths> losses{};
  std::uint32_t count = 0;
  for (std::uint32_t i = 0; i < good_count_; ++i) {
    const Path& other = paths_[good_[i]];
    if (good_[i] != index) losses[count++] = other.outcomes < kEnough ? unknown : other.loss;
  }
  const auto middle = losses.begin() + (count - 1) / part;
  std::nth_element(losses.begin(), middle, losses.begin() + count);
  return *middle;
}

bool PathSelector::is_lossy(std::uint32_t index) const {
  const double loss = paths_[index].loss;
  return loss > options_.loss_threshold && paths_[index].outcomes >= kEnough && good_count_ > 2 &&
         loss > options_.loss_threshold + 2.5 * others_loss(index, loss, 3);
}

bool PathSelector::is_silent(std::uint32_t index) const {
  const Path& path = paths_[index];
  if (path.lost_in_row < options_.silent_losses || good_count_ < 2) return false;
  const double enough = options_.silent_losses * (1 + 2 * others_loss(index, 0, 2));
  if (path.lost_in_row < static_cast<std::uint32_t>(enough)) return false;
  const TimePoint since = path.row_since - srtt(index);
  std::uint32_t delivering = 0;
  for (std::uint32_t i = 0; i < good_count_; ++i) {
    if (good_[i] != index && paths_[good_[i]].last_ack >= since) ++delivering;
  }
  return delivering * 2 >= good_count_ - 1;
}

void PathSelector::sideline(std::uint32_t index, TimePoint now) {
  Path& path = paths_[index];
  if (path.state == State::kGood) {
    ++sidelined_;
    if (now - path.since >= options_.backoff_max) path.backoff = options_.backoff;
  }
  set_state(path.state, State::kSidelined);
  path.lost_in_row = 0;
  path.since = now;
  path.until = now + path.backoff;
  path.backoff = std::min(path.backoff * 2, options_.backoff_max);
  next_check_ = std::min(next_check_, path.until);
  list_good();
}

void PathSelector::restore(std::uint32_t index, TimePoint now) {
  Path& path = paths_[index];
  set_state(path.state, State::kGood);
  path.since = now;
  list_good();
  // On parole: half of what sidelines it is taken as read, so that a path still bad goes sooner than the first time.
  path.loss = 0;
  path.loss = std::max(options_.loss_threshold / 2, good_count_ > 1 ? others_loss(index, 0, 2) : 0);
}

void PathSelector::list_good() {
  good_count_ = 0;
  for (std::uint32_t i = 0; i < size_; ++i) {
    if (paths_[i].state == State::kGood) good_[good_count_++] = static_cast<std::uint8_t>(i);
  }
}

}  // namespace clustar::mlt
