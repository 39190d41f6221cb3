#include "mlt/core/send/congestion.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "mlt/core/options_check.h"

namespace clustar::mlt {

namespace {

// Of a long path's window, for a delay that differs from the target by a round trip: what is seen is a round trip old,
// so more would swing.
constexpr double kFarGain = 0.5;
constexpr double kCompetingSegmentPer = 25e6;  // ns
constexpr double kFarGrowth = 0.125;           // of the window in a round trip, while nothing queues
// Before RttEstimator forgets what it saw last of the empty network.
constexpr double kFarDrainTime = 8e9;  // ns

void check(const WindowOptions& options) {
  require_option(options.segment >= 64 && options.segment <= 65535, "Congestion: segment must be 64 .. 65535 B");
  require_option(options.maximum >= options.segment && options.maximum <= 1u << 30,
                 "Congestion: maximum must be segment .. 1 GiB");
  require_option(options.initial >= options.segment && options.initial <= options.maximum,
                 "Congestion: initial must be segment .. maximum");
  require_option(options.mark_gain > 0 && options.mark_gain <= 1, "Congestion: mark_gain must be above 0, at most 1");
}

std::uint64_t paced_rate(double window, Duration srtt) {
  constexpr double kGain = 1.25;
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(window * kGain * 1e9 / Epoch::in_ns(srtt)));
}

// A window that was not even half used says nothing about the network's room (RFC 7661).
bool was_used(const Epoch::Totals& totals, double window) { return totals.acked * 2 >= window; }

double grown(double window, const WindowOptions& options, double step) {
  return std::min(window + step, static_cast<double>(options.maximum));
}

double grown(double window, const WindowOptions& options, const Epoch::Totals& totals, bool starting) {
  return grown(window, options, starting ? std::min(totals.acked, window) : options.segment);
}

double cut_by(double window, const WindowOptions& options, double fraction) {
  return std::max(window * (1 - fraction), static_cast<double>(options.segment));
}

}  // namespace

double set_segment_of(WindowOptions& options, double window, std::uint32_t bytes) {
  options.segment = std::clamp(bytes, 64u, 65535u);
  options.maximum = std::max<std::uint64_t>(options.maximum, options.segment);
  return std::max<double>(window, options.segment);
}

FixedRate::FixedRate(const Options& options) : options_(options) {
  require_option(options.window >= 1, "FixedRate: window must be at least 1 B");
  require_option(options.rate >= 1, "FixedRate: rate must be at least 1 B/s");
}

DctcpSwift::DctcpSwift(const Options& options) : options_(options), window_(static_cast<double>(options.initial)) {
  constexpr Duration kSecond = std::chrono::seconds(1);
  check(options);
  require_option(options.queue_target >= std::chrono::microseconds(1) && options.queue_target <= kSecond,
                 "DctcpSwift: queue_target must be 1 us .. 1 s");
  require_option(options.scaling_range >= Duration::zero() && options.scaling_range <= kSecond,
                 "DctcpSwift: scaling_range must be 0 .. 1 s");
  require_option(options.long_from > Duration::zero(), "DctcpSwift: long_from must be above 0");
  require_option(options.beta > 0 && options.beta <= 1, "DctcpSwift: beta must be above 0, at most 1");
  require_option(options.max_cut > 0 && options.max_cut <= 0.9, "DctcpSwift: max_cut must be above 0, at most 0.9");
  require_option(options.drain_epochs >= 16 && options.drain_epochs <= 1u << 20,
                 "DctcpSwift: drain_epochs must be 16 .. 1048576");
  require_option(options.severe_loss >= 0 && options.severe_loss <= 1, "DctcpSwift: severe_loss must be 0 .. 1");
  require_option(options.burst_epochs <= 1u << 20, "DctcpSwift: burst_epochs must be 0 .. 1048576");
  require_option(options.yield_epochs >= 1 && options.yield_epochs <= 1u << 20,
                 "DctcpSwift: yield_epochs must be 1 .. 1048576");
}

