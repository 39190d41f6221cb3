// Round-trip time of one connection or path, and how long to wait for an answer.
#pragma once

#include <algorithm>
#include <array>

#include "mlt/core/options_check.h"
#include "transport/base/time.h"

namespace clustar::mlt {

struct RttOptions {
  Duration initial = std::chrono::milliseconds(1);        // srtt before the first sample: floor's order, not 1 s
  Duration floor = std::chrono::microseconds(500);        // of probe_timeout(), 1 us .. cap
  Duration cap = std::chrono::milliseconds(100);          // of probe_timeout(), or four times the minimum, <= 10 s
  Duration min_window = std::chrono::seconds(10);         // how long a minimum counts, as BBR's, > 0
  Duration peak_window = std::chrono::milliseconds(250);  // how long a maximum counts, twice as long at most, > 0
};

// Gains of RFC 6298, section 2 (1/8 and 1/4). The minimum over a sliding window keeps three candidates, as K. Nichols'
// filter in Linux (lib/win_minmax.c) does: it may lag by a fraction of the window, and never forgets all of it at once.
class RttEstimator {
 public:
  static constexpr Duration kMaxSample = std::chrono::seconds(10);  // larger ones are an echo gone wrong

  RttEstimator() : RttEstimator(RttOptions{}) {}
  explicit RttEstimator(const RttOptions& options)  // std::invalid_argument
      : options_(options) {
    require_option(options.initial > Duration::zero() && options.initial <= kMaxSample,
                   "RttEstimator: initial must be 1 ns .. 10 s");
    require_option(options.floor >= std::chrono::microseconds(1) && options.floor <= options.cap,
                   "RttEstimator: floor must be 1 us .. cap");
    require_option(options.cap <= kMaxSample, "RttEstimator: cap must be at most 10 s");
    require_option(options.min_window > Duration::zero(), "RttEstimator: min_window must be above 0");
    require_option(options.peak_window > Duration::zero(), "RttEstimator: peak_window must be above 0");
  }

  // Samples outside (0, kMaxSample] are ignored: they come from the wire.
  void sample(Duration rtt, TimePoint now) { sample(rtt, rtt, now); }
  // `network`: without what hosts let it wait, at most `rtt`; only the minimum goes by it.
  void sample(Duration rtt, Duration network, TimePoint now) {
    if (network <= Duration::zero() || network > rtt || rtt > kMaxSample) return;
    track_peak(rtt, now);
    if (!has_sample_) {
      srtt_ = rtt;
      rttvar_ = rtt / 2;
      has_sample_ = true;
      minimum_.fill({network, now});
      return;
    }
    smooth(rtt);
    track_minimum(network, now);
  }
  // It took so long at least: makes more patient, and says nothing of the minimum.
  void at_least(Duration rtt, TimePoint now) {
    if (rtt <= Duration::zero() || rtt > kMaxSample) return;
    track_peak(rtt, now);
    if (has_sample_ && rtt > srtt_) smooth(rtt);
  }

  bool has_sample() const { return has_sample_; }
  Duration srtt() const { return has_sample_ ? srtt_ : options_.initial; }
  Duration rttvar() const { return has_sample_ ? rttvar_ : options_.initial / 2; }
  Duration min_rtt() const { return has_sample_ ? minimum_[0].rtt : options_.initial; }
  // On a long path options.cap is no time to wait for an answer.
  Duration cap() const { return has_sample_ ? std::max(options_.cap, 4 * minimum_[0].rtt) : options_.cap; }
  // What was sent so long ago has arrived or is lost: 1.25 times the longest recent round trip, within cap, since a
  // queue that was there comes back and srtt() forgets it within a few packets; and 1.25 srtt() at least, whatever that
  // is.
  Duration patience() const {
    const Duration peak = std::min(std::max(peaks_[0], peaks_[1]), cap());
    return std::max(srtt(), peak) * 5 / 4;
  }
  // srtt + 4 rttvar, and patience() at least, within [floor, cap]; the caller doubles it for each probe in vain.
  Duration probe_timeout() const {
    return std::clamp(std::max(srtt() + 4 * rttvar(), patience()), options_.floor, cap());
  }

 private:
  struct Candidate {
    Duration rtt{};
    TimePoint at{};
  };

  void smooth(Duration rtt) {
    const Duration error = rtt - srtt_;
    rttvar_ += (std::max(error, -error) - rttvar_) / 4;  // before srtt, RFC 6298 (2.3)
    srtt_ += error / 8;
  }

  // The maxima of this span of time and of the one before.
  void track_peak(Duration rtt, TimePoint now) {
    if (now - peak_since_ > options_.peak_window) {
      peaks_[1] = now - peak_since_ > 2 * options_.peak_window ? Duration::zero() : peaks_[0];
      peaks_[0] = Duration::zero();
      peak_since_ = now;
    }
    peaks_[0] = std::max(peaks_[0], rtt);
  }

  // minimum_: best, second best after it, third best after that.
  void track_minimum(Duration rtt, TimePoint now) {
    const Candidate candidate{rtt, now};
    if (rtt <= minimum_[0].rtt || now - minimum_[2].at > options_.min_window) {
      minimum_.fill(candidate);
      return;
    }
    if (rtt <= minimum_[1].rtt) {
      minimum_[1] = minimum_[2] = candidate;
    } else if (rtt <= minimum_[2].rtt) {
      minimum_[2] = candidate;
    }
    const Duration age = now - minimum_[0].at;
    if (age > options_.min_window) {
      minimum_ = {minimum_[1], minimum_[2], candidate};
      if (now - minimum_[0].at > options_.min_window) minimum_ = {minimum_[1], minimum_[2], candidate};
    } else if (minimum_[1].at == minimum_[0].at && age > options_.min_window / 4) {
      minimum_[1] = minimum_[2] = candidate;  // a quarter passed without a second choice
    } else if (minimum_[2].at == minimum_[1].at && age > options_.min_window / 2) {
      minimum_[2] = candidate;
    }
  }

  RttOptions options_;
  bool has_sample_ = false;
  Duration srtt_{};
  Duration rttvar_{};
  std::array<Candidate, 3> minimum_{};
  std::array<Duration, 2> peaks_{};
  TimePoint peak_since_{};
};

}  // namespace clustar::mlt
