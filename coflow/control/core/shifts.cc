#include "coflow/control/core/shifts.h"

#include <algorithm>
#include <cmath>

namespace clustar::coflow::control {
namespace {

// A stretch of the circle: from `begin` on, in seconds, begin in [0, period).
struct Stretch {
  double begin = 0, length = 0;
};

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

double on_circle(double at, double period) {
  const double left = std::fmod(at, period);
  return left < 0 ? left + period : left;
}

// How much of two stretches is the same time.
double overlap(const Stretch& a, const Stretch& b, double period) {
  double common = 0;
  for (const double turn : {-period, 0.0, period}) {
    const double from = std::max(a.begin, b.begin + turn), to = std::min(a.begin + a.length, b.begin + b.length + turn);
    common += std::max(0.0, to - from);
  }
  return common;
}

}  // namespace

std::vector<Duration> holds(std::span<const Periodic> jobs, const ShiftOptions& options) {
  std::vector<Duration> none(jobs.size(), Duration(0));
  if (jobs.size() < 2) return none;
  double shortest = in_seconds(jobs[0].period), longest = shortest, busy = 0;
  for (const Periodic& job : jobs) {
    shortest = std::min(shortest, in_seconds(job.period));
    longest = std::max(longest, in_seconds(job.period));
    busy += in_seconds(job.busy);
  }
  if (shortest <= 0 || longest > shortest * (1 + options.alike) || busy > shortest) return none;
  const double period = (shortest + longest) / 2;
  std::vector<Stretch> placed;
  std::vector<Duration> held = none;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const Stretch as_is{on_circle(-in_seconds(jobs[i].since), period), in_seconds(jobs[i].busy)};
    const auto bad = [&](double hold) {
      const Stretch moved{on_circle(as_is.begin + hold, period), as_is.length};
      double common = 0;
      for (const Stretch& other : placed) common += overlap(moved, other, period);
      return common;
    };
    double best = 0, least = bad(0);
    if (least > options.worthwhile * as_is.length) {
      // The first free begin is behind the end of one of the others.
      std::vector<double> candidates;
      for (const Stretch& other : placed) {
        candidates.push_back(on_circle(other.begin + other.length - as_is.begin, period));
      }
      std::sort(candidates.begin(), candidates.end());
      for (const double hold : candidates) {
        const double common = bad(hold);
        if (common < least - 1e-9) {
          least = common;
          best = hold;
        }
      }
    }
    placed.push_back({on_circle(as_is.begin + best, period), as_is.length});
    held[i] = Duration(static_cast<Duration::rep>(best * 1e9));
  }
  return held;
}

}  // namespace clustar::coflow::control