void DctcpSwift::on_ack(const AckSample& sample, TimePoint now) {
  const bool over = epoch_.on_ack(sample, now);
  if (Epoch::in_ns(sample.rtt) <= Epoch::in_ns(sample.min_rtt) * 1.02) since_empty_ = 0;
  if (starting_ && drain_left_ == 0) start_up(sample);
  if (over) decide(epoch_.take(now));
}

void DctcpSwift::start_up(const AckSample& sample) {
  const double rtt = Epoch::in_ns(sample.rtt);
  const double min_rtt = std::min(rtt, Epoch::in_ns(sample.min_rtt));
  if (base_rtt_ <= Duration::zero() || min_rtt > 1.25 * Epoch::in_ns(base_rtt_)) return;
  const double queue = std::min(min_rtt / 4, static_cast<double>(options_.queue_target.count()));
  if (rtt > min_rtt + queue || epoch_.saw_trouble(options_.severe_loss)) return;
  const auto maximum = static_cast<double>(options_.maximum);
  const double most = is_long(min_rtt) ? maximum : std::min(8.0 * static_cast<double>(options_.initial), maximum);
  window_ = std::max(window_, std::min(4 * epoch_.delivered(), most));
}

bool DctcpSwift::is_long(double min_rtt) const { return min_rtt >= static_cast<double>(options_.long_from.count()); }

// What a round trip adds whatever the window is: what makes flows of one path alike.
double DctcpSwift::least_step(double min_rtt) const {
  constexpr double kSegmentPer = 4e6;  // ns of round trip
  return push_ * options_.segment * (is_long(min_rtt) ? std::max(1.0, min_rtt / kSegmentPer) : 1.0);
}

double DctcpSwift::step(const Epoch::Totals& totals, double limit) const {
  if (starting_) return std::min(totals.acked, window_);
  const double least = least_step(totals.min_rtt);
  if (!is_long(totals.min_rtt)) return least;
  const bool empty = limit - totals.rtt > 0.75 * (limit - totals.min_rtt);
  const double part = empty ? kFarGrowth : std::clamp(kFarGain * (limit - totals.rtt) / totals.rtt, 0.0, kFarGrowth);
  return least + window_ * part;
}

void DctcpSwift::on_loss(std::uint64_t bytes, TimePoint now) {
  if (epoch_.on_loss(bytes, now)) decide(epoch_.take(now));
}

double DctcpSwift::target(double min_rtt) const {
  // Swift has 1 / sqrt(window) here; the square root is left out because windows of 2 to 10 packets are the ones to
  // help.
  const double scaling = static_cast<double>(options_.scaling_range.count()) * options_.segment / window_;
  return min_rtt + static_cast<double>(options_.queue_target.count()) + scaling + far_target(min_rtt);
}

// The smaller window aims at the longer queue, so it grows while the larger one shrinks until they are alike.
double DctcpSwift::far_target(double min_rtt) const {
  constexpr double kMost = 7e6;        // ns
  constexpr double kDoublings = 17.0;  // from a segment to 10 Gbit/s for 150 ms
  if (!is_long(min_rtt)) return 0;
  const double part = 1 - std::log2(std::max(1.0, window_ / options_.segment)) / kDoublings;
  return std::min(min_rtt / 2, kMost) * std::max(0.0, part);
}

