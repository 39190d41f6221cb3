#include "bench/ab/verdict.h"

#include <fmt/format.h>

namespace clustar::bench::ab {
namespace {

constexpr std::uint64_t kBootstrapSeed = 1;  // equal measurements, equal intervals

std::string interval(const perf::RatioEstimate& estimate) {
  return fmt::format("{:.3f} (95 % interval {:.3f} to {:.3f})", estimate.ratio, estimate.low, estimate.high);
}

std::string text_of(const Verdict& verdict, std::size_t rounds) {
  const std::string measured = interval(verdict.ratio);
  switch (verdict.outcome) {
    case Outcome::kFaster: return fmt::format("The candidate is faster: {} times the baseline's images/s.", measured);
    case Outcome::kSlower: return fmt::format("The candidate is slower: {} times the baseline's images/s.", measured);
    case Outcome::kNoDifference: return fmt::format("No difference shown: {} times the baseline's images/s.", measured);
    case Outcome::kTooFewRounds:
      return fmt::format("No verdict from {} round{}, it takes {}; measured: {} times the baseline's images/s.", rounds,
                         rounds == 1 ? "" : "s", kRoundsForVerdict, measured);
    case Outcome::kAboveCeiling:
      return fmt::format(
          "FAILED: the candidate's {} times the baseline's images/s is above {:.3f}, what the same training reaches "
          "without any communication. No network can give that: something else than communication differs between "
          "the arms (compute settings, a machine that is busy at times, a plugin that does not deliver).",
          measured, verdict.ceiling.ratio);
  }
  return {};
}

}  // namespace

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kFaster: return "faster";
    case Outcome::kSlower: return "slower";
    case Outcome::kNoDifference: return "no difference shown";
    case Outcome::kTooFewRounds: return "too few rounds";
    case Outcome::kAboveCeiling: return "above the ceiling";
  }
  return "?";
}

Verdict judge(std::span<const double> baseline, std::span<const double> candidate, std::span<const double> ceiling) {
  Verdict verdict;
  verdict.ratio = perf::paired_ratio(candidate, baseline, kBootstrapSeed);
  verdict.ceiling = perf::paired_ratio(ceiling, baseline, kBootstrapSeed);
  const bool gain = verdict.ratio.low > 1;
  const bool enough = baseline.size() >= kRoundsForVerdict;
  // Few rounds have no honest interval (one has no width at all), so they cannot say that a gain is impossible.
  if (!enough) {
    verdict.outcome = Outcome::kTooFewRounds;
  } else if (gain && verdict.ratio.ratio > verdict.ceiling.ratio) {
    verdict.outcome = Outcome::kAboveCeiling;
  } else if (gain) {
    verdict.outcome = Outcome::kFaster;
  } else {
    verdict.outcome = verdict.ratio.high < 1 ? Outcome::kSlower : Outcome::kNoDifference;
  }
  verdict.text = text_of(verdict, baseline.size());
  return verdict;
}

}  // namespace clustar::bench::ab
