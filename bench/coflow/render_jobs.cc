// A comparison of policies over jobs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/coflow/render.h"

namespace clustar::bench::coflow {
namespace {

const Summary* baseline(const Comparison& comparison) {
  const auto found = std::find_if(comparison.policies.begin(), comparison.policies.end(),
                                  [](const Summary& one) { return one.policy == "maxmin"; });
  return found == comparison.policies.end() ? nullptr : &*found;
}

std::string times(double value) { return fmt::format("{:.3f}x", value); }

// "-" where nothing can be compared.
std::string ratio(double fair, double one) { return one > 0 && fair > 0 ? times(fair / one) : "-"; }

std::string job_rows(const Comparison& comparison, std::size_t nth) {
  const Summary* fair = baseline(comparison);
  const JobSummary& first = comparison.policies.front().jobs[nth];
  std::string out = fmt::format("\n{}: {} iterations of {:.6g} s alone, weight {:.4g}\n", first.name, first.iterations,
                                first.alone_s, first.weight);
  out += fmt::format("  {:<24}{:>12}{:>12}{:>10}{:>10}{:>12}{:>10}\n", "iteration time, s", "mean", "p95", "/alone",
                     "maxmin/", "all run", "maxmin/");
  for (const Summary& one : comparison.policies) {
    const JobSummary& job = one.jobs[nth];
    out += fmt::format("  {:<24}{:>12.6f}{:>12.6f}{:>10}{:>10}{:>12}{:>10}\n", one.policy, job.mean_iteration_s,
                       job.p95_iteration_s, times(job.slowdown()),
                       ratio(fair == nullptr ? 0 : fair->jobs[nth].mean_iteration_s, job.mean_iteration_s),
                       job.contended_s > 0 ? fmt::format("{:.6f}", job.contended_s) : "-",
                       ratio(fair == nullptr ? 0 : fair->jobs[nth].contended_s, job.contended_s));
  }
  return out;
}

// Of the jobs of `one`, the one that has lost most against fair sharing: below 1 it has lost.
double worst_gain(const Summary& fair, const Summary& one) {
  double worst = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < one.jobs.size(); ++i) {
    const JobSummary &under_fair = fair.jobs[i], &job = one.jobs[i];
    if (job.mean_iteration_s <= 0) continue;
    worst = std::min(worst, under_fair.mean_iteration_s / job.mean_iteration_s);
    if (under_fair.contended_s > 0 && job.contended_s > 0) {
      worst = std::min(worst, under_fair.contended_s / job.contended_s);
    }
  }
  return worst;
}

// "-" where nothing can be compared, as no job takes any time.
std::string worst_ratio(const Summary* fair, const Summary& one) {
  const double worst = fair == nullptr ? std::numeric_limits<double>::infinity() : worst_gain(*fair, one);
  return std::isfinite(worst) ? times(worst) : "-";
}

std::string all_rows(const Comparison& comparison) {
  const Summary* fair = baseline(comparison);
  std::string out = fmt::format("\n{:<26}{:>13}{:>14}{:>15}{:>14}{:>9}\n", "all jobs", "mean /alone", "worst /alone",
                                "worst maxmin/", "makespan, s", "CPU s");
  for (const Summary& one : comparison.policies) {
    double worst = 0;
    for (const JobSummary& job : one.jobs) worst = std::max(worst, job.slowdown());
    out += fmt::format("{:<26}{:>13}{:>14}{:>15}{:>14.4f}{:>9.2f}\n", one.policy,
                       times(mean_over(one.jobs, &JobSummary::slowdown)), times(worst), worst_ratio(fair, one),
                       one.makespan_s, one.cpu_s);
  }
  return out;
}

// Of many jobs that wait for GPUs: averages.
std::string waiting_rows(const Comparison& comparison) {
  const Summary* fair = baseline(comparison);
  std::string out = fmt::format("\n{:<26}{:>12}{:>10}{:>10}{:>12}{:>16}{:>14}{:>9}\n", "averages over jobs, s",
                                "completion", "maxmin/", "waited", "/alone", "worst maxmin/", "makespan", "CPU s");
  const double of_fair = fair == nullptr ? 0 : mean_over(fair->jobs, &JobSummary::completion_s);
  for (const Summary& one : comparison.policies) {
    const double completion = mean_over(one.jobs, &JobSummary::completion_s);
    out += fmt::format("{:<26}{:>12.3f}{:>10}{:>10.3f}{:>12}{:>16}{:>14.2f}{:>9.2f}\n", one.policy, completion,
                       ratio(of_fair, completion), mean_over(one.jobs, &JobSummary::waited_s),
                       times(mean_over(one.jobs, &JobSummary::slowdown)), worst_ratio(fair, one), one.makespan_s,
                       one.cpu_s);
  }
  return out;
}

}  // namespace

std::string jobs_text(const Comparison& comparison) {
  const bool waiting = comparison.gpus_per_port > 0;
  std::string out = fmt::format(
      "{}: {} ports of {:.3g} Gbit/s{}, rules {}, load {:.2f} at the busiest port, {:.2f} in "
      "the mean\n",
      comparison.workload, comparison.ports, comparison.port_gbps,
      waiting ? fmt::format(" and {} GPUs", comparison.gpus_per_port) : "", comparison.rules, comparison.load.busiest,
      comparison.load.mean);
  if (comparison.policies.empty()) return out;
  if (waiting) {
    out += fmt::format("{} jobs, first come first served\n", comparison.policies.front().jobs.size());
    out += waiting_rows(comparison);
  }
  for (std::size_t nth = 0; !waiting && nth < comparison.policies.front().jobs.size(); ++nth) {
    out += job_rows(comparison, nth);
  }
  if (!waiting) out += all_rows(comparison);
  out += fmt::format(
      "\n/alone: mean iteration over one where nobody else sends. maxmin/: mean {} under max-min fair sharing over the "
      "policy's;\nworst, of all jobs' iterations the least: below 1 fair sharing is better for that job.{}\nload: "
      "{}.\n",
      waiting ? "completion" : "iteration", waiting ? "" : " all run: mean while all jobs run.",
      waiting ? "bytes over what ports carry until the last job ends, if none slowed another"
              : "each job's bytes over its iteration alone, summed");
  return out;
}

nlohmann::json jobs_json(const Summary& summary) {
  nlohmann::json jobs = nlohmann::json::array();
  for (const JobSummary& job : summary.jobs) {
    jobs.push_back({{"name", job.name},
                    {"iterations", job.iterations},
                    {"mean_iteration_s", job.mean_iteration_s},
                    {"p95_iteration_s", job.p95_iteration_s},
                    {"isolated_iteration_s", job.alone_s},
                    {"contended_iteration_s", job.contended_s},
                    {"slowdown", job.slowdown()},
                    {"weight", job.weight},
                    {"submitted_s", job.submitted_s},
                    {"began_s", job.began_s},
                    {"ended_s", job.ended_s}});
  }
  return jobs;
}

}  // namespace clustar::bench::coflow
