#include "mlt/core/send/epoch.h"

#include <algorithm>

namespace clustar::mlt {

namespace {

constexpr std::uint64_t kMaxBytes = 1ull << 40;  // of one event; larger ones are cut

}  // namespace

double Epoch::in_ns(Duration duration) {
  constexpr double kMaxRtt = 10e9;  // ns
  return std::clamp(static_cast<double>(duration.count()), 1.0, kMaxRtt);
}

bool Epoch::on_ack(const AckSample& sample, TimePoint now) {
  const auto bytes = static_cast<double>(std::min(sample.bytes, kMaxBytes));
  const double rtt = in_ns(sample.rtt);
  sums_.acked += bytes;
  sums_.marked += static_cast<double>(std::min({sample.marked, sample.bytes, kMaxBytes}));
  sums_.rtt += rtt * bytes;
  sums_.min_rtt += std::min(rtt, in_ns(sample.min_rtt)) * bytes;
  srtt_ = sampled_ ? srtt_ + (rtt - srtt_) / 8 : rtt;
  sampled_ = true;
  const bool idle = now - last_ack_ > 2 * round_trip() && now >= end_;
  last_ack_ = now;
  only_loss_since_.reset();
  if (!running_ || idle) {
    running_ = true;
    end_ = now + round_trip();
    delivered_ = bytes;
    return false;
  }
  delivered_ += bytes;
  if (end_ - now > 4 * round_trip()) end_ = now + round_trip();  // one absurd sample, as of a clock that jumped
  return now >= end_;
}

bool Epoch::on_loss(std::uint64_t bytes, TimePoint now) {
  sums_.lost += static_cast<double>(std::min(bytes, kMaxBytes));
  if (!only_loss_since_) only_loss_since_ = now;
  return now >= end_ && now - *only_loss_since_ >= 2 * round_trip();
}

Epoch::Totals Epoch::take(TimePoint now) {
  Totals totals = sums_;
  if (totals.acked > 0) {
    totals.rtt /= totals.acked;
    totals.min_rtt /= totals.acked;
  }
  sums_ = {};
  delivered_ = 0;
  only_loss_since_.reset();
  end_ = now + round_trip();
  return totals;
}

}  // namespace clustar::mlt
