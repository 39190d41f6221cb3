// What congestion controllers are told: acknowledgements, and their sums over a round trip.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/base/time.h"

namespace clustar::mlt {

// One acknowledgement, of one path or of all. Bytes are counted once over all paths. Implausible numbers (more marked
// than acknowledged, times that are not positive) are cut to what is possible.
struct AckSample {
  std::uint64_t bytes = 0;   // newly delivered
  std::uint64_t marked = 0;  // of them: arrived with CE
  Duration rtt{};            // of the newest packet it covers
  Duration min_rtt{};        // without queues: RttEstimator::min_rtt() of that path
};

// What happened within about one round trip: decisions fall once per epoch, on its means, so that one slow path of many
// does not decide alone.
class Epoch {
 public:
  struct Totals {
    double acked = 0;  // bytes
    double marked = 0;
    double lost = 0;
    double rtt = 0;      // ns, mean weighted by bytes
    double min_rtt = 0;  // ns, likewise
    double mark_fraction() const { return acked > 0 ? marked / acked : 0; }
    double loss_fraction() const { return lost > 0 ? lost / (lost + acked) : 0; }
  };

  // A round trip as controllers count it: 1 ns to 10 s, whatever the wire said.
  static double in_ns(Duration duration);

  // True: an epoch ended with this event, which it includes; take() it. Losses end one only when none but losses came
  // for two round trips, so that those reported before their acknowledgements are not judged alone. The first
  // acknowledgement after an idle time begins an epoch instead of ending one.
  bool on_ack(const AckSample& sample, TimePoint now);
  bool on_loss(std::uint64_t bytes, TimePoint now);
  Totals take(TimePoint now);
  // Bytes acknowledged since it began.
  double delivered() const { return delivered_; }
  // Marks, or a larger fraction lost than `severe`.
  bool saw_trouble(double severe) const { return sums_.marked > 0 || sums_.loss_fraction() > severe; }

 private:
  Duration round_trip() const { return Duration(static_cast<Duration::rep>(srtt_)); }

  Totals sums_;  // rtt and min_rtt: times bytes, until take()
  double delivered_ = 0;
  double srtt_ = 1e6;  // ns; until the first sample
  bool sampled_ = false;
  bool running_ = false;
  TimePoint end_{};
  TimePoint last_ack_{};
  std::optional<TimePoint> only_loss_since_;
};

}  // namespace clustar::mlt