void DctcpSwift::decide(const Epoch::Totals& totals) {
  if (totals.acked > 0) alpha_ += options_.mark_gain * (totals.mark_fraction() - alpha_);
  if (totals.acked > 0) far_ = is_long(totals.min_rtt);
  const double limit = target(totals.min_rtt);
  const bool late = totals.acked > 0 && totals.rtt > limit;
  const bool marked = totals.marked > 0;
  const double loss = totals.loss_fraction();
  double cut = 0;
  if (marked) cut = alpha_ / 2;
  if (late) cut = std::max(cut, (far_ && !starting_ ? kFarGain : options_.beta) * (totals.rtt - limit) / totals.rtt);
  if (late || marked) cut = std::max(cut, loss);
  cut = std::min(cut, options_.max_cut);
  if (drain_left_ > 0) {
    // The first of its round trips still sees the queue that was there before.
    if (--drain_left_ > 0) return;
    if (competing_ && totals.acked > 0) competing_ = totals.rtt - totals.min_rtt > queue_before_ / (far_ ? 16 : 4);
    window_ = cut_by(resume_, options_, competing_ ? 0 : cut);
    return;
  }
  if (totals.acked > 0) queue_before_ = totals.rtt - totals.min_rtt;
  if (competing_ ||
      (totals.acked > 0 && is_yielding(queue_before_ > (far_ ? 1.25 : 2) * (limit - totals.min_rtt), queue_before_))) {
    return compete(totals);
  }
  if (cut > 0) {
    window_ = cut_by(window_, options_, cut);
    if (far_ && !marked && !starting_) window_ += least_step(totals.min_rtt);
    before_loss_ = severe_epochs_ = 0;
  } else if (loss > options_.severe_loss) {
    on_severe_loss(loss);
  } else if (!recover() && was_used(totals, window_)) {
    window_ = grown(window_, options_, step(totals, limit));
  }
  // A flow that saw the empty network of a long path, and knows that it did, need not look for it.
  const bool seen =
      base_rtt_ > Duration::zero() && is_long(totals.min_rtt) && totals.min_rtt <= 1.25 * Epoch::in_ns(base_rtt_);
  since_empty_ += totals.rtt;
  const bool forgets = far_ && since_empty_ >= kFarDrainTime;
  if (++since_drain_ >= options_.drain_epochs || forgets || (starting_ && cut > 0 && !seen))
    start_drain(window_, drained_part(totals));
  if (cut > 0) starting_ = false;
}

// A queue of our own would have shrunk with the window.
bool DctcpSwift::is_yielding(bool late, double queue) {
  if (!late) {
    late_epochs_ = 0;
    return false;
  }
  // On a long path cuts are small: a quarter would be reached after ten seconds, when all is the other's.
  const double part = late_from_ / (far_ ? 3 : 4);
  const bool gave_way = late_epochs_ > 0 && window_ <= std::max(part, 2.0 * options_.segment);
  if (late_epochs_ == 0 || (gave_way && queue <= late_queue_ / 2)) {
    late_from_ = window_;
    late_queue_ = queue;
    late_epochs_ = 1;
    return false;
  }
  return ++late_epochs_ > options_.yield_epochs && gave_way;
}

// A flow that fills a queue until it overflows leaves it empty for a few round trips at most.
bool DctcpSwift::is_alone(const Epoch::Totals& totals) {
  const bool knows = base_rtt_ <= Duration::zero() || totals.min_rtt <= 1.25 * Epoch::in_ns(base_rtt_);
  const bool empty = knows && totals.acked > 0 && queue_before_ <= (target(totals.min_rtt) - totals.min_rtt) / 4;
  empty_epochs_ = empty ? empty_epochs_ + 1 : 0;
  return empty_epochs_ >= options_.yield_epochs;
}

