// What a replay comes to: completion times over all coflows and by kind.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bench/coflow/jobs.h"
#include "bench/coflow/replay.h"

namespace clustar::bench::coflow {

// Kinds of coflows, as Varys has them: short if the longest flow has less than 5 MiB, narrow up to 50 flows.
enum class Bin : std::uint8_t { kShortNarrow, kLongNarrow, kShortWide, kLongWide };
inline constexpr std::array<const char*, 4> kBinNames{"SN", "LN", "SW", "LW"};
Bin bin_of(const CoflowResult& coflow);

struct JobSummary {
  std::string name;
  double weight = 1;
  std::size_t iterations = 0;
  double mean_iteration_s = 0, p95_iteration_s = 0;
  // Mean of the iterations while all jobs ran; 0 without any, and where jobs wait for GPUs. The one under way when the
  // first job ends counts with what it has lasted by then where that is more than the mean of the others: a job that
  // starves until then has hardly any others.
  double contended_s = 0;
  double alone_s = 0;  // an iteration where nobody else sends
  double submitted_s = 0, began_s = 0, ended_s = 0;
  double completion_s() const { return ended_s - submitted_s; }
  double waited_s() const { return began_s - submitted_s; }                         // for GPUs
  double slowdown() const { return alone_s > 0 ? mean_iteration_s / alone_s : 1; }  // 1: it takes no time at all
};

// The mean of a figure of the jobs, &JobSummary::completion_s for one; 0 of none.
template <class Figure>
double mean_over(const std::vector<JobSummary>& jobs, Figure figure) {
  double sum = 0;
  for (const JobSummary& job : jobs) sum += std::invoke(figure, job);
  return jobs.empty() ? 0 : sum / static_cast<double>(jobs.size());
}

struct Summary {
  std::string policy;
  std::string rules;
  std::size_t coflows = 0;  // that ended
  std::size_t rejected = 0;
  std::size_t late = 0;  // of those with a deadline
  double average_s = 0, median_s = 0, p95_s = 0, p99_s = 0, max_s = 0;
  double weighted_average_s = 0;
  double makespan_s = 0;  // from time 0 to the last end
  double sum_ms = 0;
  std::array<double, 4> bin_average_s{};
  std::array<std::size_t, 4> bin_coflows{};
  double slowdown_mean = 0, slowdown_p95 = 0;  // completion time over what it takes alone
  double cpu_s = 0;
  double refill_ms = 0;  // Rules::refill
  std::uint64_t allocations = 0;
  std::vector<double> ccts_s, slowdowns;  // ascending
  std::vector<CoflowResult> each;         // as they were taken, if asked for
  std::vector<JobSummary> jobs;           // of a mix of jobs, as it has them
};

// Quantile q of n: the value at place ceil(q n), as CoflowSim's users count.
Summary summarize(const std::string& policy, const std::string& rules, const Replay& replay);
std::vector<JobSummary> summarize(const JobMix& mix, const std::vector<JobResult>& results);

}  // namespace clustar::bench::coflow
