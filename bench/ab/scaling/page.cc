// The page of results.h.
#include "bench/report/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ab/labels.h"
#include "bench/ab/scaling/results.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab::scaling {
namespace {

using nlohmann::json;
using report::escaped;
using report::LineChart;
using report::row;
using report::Series;
using report::show;

struct Curve {
  const char* arm;
  const char* name;
  const char* css_class;
};
constexpr Curve kCurves[] = {{"baseline", "A (baseline)", "a"},
                             {"candidate", "B (candidate)", "b"},
                             {"no communication", "no communication", "c"}};
constexpr int kLinearDash = 1;

// `key`: a spread of a point. Every curve begins at one rank.
Series curve(const json& outcome, const Curve& what, const char* key) {
  Series series{.name = what.name, .css_class = what.css_class, .markers = true};
  for (const json& ranks : outcome.at("ranks")) {
    const json point = find_point(outcome, ranks, ranks == 1 ? "one rank" : what.arm);
    if (point.is_null()) continue;
    const json& values = point.at(key);
    series.points.emplace_back(ranks, values.at("median"));
    series.spread.emplace_back(values.at("min"), values.at("max"));
  }
  return series;
}

std::string throughput_plot(const json& outcome) {
  LineChart chart{.title = "Images/s by number of ranks: median, and the range of all rounds",
                  .x_label = "ranks",
                  .y_label = "images/s"};
  Series linear{.name = "linear", .css_class = "c", .dash = kLinearDash};
  linear.points.emplace_back(0, 0);
  for (const json& point : outcome.at("points")) {
    linear.points.emplace_back(point.at("ranks"), point.at("linear_images_per_second"));
  }
  chart.series.push_back(std::move(linear));
  for (const Curve& one : kCurves) chart.series.push_back(curve(outcome, one, "images_per_second"));
  return line_chart(chart);
}

std::string efficiency_plot(const json& outcome) {
  LineChart chart{.title = "Efficiency: images/s over ranks times images/s of one rank",
                  .x_label = "ranks",
                  .y_label = "of linear",
                  .level = 1.0,
                  .level_label = "linear"};
  for (const Curve& one : kCurves) chart.series.push_back(curve(outcome, one, "efficiency"));
  return line_chart(chart);
}

std::string spread_cell(const json& values, int digits) {
  return fmt::format("{} ({} to {})", show(values.at("median"), digits), show(values.at("min"), digits),
                     show(values.at("max"), digits));
}

std::string ratio_cell(const json& outcome, const json& point) {
  if (point.at("arm") != "candidate") return "";
  for (const json& one : outcome.at("ratios")) {
    if (one.at("ranks") != point.at("ranks")) continue;
    return fmt::format("{} ({} to {})", show(one.at("ratio")), show(one.at("low")), show(one.at("high")));
  }
  return "";
}

std::string points_table(const json& outcome) {
  std::string text =
      "<div class=scroll><table>" +
      row({"ranks", "run", "global batch", "learning rate", "images/s (range)", "linear", "efficiency (range)",
           "compute, ms/step", "exposed, ms/step", "steps", "loss", "accuracy", "B/A (95 % interval)"},
          "th");
  for (const json& point : outcome.at("points")) {
    text += row({show(point.at("ranks")), show(point.at("arm")), show(point.at("batch")),
                 option_text(point.at("learning_rate")), spread_cell(point.at("images_per_second"), 1),
                 show(point.at("linear_images_per_second"), 1), spread_cell(point.at("efficiency"), 3),
                 show(point.at("compute_ms_per_step"), 2), show(point.at("exposed_comm_ms_per_step"), 2),
                 show(point.at("steps"), 0), show(point.at("loss"), 4), show(point.at("accuracy"), 4),
                 ratio_cell(outcome, point)});
  }
  return text + "</table></div>\n";
}

std::string settings_words(const json& arm) {
  std::string text;
  for (const char* part : {"settings", "options"}) {
    for (const auto& [name, value] : arm.at(part).items()) text += (text.empty() ? "" : " ") + name + "=" + show(value);
  }
  return text.empty() ? "defaults" : text;
}

std::string runs_table(const json& outcome) {
  std::string text = "<div class=scroll><table>" + row({"round", "ranks", "run", "images/s", "compute s", "exposed s",
                                                        "hidden s", "steps", "bytes sent", "switch drops"},
                                                       "th");
  for (const json& run : outcome.at("runs")) {
    text +=
        row({show(run.at("round")), show(run.at("ranks")), show(run.at("arm")), show(run.at("images_per_second"), 1),
             show(run.at("compute_s")), show(run.at("exposed_comm_s")), show(run.at("hidden_comm_s")),
             show(run.at("steps")), show(run.at("bytes_sent")), show(run.at("switch_drops"))});
  }
  return text + "</table></div>\n";
}

std::vector<std::vector<std::string>> foot(const json& outcome) {
  std::vector<std::vector<std::string>> rows{
      {"place", show(outcome.at("place").at("text"))},
      {"model", fmt::format("{} ({}), {} bytes of gradients", show(outcome.at("model")), show(outcome.at("shape")),
                            show(outcome.at("gradient_bytes")))},
      {"A", settings_words(outcome.at("arms").at(0))},
      {"B", settings_words(outcome.at("arms").at(1))}};
  for (const auto& [name, value] : outcome.at("config").items())
    rows.push_back({option_label(name), option_text(value)});
  for (const auto& [name, value] : outcome.at("inherited_settings").items()) {
    rows.push_back({name + " (inherited)", show(value)});
  }
  rows.push_back({"whole measurement", fmt::format("{:.0f} s", outcome.at("seconds").get<double>())});
  return rows;
}

}  // namespace

std::string page(const json& document) {
  const json& outcome = document.at("scaling");
  std::string text = report::page_head(fmt::format("clustar ab: scaling of {}", show(outcome.at("model"))));
  text += report::page_title(
      document, show(outcome.at("model")) + " on more and more ranks",
      fmt::format("A, the baseline: <b>{}</b>. B, the candidate: <b>{}</b>. {}.", escaped(show(outcome.at("baseline"))),
                  escaped(show(outcome.at("candidate"))), escaped(rule_text(outcome))));
  if (!outcome.at("replay").is_null()) {
    text += fmt::format("<p class=warning>{}</p>\n", escaped(show(outcome["replay"].at("label"))));
  }
  for (const json& warning : outcome.at("warnings")) {
    text += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  text += "<div class=plots>\n" + throughput_plot(outcome) + efficiency_plot(outcome) + "</div>\n";
  text += points_table(outcome) + "<h2>All runs, in their order</h2>\n" + runs_table(outcome);
  return text + report::page_end(document, foot(outcome));
}

}  // namespace clustar::bench::ab::scaling
