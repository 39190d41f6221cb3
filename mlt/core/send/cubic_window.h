// CUBIC's window in steps of a round trip: for flows that compete with it over a long path.
#pragma once

#include <algorithm>
#include <cmath>

namespace clustar::mlt {

// RFC 9438: a loss takes 0.3 of the window, and from there on its size depends on the time since the loss alone, not on
// how many round trips that were. Value type; windows and segments in bytes, round trips in ns.
class CubicWindow {
 public:
  // Competes from this window on, as if it had just come back to it after a loss.
  void start(double window, double segment) {
    max_ = window;
    since_ = plateau(segment);
  }
  // The window after a loss. A flow that lost before it was back gives up some of what it had: section 4.7.
  double after_loss(double window) {
    max_ = window < max_ ? window * (1 + kBeta) / 2 : window;
    since_ = 0;
    return window * kBeta;
  }
  // After a round trip without loss: `least` more at least, and half as much again at most (section 4.4).
  double grown(double window, double rtt, double segment, double least) {
    since_ += rtt * 1e-9;
    const double from_plateau = since_ - plateau(segment);
    const double wanted = max_ + kC * std::pow(from_plateau, 3) * segment;
    return std::max(window + least, std::min(wanted, 1.5 * window));
  }

 private:
  static constexpr double kC = 0.4;  // segments per s^3
  static constexpr double kBeta = 0.7;

  // Seconds from a loss until the window is back.
  double plateau(double segment) const { return std::cbrt(max_ / segment * (1 - kBeta) / kC); }

  double max_ = 0;
  double since_ = 0;  // s since the loss
};

}  // namespace clustar::mlt
