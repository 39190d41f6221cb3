#include "bench/coflow/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "bench/coflow/page_parts.h"
#include "bench/coflow/summary.h"
#include "bench/report/page.h"

namespace clustar::bench::coflow {
namespace {

using nlohmann::json;
using report::escaped;
using report::show;

// Of those that rejected nothing: a policy that leaves out the hard ones has it easier.
const json* best_of(const json& results) {
  const json* best = nullptr;
  for (const json& row : results) {
    if (number(row, "rejected") > 0 || number(row, "coflows") == 0) continue;
    if (best == nullptr || number(row, "average_cct_s") < number(*best, "average_cct_s")) best = &row;
  }
  return best;
}

const json* baseline_of(const json& results) {
  for (const json& row : results) {
    if (row.at("policy") == kBaseline && number(row, "average_cct_s") > 0) return &row;
  }
  return nullptr;
}

std::optional<double> gain(const json* fair, const json& row) {
  if (fair == nullptr || number(row, "average_cct_s") <= 0) return std::nullopt;
  return number(*fair, "average_cct_s") / number(row, "average_cct_s");
}

std::string verdict(const json& results) {
  const json* best = best_of(results);
  if (best == nullptr) return "<div class=verdict>No coflow ended.</div>\n";
  const json* fair = baseline_of(results);
  const double seconds = number(*best, "average_cct_s");
  std::string words =
      results.size() == 1
          ? fmt::format("Under {} a coflow takes {:.3f} s on average", policy_of(*best), seconds)
          : fmt::format("The average completion time is shortest under {}: {:.3f} s", policy_of(*best), seconds);
  const auto times = gain(fair, *best);
  if (times && best != fair) {
    words += fmt::format(", {:.2f} times shorter than under max-min fair sharing ({:.3f} s)", *times,
                         number(*fair, "average_cct_s"));
  }
  if (fair == nullptr)
    words += "; max-min fair sharing was not replayed (--policy maxmin), so that no gain can be told";
  return fmt::format("<div class=\"verdict {}\">{}.</div>\n", times && best != fair ? "faster" : "", escaped(words));
}

std::string what_was_replayed(const json& document) {
  const json& workload = document.at("workload");
  const json& load = workload.at("load");
  const json& first = document.at("results").at(0);
  std::string words = fmt::format("{:.0f} coflows, {:.0f} ports of {:.3g} Gbit/s, rules {}; ",
                                  number(first, "coflows") + number(first, "rejected"), number(workload, "ports"),
                                  number(workload, "port_gbps"), first.at("rules").get<std::string>());
  words += number(load, "busiest") > 0 ? fmt::format("load {:.2f} at the busiest port, {:.2f} on average",
                                                     number(load, "busiest"), number(load, "mean"))
                                       : "all arrive at once";
  return report::page_title(document, show(workload.at("name")), escaped(words) + ".");
}

std::string cdf_plot(const json& results, const char* key, const std::string& title, const std::string& x_label) {
  report::LineChart chart{.title = title, .x_label = x_label, .y_label = "share", .log_x = true};
  for (std::size_t i = 0; i < results.size(); ++i) {
    report::Series series = series_of(policy_of(results[i]), i);
    series.points = steps_of(results[i].value(key, json::array()).get<Curve>());
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : line_chart(chart);
}

struct Column {
  const char* name;
  const char* key;
  int digits;
};
constexpr Column kColumns[] = {{"average", "average_cct_s", 3},  {"median", "median_cct_s", 3},
                               {"p95", "p95_cct_s", 3},          {"p99", "p99_cct_s", 2},
                               {"max", "max_cct_s", 2},          {"makespan", "makespan_s", 2},
                               {"slowdown", "mean_slowdown", 2}, {"slowdown, p95", "p95_slowdown", 2}};

std::string policy_table(const json& results) {
  std::vector<std::string> head{"completion time, s"};
  for (const Column& column : kColumns) head.emplace_back(column.name);
  head.insert(head.begin() + 2, "maxmin/");
  head.emplace_back("CPU s");
  std::string html = "<div class=scroll><table>" + report::row(head, "th");
  const json* fair = baseline_of(results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::vector<std::string> cells;
    for (const Column& column : kColumns) cells.push_back(best_cell(results, results[i], column.key, column.digits));
    const auto times = gain(fair, results[i]);
    cells.insert(cells.begin() + 1,
                 figure(times ? fmt::format("{:.2f}x", *times) : "-", times && *times < 1 ? "worse" : ""));
    cells.push_back(figure(fmt::format("{:.2f}", number(results[i], "cpu_s"))));
    html += "<tr>" + policy_row(policy_of(results[i]), i, cells) + "</tr>\n";
  }
  html += "</table></div>\n";
  for (const json& row : results) {
    if (number(row, "rejected") == 0) continue;
    html += fmt::format(
        "<p class=warning>{}: {:.0f} coflows rejected, since their deadlines cannot be kept; {:.0f} of {:.0f} were "
        "in time.</p>\n",
        escaped(policy_of(row)), number(row, "rejected"), number(row, "coflows") - number(row, "late"),
        number(row, "coflows"));
  }
  return html +
         "<p class=dim>The best of a column stands out. Slowdown: mean over coflows of the completion time over what "
         "it "
         "takes alone. maxmin/: average completion time under max-min fair sharing over the policy's.</p>\n";
}

std::string kinds_table(const json& results) {
  std::vector<std::string> head{"average by kind, s"};
  std::vector<std::string> kinds;
  for (const char* kind : kBinNames) {
    const double coflows = number(results.at(0).at("bins").at(kind), "coflows");
    if (coflows == 0) continue;
    kinds.emplace_back(kind);
    head.push_back(fmt::format("{} ({:.0f})", kind, coflows));
  }
  std::string html = "<div class=scroll><table>" + report::row(head, "th");
  for (std::size_t i = 0; i < results.size(); ++i) {
    std::vector<std::string> cells;
    for (const std::string& kind : kinds) {
      cells.push_back(best_cell(results, results[i], "bins/" + kind + "/average_cct_s", 3));
    }
    html += "<tr>" + policy_row(policy_of(results[i]), i, cells) + "</tr>\n";
  }
  return html +
         "</table></div>\n<p class=dim>S and L: longest flow below 5 MiB or not. N and W: up to 50 flows or more. In "
         "brackets: coflows of that kind.</p>\n";
}

std::string replay_page(const json& document) {
  const json& results = document.at("results");
  std::string html = report::page_head("clustar coflow replay: " + show(document.at("workload").at("name")));
  html += what_was_replayed(document) + verdict(results);
  html += "<div class=plots>\n" +
          cdf_plot(results, "cdf_cct_s", "Completion times, cumulative", "seconds (log scale)") +
          cdf_plot(results, "cdf_slowdown", "Slowdowns, cumulative",
                   "completion time over what it takes alone (log scale)") +
          "</div>\n";
  html += "<h2>Policies</h2>\n" + policy_table(results) + "<h2>By kind of coflow</h2>\n" + kinds_table(results);
  return html + report::page_end(document);
}

bool is_from(const json& document, const char* command) {
  return document.is_object() && document.value("command", json()) == command && document.contains("workload") &&
         document.contains("results") && document["results"].is_array() && !document["results"].empty();
}

}  // namespace

bool can_draw(const json& document) { return is_from(document, "coflow replay") || is_from(document, "coflow sweep"); }

Result<std::string> page(const json& document) {
  try {
    if (is_from(document, "coflow sweep")) return sweep_page(document);
    return document["results"][0].contains("jobs") ? jobs_page(document) : replay_page(document);
  } catch (const json::exception& error) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("it is not as clustar coflow --json writes it: {}", error.what()));
  }
}

}  // namespace clustar::bench::coflow
