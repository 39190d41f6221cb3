// What the rounds of a comparison are worth. Values in, values out.
#pragma once

#include <span>
#include <string>

#include "bench/perf/statistics.h"

namespace clustar::bench::ab {

inline constexpr int kRoundsForVerdict = 5;

enum class Outcome {
  kFaster,        // the candidate; the whole 95 % interval is above 1
  kSlower,        // the whole interval is below 1
  kNoDifference,  // the interval contains 1
  kTooFewRounds,
  kAboveCeiling,  // a gain that the network cannot have given: the measurement is wrong
};
const char* to_string(Outcome outcome);

struct Verdict {
  Outcome outcome = Outcome::kTooFewRounds;
  perf::RatioEstimate ratio;    // candidate / baseline, images per second
  perf::RatioEstimate ceiling;  // no communication / baseline
  std::string text;             // one or two sentences
};

// Images per second by round: equal lengths, at least one, all positive. kAboveCeiling: enough rounds, and a gain (the
// interval is above 1) whose ratio is above the ceiling's.
Verdict judge(std::span<const double> baseline, std::span<const double> candidate, std::span<const double> ceiling);

}  // namespace clustar::bench::ab
