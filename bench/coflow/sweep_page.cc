// The page of a sweep.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/coflow/page_parts.h"
#include "bench/coflow/sweep.h"
#include "bench/report/page.h"

namespace clustar::bench::coflow {
namespace {

using nlohmann::json;
using report::escaped;

std::string key_of(const Figure& figure) { return std::string(figure.key) + "_ratio"; }

std::vector<std::string> policies_of(const json& document) {
  return document.at("workload").at("policies").get<std::vector<std::string>>();
}

std::vector<std::string> load_names(const json& document) {
  std::vector<std::string> names;
  for (const json& load : document.at("workload").at("loads")) names.push_back(fmt::format("{}", load.get<double>()));
  return names;
}

// Over all loads.
struct Total {
  std::size_t worse = 0, runs = 0;
  double least = std::numeric_limits<double>::infinity();
};
Total total_of(const json& document, const std::string& policy, const Figure& figure) {
  Total total;
  for (const json& row : document.at("results")) {
    if (row.at("policy") != policy) continue;
    const json& ratio = row.at(key_of(figure));
    total.worse += ratio.at("worse_runs").get<std::size_t>();
    total.runs += ratio.at("runs").get<std::size_t>();
    total.least = std::min(total.least, number(ratio, "least"));
  }
  return total;
}

std::string sweep_verdict(const json& document) {
  std::vector<std::string> never, sometimes, otherwise;
  for (const std::string& policy : policies_of(document)) {
    const Total total = total_of(document, policy, kFigures[0]);
    if (total.worse == 0) never.push_back(fmt::format("{} (worst run: {:.3f} times better)", policy, total.least));
    if (total.worse > 0) {
      sometimes.push_back(
          fmt::format("{} in {} of {} runs (worst: {:.3f})", policy, total.worse, total.runs, total.least));
    }
    for (std::size_t i = 1; i < kFigures.size(); ++i) {
      const Total other = total_of(document, policy, kFigures[i]);
      if (other.worse == 0) continue;
      otherwise.push_back(fmt::format("{} by {} in {} of {} runs", policy, kFigures[i].name, other.worse, other.runs));
    }
  }
  std::string words;
  if (!never.empty()) {
    words = fmt::format("Never worse than max-min fair sharing in the average completion time: {}. ",
                        fmt::join(never, ", "));
  }
  if (!sometimes.empty()) words += fmt::format("Worse in it: {}. ", fmt::join(sometimes, ", "));
  if (!otherwise.empty()) words += fmt::format("Worse by another figure: {}.", fmt::join(otherwise, ", "));
  return fmt::format("<div class=\"verdict {}\">{}</div>\n", sometimes.empty() ? "faster" : "slower", escaped(words));
}

// Beside each other about their load, so that their spreads are told apart.
double place_of(std::size_t load, std::size_t policy, std::size_t policies) {
  const double width = std::min(0.6, 0.12 * static_cast<double>(policies - 1));
  if (policies < 2) return static_cast<double>(load);
  return static_cast<double>(load) + width * (static_cast<double>(policy) / static_cast<double>(policies - 1) - 0.5);
}

std::string ratio_plot(const json& document, const Figure& figure, const std::string& title) {
  report::LineChart chart{.title = title,
                          .x_label = "load of the busiest port",
                          .y_label = "times",
                          .x_names = load_names(document),
                          .from_zero = false,
                          .level = 1.0,
                          .level_label = "max-min fair sharing"};
  const auto policies = policies_of(document);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    report::Series series = series_of(policies[i], i);
    series.markers = true;
    for (const json& row : document.at("results")) {
      if (row.at("policy") != policies[i]) continue;
      const json& ratio = row.at(key_of(figure));
      series.points.emplace_back(place_of(series.points.size(), i, policies.size()), number(ratio, "mean"));
      series.spread.emplace_back(number(ratio, "least"), number(ratio, "most"));
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string counts_table(const json& document) {
  std::vector<std::string> head{"runs that are worse (least ratio)"};
  for (const Figure& figure : kFigures) head.emplace_back(figure.name);
  std::string html = "<div class=scroll><table>" + report::row(head, "th");
  const auto policies = policies_of(document);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    std::vector<std::string> cells;
    for (const Figure& of : kFigures) {
      const Total total = total_of(document, policies[i], of);
      cells.push_back(figure(fmt::format("{} of {} ({:.3f})", total.worse, total.runs, total.least),
                             total.worse > 0 ? "worse" : "best"));
    }
    html += "<tr>" + policy_row(policies[i], i, cells) + "</tr>\n";
  }
  return html + "</table></div>\n";
}

std::string loads_table(const json& document) {
  std::string html =
      "<div class=scroll><table>" + report::row({"policy", "load", "average", "worst", "p95", "worst", "p99", "worst",
                                                 "slowdown", "worst", "slowdown itself", "maxmin's"},
                                                "th");
  const auto policies = policies_of(document);
  for (const json& row : document.at("results")) {
    const auto policy = row.at("policy").get<std::string>();
    const auto place = static_cast<std::size_t>(std::find(policies.begin(), policies.end(), policy) - policies.begin());
    std::vector<std::string> cells{figure(fmt::format("{}", number(row, "load")))};
    for (const Figure& of : kFigures) {
      const json& ratio = row.at(key_of(of));
      const double least = number(ratio, "least");
      cells.push_back(figure(fmt::format("{:.2f}", number(ratio, "mean"))));
      cells.push_back(figure(fmt::format("{:.3f}", least), least < kWorseBelow ? "worse" : ""));
    }
    cells.push_back(figure(fmt::format("{:.2f}", number(row, "mean_slowdown"))));
    cells.push_back(figure(fmt::format("{:.2f}", number(row, "maxmin_mean_slowdown"))));
    html += fmt::format("<tr{}>", place == 0 ? " class=first" : "") + policy_row(policy, place, cells) + "</tr>\n";
  }
  return html + "</table></div>\n";
}

}  // namespace

std::string sweep_page(const json& document) {
  const json& workload = document.at("workload");
  std::string html = report::page_head("clustar coflow sweep");
  html += report::page_title(
      document, "Coflow policies over load",
      fmt::format("Generated traces: {:.0f} coflows, {:.0f} ports of {:.3g} Gbit/s, seeds 1 to {:.0f}; rules exact.",
                  number(workload, "coflows"), number(workload, "ports"), number(workload, "port_gbps"),
                  number(workload, "seeds")));
  html += sweep_verdict(document) + "<div class=plots>\n" +
          ratio_plot(document, kFigures[0], "Average completion time: max-min's over the policy's") +
          ratio_plot(document, kFigures[3], "Mean slowdown: max-min's over the policy's") +
          ratio_plot(document, kFigures[1], "p95 of the completion time: max-min's over the policy's") +
          ratio_plot(document, kFigures[2], "p99 of the completion time: max-min's over the policy's") + "</div>\n";
  html +=
      "<p class=dim>The mean over seeds, and the span from the worst to the best seed. Each seed's trace is the same "
      "for "
      "all. Below 1 the policy is worse than max-min fair sharing.</p>\n";
  html += "<h2>Is any ever worse than max-min fair sharing?</h2>\n" + counts_table(document);
  html += "<h2>By load</h2>\n" + loads_table(document);
  html +=
      "<p class=dim>Slowdown: mean over coflows of the completion time over what it takes alone; itself, in the last "
      "two columns, as the mean over seeds.</p>\n";
  return html + report::page_end(document);
}

}  // namespace clustar::bench::coflow