void DctcpSwift::compete(const Epoch::Totals& totals) {
  constexpr std::uint32_t kDrainEpochs = 256;
  // A flow that comes back was wrong to leave: it tests more rarely, up to every sixth loss.
  if (!competing_) {
    test_after_losses_ = std::clamp(test_after_losses_ + 1, far_ ? 3u : 1u, 6u);
    losses_ = empty_epochs_ = 0;
    // On a long path what was given away would take minutes to come back.
    if (far_) window_ = std::max(window_, late_from_);
    cubic_.start(window_, options_.segment);
  }
  competing_ = true;
  starting_ = false;
  late_epochs_ = severe_epochs_ = 0;
  before_loss_ = 0;
  if (far_ && is_alone(totals)) {
    competing_ = false;
    return;
  }
  // What is reported lost in the round trip after a cut left before it.
  const bool answered = std::exchange(answered_loss_, false) && far_;
  if (totals.lost > 0 && !answered) {
    const double less =
        far_ ? std::max<double>(cubic_.after_loss(window_), options_.segment) : cut_by(window_, options_, 0.5);
    if (++losses_ < test_after_losses_) {
      window_ = less;
      answered_loss_ = true;
      return;
    }
    losses_ = 0;
    start_drain(less, drained_part(totals));
    drain_left_ = 3;  // a deep queue takes one more
    return;
  }
  if (totals.lost <= 0 && was_used(totals, window_)) {
    // By time instead of round trips, so that the longer queue does not starve who waits in it.
    const double least = options_.segment * (far_ ? std::max(2.0, totals.rtt / kCompetingSegmentPer) : 1);
    const double next = far_ ? cubic_.grown(window_, totals.rtt, options_.segment, least) : window_ + least;
    window_ = std::min(next, static_cast<double>(options_.maximum));
  }
  if (++since_drain_ >= std::min(kDrainEpochs, options_.drain_epochs)) start_drain(window_, drained_part(totals));
}

void DctcpSwift::on_severe_loss(double loss) {
  starting_ = false;
  // A little less each time, or a window that is too large for a shallow buffer would come back forever.
  if (severe_epochs_ == 0) before_loss_ = std::max(window_, before_loss_ * 7 / 8);
  const double least = ++severe_epochs_ <= options_.burst_epochs ? before_loss_ / 4 : 0;
  window_ = std::max(std::min(least, window_), cut_by(window_, options_, std::min(loss, options_.max_cut)));
}

bool DctcpSwift::recover() {
  severe_epochs_ = 0;
  if (before_loss_ <= window_) return false;
  window_ = std::min(before_loss_, window_ + std::max<double>(options_.segment, before_loss_ / 4));
  if (window_ == before_loss_) before_loss_ = 0;
  return true;
}

// Of a long path's window the queue is a small part, and what leaves is missed for a long time.
double DctcpSwift::drained_part(const Epoch::Totals& totals) const {
  if (!far_) return 0.75;
  return std::clamp(2 * queue_before_ / std::max(1.0, totals.rtt), 0.5, 0.75);
}

void DctcpSwift::start_drain(double resume, double part) {
  resume_ = resume;
  window_ = cut_by(window_, options_, part);
  drain_left_ = 2;  // one until the queue is shorter, one to see it
  since_drain_ = 0;
  since_empty_ = 0;
}

std::uint64_t DctcpSwift::rate_bytes_per_s(Duration srtt) const { return paced_rate(window_, srtt); }

Dctcp::Dctcp(const Options& options) : options_(options), window_(static_cast<double>(options.initial)) {
  check(options);
}

void Dctcp::on_ack(const AckSample& sample, TimePoint now) {
  if (epoch_.on_ack(sample, now)) decide(epoch_.take(now));
}

void Dctcp::on_loss(std::uint64_t bytes, TimePoint now) {
  if (epoch_.on_loss(bytes, now)) decide(epoch_.take(now));
}

void Dctcp::decide(const Epoch::Totals& totals) {
  if (totals.acked > 0) alpha_ += options_.mark_gain * (totals.mark_fraction() - alpha_);
  if (totals.lost > 0 || totals.marked > 0) {
    window_ = cut_by(window_, options_, totals.lost > 0 ? 0.5 : alpha_ / 2);
    starting_ = false;
  } else if (was_used(totals, window_)) {
    window_ = grown(window_, options_, totals, starting_);
  }
}

std::uint64_t Dctcp::rate_bytes_per_s(Duration srtt) const { return paced_rate(window_, srtt); }

}  // namespace clustar::mlt
