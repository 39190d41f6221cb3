// When jobs that share a port should begin their iterations, so that one sends while the others compute: the circle of
// CASSINI (Rajasekaran et al., NSDI 2024) for jobs of about the same period. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/time.h"

namespace clustar::coflow::control {

struct Periodic {
  Duration period{0};  // from the start of an iteration's sending to the next; > 0
  Duration busy{0};    // of it its sending takes, alone, at the busiest port that it shares; < period
  Duration since{0};   // since the latest one began
};

struct ShiftOptions {
  double alike = 0.05;      // periods that differ by less are one
  double worthwhile = 0.1;  // of the shorter one's sending: overlaps of less are left as they are
};

// Jobs that share one port: by how much each one's next iteration is to begin later. The first ones stay as they are,
// so put first what is to be disturbed least. All 0 where periods differ, or sending does not fit into one: then
// nothing that is late once stays out of the others' way.
std::vector<Duration> holds(std::span<const Periodic> jobs, const ShiftOptions& options = {});

}  // namespace clustar::coflow::control
