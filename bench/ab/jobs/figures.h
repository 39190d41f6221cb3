// What the runs of several jobs are worth. Values in, values out.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/perf/statistics.h"

namespace clustar::bench::ab::jobs {

// So many steps had ended by then, in seconds since the run began.
struct Mark {
  double at_s = 0;
  std::size_t steps = 0;
};

// One job in one run.
struct JobRun {
  std::string name{};
  // Images, or 1 iteration. Nothing: its steps overlap, so that so many a second do not follow from how long they take.
  std::optional<double> per_step = 1;
  std::vector<double> step_s{};     // of each step, the first of them
  std::vector<Mark> marks{};        // rising in both
  double began_s = 0, ended_s = 0;  // of its processes
  std::string failure{};            // why it did not end well; empty: it did
};

struct Window {
  double from_s = 0, to_s = 0;
};
// While all jobs are in their steps: from the last one's first mark to the first one's last. Nothing: there is no such
// time, or one of them has fewer than kLeastSteps in it.
inline constexpr std::size_t kLeastSteps = 5;
std::optional<Window> common_window(std::span<const JobRun> jobs);

struct Speed {
  std::size_t steps = 0;
  double step_s = 0;                   // mean
  std::optional<double> per_second{};  // images or iterations; nothing where steps overlap
};
// Of the steps between the marks within the window, of all without one. Nothing: no step.
std::optional<Speed> speed_of(const JobRun& job, const std::optional<Window>& window);

// (sum x)^2 / (n sum x^2): 1 when all are equal, 1/n when one has all. 0 for none.
double jain(std::span<const double> values);

// A round of one arm. Speeds are as the jobs are in the file.
struct Together {
  bool in_common = false;  // speeds are those of the common window
  std::vector<std::optional<double>> per_second{};
  std::vector<double> step_s{};
  std::vector<double> relative{};  // to the job alone in the same round; empty: a job has no such run
  double sum_relative() const;
  double least_relative() const;
};

// `alone`: a run each, or nothing where that failed. None of `jobs` has failed. `in_common`: of the common window, if
// there is one; otherwise of whole runs.
std::optional<Together> together(std::span<const JobRun> jobs, std::span<const std::optional<JobRun>> alone,
                                 bool in_common = true);

// Rounds that both arms have, a value each: B over A.
std::optional<perf::RatioEstimate> ratio_of(std::span<const double> a, std::span<const double> b);

}  // namespace clustar::bench::ab::jobs
