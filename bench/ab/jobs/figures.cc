#include "bench/ab/jobs/figures.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace clustar::bench::ab::jobs {
namespace {

constexpr std::uint64_t kSeed = 1;  // of the bootstrap

// The first mark at or after the window's begin and the last at or before its end.
std::optional<std::pair<Mark, Mark>> marks_within(const JobRun& job, const Window& window) {
  const auto first =
      std::find_if(job.marks.begin(), job.marks.end(), [&](const Mark& mark) { return mark.at_s >= window.from_s; });
  const auto last =
      std::find_if(job.marks.rbegin(), job.marks.rend(), [&](const Mark& mark) { return mark.at_s <= window.to_s; });
  if (first == job.marks.end() || last == job.marks.rend() || last->steps <= first->steps) return std::nullopt;
  return std::pair(*first, *last);
}

Speed speed(double seconds, std::size_t steps, std::optional<double> per_step) {
  const auto count = static_cast<double>(steps);
  Speed speed{.steps = steps, .step_s = seconds / count, .per_second = {}};
  if (per_step) speed.per_second = seconds > 0 ? *per_step * count / seconds : 0;
  return speed;
}

}  // namespace

std::optional<Window> common_window(std::span<const JobRun> jobs) {
  Window window{.from_s = 0, .to_s = std::numeric_limits<double>::infinity()};
  for (const JobRun& job : jobs) {
    if (job.marks.empty()) return std::nullopt;
    window.from_s = std::max(window.from_s, job.marks.front().at_s);
    window.to_s = std::min(window.to_s, job.marks.back().at_s);
  }
  for (const JobRun& job : jobs) {
    const auto ends = marks_within(job, window);
    if (!ends || ends->second.steps - ends->first.steps < kLeastSteps) return std::nullopt;
  }
  return window;
}

std::optional<Speed> speed_of(const JobRun& job, const std::optional<Window>& window) {
  std::size_t from = 0, to = job.step_s.size();
  if (window) {
    const auto ends = marks_within(job, *window);
    if (!ends) return std::nullopt;
    from = ends->first.steps;
    to = ends->second.steps;
    // Only so many steps are told one by one; of more there is the time between the marks, with what is between steps.
    if (to > job.step_s.size()) return speed(ends->second.at_s - ends->first.at_s, to - from, job.per_step);
  }
  if (to == from) return std::nullopt;
  const auto begin = job.step_s.begin();
  const double seconds =
      std::accumulate(begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(to), 0.0);
  return speed(seconds, to - from, job.per_step);
}

double jain(std::span<const double> values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 0;
}

double Together::sum_relative() const { return std::accumulate(relative.begin(), relative.end(), 0.0); }

double Together::least_relative() const {
  return relative.empty() ? 0 : *std::min_element(relative.begin(), relative.end());
}

std::optional<Together> together(std::span<const JobRun> jobs, std::span<const std::optional<JobRun>> alone,
                                 bool in_common) {
  const std::optional<Window> window = in_common ? common_window(jobs) : std::nullopt;
  Together round;
  round.in_common = window.has_value();
  bool all_alone = true;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto speed = speed_of(jobs[i], window);
    if (!speed || !(speed->step_s > 0)) return std::nullopt;
    round.per_second.push_back(speed->per_second);
    round.step_s.push_back(speed->step_s);
    const auto reference = alone[i] ? speed_of(*alone[i], std::nullopt) : std::nullopt;
    all_alone = all_alone && reference;
    if (all_alone) round.relative.push_back(reference->step_s / speed->step_s);
  }
  if (!all_alone) round.relative.clear();
  return round;
}

std::optional<perf::RatioEstimate> ratio_of(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || a.size() != b.size()) return std::nullopt;
  return perf::paired_ratio(b, a, kSeed);
}

}  // namespace clustar::bench::ab::jobs
