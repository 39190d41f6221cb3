// The page of results.h.
#include "bench/report/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/ab/jobs/results.h"
#include "bench/ab/labels.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab::jobs {
namespace {

using nlohmann::json;
using report::escaped;
using report::row;
using report::show;

std::string spread_cell(const json& spread, int digits) {
  if (spread.is_null()) return "-";
  return fmt::format("{} ({} to {})", show(spread.at("median"), digits), show(spread.at("min"), digits),
                     show(spread.at("max"), digits));
}

std::string ratio_cell(const json& ratio) {
  if (ratio.is_null()) return "-";
  return fmt::format("{} ({} to {})", show(ratio.at("ratio")), show(ratio.at("low")), show(ratio.at("high")));
}

std::string settings_cell(const json& settings) {
  std::string text;
  for (const auto& [name, value] : settings.items()) text += (text.empty() ? "" : " ") + name + "=" + show(value);
  return text;
}

std::string jobs_table(const json& outcome) {
  const json& figures = outcome.at("figures");
  std::string text = "<div class=scroll><table>" + row({"job", "", "alone", "A", "B", "B/A (95 % interval)"}, "th");
  for (std::size_t i = 0; i < outcome.at("jobs").size(); ++i) {
    const json& job = outcome["jobs"].at(i);
    const json& alone = figures.at("alone").at(i);
    const json& a = figures.at("arms").at(0).at("jobs").at(i);
    const json& b = figures.at("arms").at(1).at("jobs").at(i);
    const bool is_queue = a.contains("completion_s");
    const json& ratio = figures.at("b_over_a").at("jobs").at(i);
    if (!is_queue) {
      text += row({show(job.at("job")), show(job.at("unit")) + "/s", spread_cell(alone.at("per_second"), 2),
                   spread_cell(a.at("per_second"), 2), spread_cell(b.at("per_second"), 2), ratio_cell(ratio)});
    }
    text += row({is_queue ? show(job.at("job")) : "", "mean step, s", spread_cell(alone.at("step_s"), 4),
                 spread_cell(a.at("step_s"), 4), spread_cell(b.at("step_s"), 4), ""});
    text += row(
        {"", "speed relative to alone", "1", spread_cell(a.at("relative"), 3), spread_cell(b.at("relative"), 3), ""});
    text += row({"", "start to end, s", "", spread_cell(a.at("done_s"), 1), spread_cell(b.at("done_s"), 1), ""});
    if (!is_queue) continue;
    text +=
        row({"", "mean completion, s", spread_cell(alone.at("completion_s"), 2), spread_cell(a.at("completion_s"), 2),
             spread_cell(b.at("completion_s"), 2), ratio_cell(figures.at("b_over_a").at("completion").at(i))});
    text += row({"", "waited for GPUs, s", spread_cell(alone.at("waited_s"), 2), spread_cell(a.at("waited_s"), 2),
                 spread_cell(b.at("waited_s"), 2), ""});
    text += row({"", "last job done after, s", spread_cell(alone.at("makespan_s"), 2),
                 spread_cell(a.at("makespan_s"), 2), spread_cell(b.at("makespan_s"), 2), ""});
  }
  const json& ratios = figures.at("b_over_a");
  const auto both = [&](const char* what, const char* key, const std::string& ratio) {
    text += row({"all", what, "", spread_cell(figures.at("arms").at(0).at(key), 3),
                 spread_cell(figures.at("arms").at(1).at(key), 3), ratio});
  };
  both("sum of relative speeds", "sum_relative", ratio_cell(ratios.at("sum_relative")));
  both("least relative speed", "least_relative", ratio_cell(ratios.at("least_relative")));
  both("Jain's fairness of them", "jain", "");
  if (!ratios.at("sum_per_second").is_null()) {
    text += row({"all", "sum of " + show(outcome["jobs"].at(0).at("unit")) + "/s", "", "", "",
                 ratio_cell(ratios["sum_per_second"])});
  }
  return text + "</table></div>\n";
}

std::string plot(const json& outcome) {
  std::vector<report::IntervalRow> rows;
  for (std::size_t i = 0; i < outcome.at("jobs").size(); ++i) {
    for (std::size_t arm = 0; arm < 2; ++arm) {
      const json& relative = outcome.at("figures").at("arms").at(arm).at("jobs").at(i).at("relative");
      if (relative.is_null()) continue;
      rows.push_back({.label = fmt::format("{}, {}", show(outcome["jobs"].at(i).at("job")), arm == 0 ? 'A' : 'B'),
                      .css_class = arm == 0 ? "a" : "b",
                      .value = relative.at("median"),
                      .low = relative.at("min"),
                      .high = relative.at("max")});
    }
  }
  if (rows.empty()) return {};
  return report::interval_chart("Speed of each job beside the others", "relative to alone; median and range", rows, 1);
}

std::string setup_table(const json& outcome) {
  std::string text = "<div class=scroll><table>" + row({"job", "what", "hosts", "starts, s", "settings"}, "th");
  for (const json& job : outcome.at("jobs")) {
    std::string hosts;
    for (const json& host : job.at("hosts")) hosts += (hosts.empty() ? "" : " ") + show(host);
    text += row({show(job.at("job")), show(job.at("what")), hosts, show(job.at("start_s"), 1),
                 settings_cell(job.at("settings"))});
  }
  return text + "</table></div>\n";
}

std::string runs_table(const json& outcome) {
  std::string text = "<div class=scroll><table>" + row({"round", "what", "s", "jobs", "dropped", ""}, "th");
  for (const json& run : outcome.at("runs")) {
    std::string jobs;
    for (const json& job : run.at("jobs")) {
      const bool by_step = job.at("per_second").is_null() && !job.at("step_s").is_null();
      jobs += fmt::format("{}{} {}", jobs.empty() ? "" : ", ", show(job.at("job")),
                          by_step ? show(job["step_s"], 4) + " s a step" : show(job.at("per_second"), 2) + "/s");
    }
    const json& failed = run.at("failed");
    text += row({show(run.at("round")), show(run.at("what")), show(run.at("wall_s"), 1), jobs,
                 show(run.at("dropped"), 0), failed.is_null() ? "" : "FAILED: " + show(failed)});
  }
  return text + "</table></div>\n";
}

}  // namespace

std::string page(const json& document) {
  const json& outcome = document.at("jobs");
  std::string text = report::page_head("clustar ab: jobs that share a fabric");
  text += report::page_title(
      document, fmt::format("{} jobs on one fabric", outcome.at("jobs").size()),
      fmt::format(
          "A: {}. B: {}. Rounds: {}; in each all jobs run together under A and under B, and each alone under A. "
          "Steps count while all jobs are in theirs. Fabric: {}.",
          escaped(show(outcome.at("arms").at(0).at("name"))), escaped(show(outcome.at("arms").at(1).at("name"))),
          show(outcome.at("options").at("rounds")), escaped(show(outcome.at("place").at("text")))));
  for (const json& warning : outcome.at("warnings")) {
    text += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  text += plot(outcome) + jobs_table(outcome) + setup_table(outcome);
  text += "<details><summary>All runs</summary>" + runs_table(outcome) + "</details>\n";
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : outcome.at("options").items())
    rows.push_back({option_label(name), option_text(value)});
  return text + report::page_end(document, rows);
}

}  // namespace clustar::bench::ab::jobs
