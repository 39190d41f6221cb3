#include "bench/coflow/summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace clustar::bench::coflow {
namespace {

double quantile(const std::vector<double>& ascending, double q) {
  if (ascending.empty()) return 0;
  const double place = std::ceil(q * static_cast<double>(ascending.size()));
  return ascending[static_cast<std::size_t>(std::max(place, 1.0)) - 1];
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return 0;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Of iterations within [from, to], in s, and of the one that `to` cuts off if it is longer by then. Of a job that got
// none done in that time, the longest that lasts into it.
double mean_within(const JobResult& result, double from, double to) {
  constexpr double kTimeRounding = 1e-9;
  double at = std::chrono::duration<double>(result.began - TimePoint{}).count();
  std::vector<double> within;
  double longest = 0, cut_off = 0;
  for (const double iteration_s : result.iterations_s) {
    if (at >= from - kTimeRounding && at + iteration_s <= to + kTimeRounding) within.push_back(iteration_s);
    if (at < to && at + iteration_s > from) longest = std::max(longest, iteration_s);
    if (at >= from - kTimeRounding && at < to && at + iteration_s > to + kTimeRounding) cut_off = to - at;
    at += iteration_s;
  }
  if (within.empty() && from < to) return longest;
  if (!within.empty() && cut_off > mean(within) + kTimeRounding) within.push_back(cut_off);
  return mean(within);
}

}  // namespace

Bin bin_of(const CoflowResult& coflow) {
  constexpr double kShort = 5 * 1048576.0;
  constexpr std::size_t kNarrow = 50;
  const bool is_long = coflow.longest_flow >= kShort, wide = coflow.flows > kNarrow;
  return wide ? (is_long ? Bin::kLongWide : Bin::kShortWide) : (is_long ? Bin::kLongNarrow : Bin::kShortNarrow);
}

Summary summarize(const std::string& policy, const std::string& rules, const Replay& replay) {
  Summary summary;
  summary.policy = policy;
  summary.rules = rules;
  summary.cpu_s = replay.cpu_s;
  summary.allocations = replay.allocations;
  std::vector<double>& slowdowns = summary.slowdowns;
  double weights = 0;
  for (const CoflowResult& one : replay.coflows) {
    if (one.rejected) {
      ++summary.rejected;
      continue;
    }
    ++summary.coflows;
    summary.late += one.late ? 1 : 0;
    const double cct = one.cct_s();
    summary.ccts_s.push_back(cct);
    summary.sum_ms += 1e3 * cct;
    summary.weighted_average_s += one.weight * cct;
    weights += one.weight;
    summary.makespan_s = std::max(summary.makespan_s, std::chrono::duration<double>(one.ended - TimePoint{}).count());
    if (one.flows == 0) continue;
    const auto bin = static_cast<std::size_t>(bin_of(one));
    ++summary.bin_coflows[bin];
    summary.bin_average_s[bin] += cct;
    slowdowns.push_back(cct / one.isolated_s);
  }
  for (std::size_t bin = 0; bin < kBinNames.size(); ++bin) {
    if (summary.bin_coflows[bin] > 0) summary.bin_average_s[bin] /= static_cast<double>(summary.bin_coflows[bin]);
  }
  if (weights > 0) summary.weighted_average_s /= weights;
  std::sort(summary.ccts_s.begin(), summary.ccts_s.end());
  std::sort(slowdowns.begin(), slowdowns.end());
  summary.average_s = mean(summary.ccts_s);
  summary.median_s = quantile(summary.ccts_s, 0.5);
  summary.p95_s = quantile(summary.ccts_s, 0.95);
  summary.p99_s = quantile(summary.ccts_s, 0.99);
  summary.max_s = quantile(summary.ccts_s, 1);
  summary.slowdown_mean = mean(slowdowns);
  summary.slowdown_p95 = quantile(slowdowns, 0.95);
  return summary;
}

std::vector<JobSummary> summarize(const JobMix& mix, const std::vector<JobResult>& results) {
  const auto seconds = [](TimePoint at) { return std::chrono::duration<double>(at - TimePoint{}).count(); };
  double all_from_s = 0, all_to_s = mix.gpus_per_port > 0 ? 0 : std::numeric_limits<double>::infinity();
  for (const JobResult& result : results) {
    all_from_s = std::max(all_from_s, seconds(result.began));
    all_to_s = std::min(all_to_s, seconds(result.ended));
  }
  std::vector<JobSummary> jobs;
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::vector<double> iterations = results[i].iterations_s;
    std::sort(iterations.begin(), iterations.end());
    jobs.push_back({.name = mix.jobs[i].name,
                    .weight = mix.jobs[i].weight,
                    .iterations = iterations.size(),
                    .mean_iteration_s = mean(iterations),
                    .p95_iteration_s = quantile(iterations, 0.95),
                    .contended_s = mean_within(results[i], all_from_s, all_to_s),
                    .alone_s = results[i].alone_s,
                    .submitted_s = seconds(mix.jobs[i].begins),
                    .began_s = seconds(results[i].began),
                    .ended_s = seconds(results[i].ended)});
  }
  return jobs;
}

}  // namespace clustar::bench::coflow
