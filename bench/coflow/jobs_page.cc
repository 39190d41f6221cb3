// The page of a replay of jobs: of few that have their ports, job by job; of many that wait for GPUs, distributions.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/coflow/cdf.h"
#include "bench/coflow/page_parts.h"
#include "bench/coflow/sweep.h"
#include "bench/report/page.h"

namespace clustar::bench::coflow {
namespace {

using nlohmann::json;
using report::escaped;
using report::show;

bool waiting(const json& document) { return document.at("workload").value("gpus_per_port", 0) > 0; }

const json* fair_of(const json& results) {
  const auto found =
      std::find_if(results.begin(), results.end(), [](const json& row) { return policy_of(row) == kBaseline; });
  return found == results.end() ? nullptr : &*found;
}

// What is compared of a job, in s; 0: it has none.
using OfJob = double (*)(const json& job);
double iteration_s(const json& job) { return number(job, "mean_iteration_s"); }
double contended_s(const json& job) { return number(job, "contended_iteration_s"); }
double job_completion_s(const json& job) { return number(job, "ended_s") - number(job, "submitted_s"); }
double waited_s(const json& job) { return number(job, "began_s") - number(job, "submitted_s"); }
double job_slowdown(const json& job) { return number(job, "slowdown"); }

double mean_of(const json& row, OfJob of) {
  double sum = 0;
  for (const json& job : row.at("jobs")) sum += of(job);
  return row.at("jobs").empty() ? 0 : sum / static_cast<double>(row.at("jobs").size());
}

std::optional<double> times_of(double of, double over) {
  if (of <= 0 || over <= 0) return std::nullopt;
  return of / over;
}

// Fair sharing's over the policy's of the same job: ascending, of those that have both.
std::vector<double> gains_of(const json& fair, const json& row, OfJob of) {
  std::vector<double> gains;
  for (std::size_t i = 0; i < row.at("jobs").size(); ++i) {
    if (const auto gain = times_of(of(fair.at("jobs").at(i)), of(row["jobs"][i]))) gains.push_back(*gain);
  }
  std::sort(gains.begin(), gains.end());
  return gains;
}

// Of all jobs' iterations, of all of them and of those while all jobs run.
std::optional<double> worst_of(const json* fair, const json& row) {
  if (fair == nullptr) return std::nullopt;
  std::vector<double> worst;
  for (const OfJob of : {iteration_s, contended_s}) {
    const auto gains = gains_of(*fair, row, of);
    if (!gains.empty()) worst.push_back(gains.front());
  }
  if (worst.empty()) return std::nullopt;
  return *std::min_element(worst.begin(), worst.end());
}

std::string gain_cell(std::optional<double> gain) {
  return figure(gain ? fmt::format("{:.3f}x", *gain) : "-", gain && *gain < kWorseBelow ? "worse" : "");
}

std::string which_jobs(const json& document) {
  const json& workload = document.at("workload");
  const json& first = document.at("results").at(0);
  const std::size_t jobs = first.at("jobs").size();
  std::string words = fmt::format("{} training job{}, ", jobs, jobs == 1 ? "" : "s");
  if (waiting(document)) words += "first come first served; ";
  words += fmt::format("{:.0f} ports of {:.3g} Gbit/s", number(workload, "ports"), number(workload, "port_gbps"));
  if (waiting(document)) words += fmt::format(" with {:.0f} GPUs each", number(workload, "gpus_per_port"));
  words += fmt::format("; rules {}. Load {:.2f} at the busiest port, {:.2f} on average: {}.",
                       first.at("rules").get<std::string>(), number(workload.at("load"), "busiest"),
                       number(workload.at("load"), "mean"),
                       waiting(document) ? "bytes over what ports carry until the last job ends, if none slowed another"
                                         : "each job's bytes over what its ports carry in an iteration alone, summed");
  return report::page_title(document, show(workload.at("name")), escaped(words));
}

std::string of_the_worst(std::optional<double> worst) {
  if (!worst) return "";
  if (*worst >= kWorseBelow) {
    return fmt::format(" No job's iterations are slower than under max-min fair sharing (worst: {:.3f} times as fast).",
                       *worst);
  }
  return fmt::format(
      " The job that loses most by it has iterations {:.3f} times as fast as under max-min fair sharing.", *worst);
}

std::string jobs_verdict(const json& document) {
  const json& results = document.at("results");
  const OfJob of = waiting(document) ? job_completion_s : job_slowdown;
  if (results.at(0).at("jobs").empty()) return "<div class=verdict>No job ran.</div>\n";
  const auto& best = *std::min_element(results.begin(), results.end(),
                                       [&](const json& a, const json& b) { return mean_of(a, of) < mean_of(b, of); });
  const json* fair = fair_of(results);
  const bool only = results.size() == 1, gained = fair != nullptr && &best != fair;
  std::string words;
  if (waiting(document)) {
    words = fmt::format("{} {}: {:.3f} s after {} submission",
                        only ? "On average a job ends under" : "On average jobs end soonest under", policy_of(best),
                        mean_of(best, of), only ? "its" : "their");
    if (gained) {
      words += fmt::format(", {:.3f} times sooner than under max-min fair sharing ({:.3f} s)",
                           mean_of(*fair, of) / mean_of(best, of), mean_of(*fair, of));
    }
  } else {
    words =
        fmt::format("{} {}: {:.3f} times as long as alone on average over jobs",
                    only ? "Iterations under" : "Iterations are shortest under", policy_of(best), mean_of(best, of));
    if (gained) words += fmt::format("; under max-min fair sharing {:.3f} times", mean_of(*fair, of));
  }
  words +=
      fair == nullptr ? "; max-min fair sharing was not replayed (--policy maxmin), so that no gain can be told." : ".";
  const auto worst = gained ? worst_of(fair, best) : std::nullopt;
  const bool faster = gained && worst.value_or(0) >= kWorseBelow;
  return fmt::format("<div class=\"verdict {}\">{}</div>\n", faster ? "faster" : "",
                     escaped(words + of_the_worst(worst)));
}

std::string jobs_table(const json& results, const std::vector<std::string>& head,
                       const std::function<std::vector<std::string>(const json& row)>& cells_of) {
  std::string html = "<div class=scroll><table>" + report::row(head, "th");
  for (std::size_t i = 0; i < results.size(); ++i) {
    html += "<tr>" + policy_row(policy_of(results[i]), i, cells_of(results[i])) + "</tr>\n";
  }
  return html + "</table></div>\n";
}

// A policy's number of all jobs; the least of them stands out.
std::string mean_cell(const json& results, const json& row, OfJob of) {
  double least = std::numeric_limits<double>::infinity();
  for (const json& one : results) least = std::min(least, mean_of(one, of));
  const double mean = mean_of(row, of);
  return figure(fmt::format("{:.3f}", mean), results.size() > 1 && mean <= least ? "best" : "");
}

std::string all_jobs_table(const json& results) {
  const json* fair = fair_of(results);
  return jobs_table(results, {"all jobs", "mean /alone", "worst /alone", "worst maxmin/", "makespan, s", "CPU s"},
                    [&](const json& row) -> std::vector<std::string> {
                      double worst = 0;
                      for (const json& job : row.at("jobs")) worst = std::max(worst, job_slowdown(job));
                      return {mean_cell(results, row, job_slowdown), figure(fmt::format("{:.3f}", worst)),
                              gain_cell(worst_of(fair, row)), best_cell(results, row, "makespan_s", 4),
                              figure(fmt::format("{:.2f}", number(row, "cpu_s")))};
                    });
}

std::string waiting_table(const json& results) {
  const json* fair = fair_of(results);
  return jobs_table(results,
                    {"averages over jobs, s", "completion", "maxmin/", "jobs that end later", "waited",
                     "iteration /alone", "worst maxmin/", "makespan, s", "CPU s"},
                    [&](const json& row) -> std::vector<std::string> {
                      const auto gains =
                          fair == nullptr ? std::vector<double>() : gains_of(*fair, row, job_completion_s);
                      const auto later = std::lower_bound(gains.begin(), gains.end(), kWorseBelow) - gains.begin();
                      const double fair_s = fair == nullptr ? 0 : mean_of(*fair, job_completion_s);
                      return {mean_cell(results, row, job_completion_s),
                              gain_cell(times_of(fair_s, mean_of(row, job_completion_s))),
                              figure(fair == nullptr ? "-" : fmt::format("{} of {}", later, gains.size())),
                              mean_cell(results, row, waited_s),
                              mean_cell(results, row, job_slowdown),
                              gain_cell(worst_of(fair, row)),
                              best_cell(results, row, "makespan_s", 2),
                              figure(fmt::format("{:.2f}", number(row, "cpu_s")))};
                    });
}

// A row for each policy: a job's time over another of the same job, and as a ring the same while all jobs run.
template <class Over>
std::string job_chart(const json& results, std::size_t nth, const std::string& title, Over over) {
  std::vector<report::IntervalRow> rows;
  bool rings = false;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const json& job = results[i].at("jobs").at(nth);
    const auto all = over(job, iteration_s), ring = over(job, contended_s);
    if (!all) continue;
    const double other = ring.value_or(*all);
    rows.push_back({policy_of(results[i]), series_of(policy_of(results[i]), i).css_class, *all, std::min(*all, other),
                    std::max(*all, other), ring});
    rings = rings || ring;
  }
  if (rows.empty()) return "";
  return interval_chart(title, rings ? "times; dot: all iterations, ring: while all jobs run" : "times", rows, 1);
}

std::string job_part(const json& results, std::size_t nth) {
  const json* fair = fair_of(results);
  const json& first = results.at(0).at("jobs").at(nth);
  std::string html = fmt::format(
      "<h2>Job {}</h2>\n<p>{:.0f} iterations, {:.6g} s each where nobody else sends; weight {:.4g}.</p>\n<div "
      "class=plots>\n",
      escaped(show(first.at("name"))), number(first, "iterations"), number(first, "isolated_iteration_s"),
      number(first, "weight"));
  html += job_chart(results, nth, "Iteration time over that alone",
                    [](const json& job, OfJob of) { return times_of(of(job), number(job, "isolated_iteration_s")); });
  if (fair != nullptr) {
    html += job_chart(results, nth, "Max-min's iteration time over the policy's",
                      [&](const json& job, OfJob of) { return times_of(of(fair->at("jobs").at(nth)), of(job)); });
  }
  const auto cells = [&](const json& row) -> std::vector<std::string> {
    const json& job = row.at("jobs").at(nth);
    const std::string path = fmt::format("jobs/{}/", nth);
    const auto gain = [&](OfJob of) {
      return gain_cell(fair == nullptr ? std::nullopt : times_of(of(fair->at("jobs").at(nth)), of(job)));
    };
    return {best_cell(results, row, path + "mean_iteration_s", 6),
            best_cell(results, row, path + "p95_iteration_s", 6),
            figure(fmt::format("{:.3f}x", job_slowdown(job))),
            gain(iteration_s),
            contended_s(job) > 0 ? best_cell(results, row, path + "contended_iteration_s", 6) : figure("-"),
            gain(contended_s)};
  };
  return html + "</div>\n" +
         jobs_table(results, {"iteration time, s", "mean", "p95", "/alone", "maxmin/", "all run", "maxmin/"}, cells);
}

template <class ValuesOf>
std::string jobs_cdf(const json& results, report::LineChart chart, ValuesOf values_of) {
  chart.y_label = "share";
  chart.log_x = true;
  for (std::size_t i = 0; i < results.size(); ++i) {
    report::Series series = series_of(policy_of(results[i]), i);
    series.points = steps_of(cdf(values_of(results[i])));
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : line_chart(chart);
}

std::string waiting_plots(const json& results) {
  std::string html = "<div class=plots>\n";
  const json* fair = fair_of(results);
  const auto against_fair = [&](const char* title, OfJob of) {
    const report::LineChart chart{.title = title,
                                  .x_label = "times (log scale); above 1 the job is better off",
                                  .x_level = 1,
                                  .level_label = "max-min fair sharing"};
    return jobs_cdf(results, chart, [&](const json& row) {
      return policy_of(row) == kBaseline ? std::vector<double>() : gains_of(*fair, row, of);
    });
  };
  if (fair != nullptr) {
    html += against_fair("Jobs by max-min's completion time over the policy's, cumulative", job_completion_s);
    html += against_fair("Jobs by max-min's iteration time over the policy's, cumulative", iteration_s);
  }
  html +=
      jobs_cdf(results, {.title = "Jobs by iteration time over that alone, cumulative", .x_label = "times (log scale)"},
               [](const json& row) {
                 std::vector<double> slowdowns;
                 for (const json& job : row.at("jobs")) slowdowns.push_back(job_slowdown(job));
                 std::sort(slowdowns.begin(), slowdowns.end());
                 return slowdowns;
               });
  return html + "</div>\n";
}

std::string explained(bool waits) {
  return fmt::format(
      "<p class=dim>The best of a column stands out. /alone: mean iteration over one where nobody else sends. maxmin/: "
      "mean {} under max-min fair sharing over the policy's; worst, of all jobs' iterations the least: below 1 fair "
      "sharing is better for that job.{}</p>\n",
      waits ? "completion, from submission to end," : "iteration",
      waits ? "" : " all run: mean of the iterations while all jobs run.");
}

}  // namespace

std::string jobs_page(const json& document) {
  const json& results = document.at("results");
  const bool waits = waiting(document);
  std::string html = report::page_head("clustar coflow replay: " + show(document.at("workload").at("name")));
  html += which_jobs(document) + jobs_verdict(document);
  if (waits) html += waiting_plots(results);
  html += waits ? "<h2>Policies</h2>\n" + waiting_table(results) : "<h2>All jobs</h2>\n" + all_jobs_table(results);
  html += explained(waits);
  for (std::size_t nth = 0; !waits && nth < results.at(0).at("jobs").size(); ++nth) html += job_part(results, nth);
  return html + report::page_end(document);
}

}  // namespace clustar::bench::coflow
