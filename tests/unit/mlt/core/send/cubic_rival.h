// CUBIC as Linux has it: RFC 9438 with HyStart's delay test (RFC 9406 without its conservative phase), a cut per round
// trip at most.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tests/unit/mlt/core/send/closed_loop.h"

namespace clustar::mlt {

class CubicRival : public Rival {
 public:
  double window_packets() const override { return window_; }

  void on_ack(Duration rtt, Duration min_rtt, TimePoint now) override {
    if (window_ < threshold_) {
      window_ += 1;
      if (queue_grew(rtt, min_rtt, now)) threshold_ = window_;
      return;
    }
    if (!in_epoch_) begin_epoch(now);
    const double t = std::chrono::duration<double>(now - epoch_ + min_rtt).count();
    const double target = std::clamp(max_ + kC * std::pow(t - plateau_, 3), window_, 1.5 * window_);
    reno_ += 3 * (1 - kBeta) / (1 + kBeta) / window_;
    window_ = std::max(window_ + (target - window_) / window_, reno_);
  }

  void on_loss(Duration rtt, TimePoint now) override {
    if (now < recovers_until_) return;
    recovers_until_ = now + rtt;
    max_ = window_ < max_ ? window_ * (1 + kBeta) / 2 : window_;
    threshold_ = window_ = std::max(2.0, window_ * kBeta);
    in_epoch_ = false;
  }

 private:
  static constexpr double kC = 0.4, kBeta = 0.7;
  static constexpr int kSamples = 8;  // of a round trip's first packets

  void begin_epoch(TimePoint now) {
    in_epoch_ = true;
    epoch_ = now;
    max_ = std::max(max_, window_);
    plateau_ = std::cbrt((max_ - window_) / kC);
    reno_ = window_;
  }

  bool queue_grew(Duration rtt, Duration min_rtt, TimePoint now) {
    using std::chrono::milliseconds;
    if (now >= round_ends_) {
      round_ends_ = now + rtt;
      samples_ = 0;
      least_ = rtt;
    }
    if (samples_ >= kSamples) return false;
    least_ = std::min(least_, rtt);
    const Duration more = std::clamp<Duration>(min_rtt / 8, milliseconds(4), milliseconds(16));
    return ++samples_ == kSamples && window_ > 16 && least_ > min_rtt + more;
  }

  double window_ = 10, threshold_ = 1e9, max_ = 0, plateau_ = 0, reno_ = 0;  // packets; plateau_: s
  bool in_epoch_ = false;
  TimePoint epoch_{}, recovers_until_{}, round_ends_{};
  Duration least_{};
  int samples_ = 0;
};

}  // namespace clustar::mlt
