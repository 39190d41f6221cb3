// The plots of page.h.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/page.h"
#include "bench/perf/statistics.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using report::LineChart;
using report::Series;
using Points = Curve;

constexpr std::size_t kCurvePoints = 60;  // of one run, so that a page of many runs stays small
constexpr std::size_t kCdfPoints = 120;

bool is_good(const json& run, const std::string& arm) { return run.at("arm") == arm && !run.contains("failed"); }

// `y` over `x`, averaged in groups of `group` steps, so that a single step's luck does not hide the course.
Points smoothed(const json& x, const json& y, std::size_t group) {
  Points points;
  const std::size_t count = std::min(x.size(), y.size());
  for (std::size_t begin = 0; begin < count; begin += group) {
    double sum_x = 0, sum_y = 0, n = 0;
    for (std::size_t i = begin; i < std::min(count, begin + group); ++i) {
      if (!x[i].is_number() || !y[i].is_number()) continue;
      sum_x += x[i].get<double>();
      sum_y += y[i].get<double>();
      ++n;
    }
    if (n > 0) points.emplace_back(sum_x / n, sum_y / n);
  }
  return points;
}

using Take = Points (*)(const json& run, std::size_t group);

Points loss_by_time(const json& run, std::size_t group) {
  return smoothed(run.at("curve").at("train_s"), run.at("curve").at("loss"), group);
}

Points loss_by_step(const json& run, std::size_t group) {
  return smoothed(run.at("curve").at("step"), run.at("curve").at("loss"), group);
}

Points accuracy_by_time(const json& run, std::size_t /*group*/) {
  Points points;
  const json& epochs = run.at("per_epoch");
  double seconds = 0;
  for (std::size_t i = 0; i < epochs.at("accuracy").size(); ++i) {
    seconds += epochs.at("train_s").at(i).get<double>();
    points.emplace_back(seconds, epochs.at("accuracy").at(i));
  }
  return points;
}

// One for all runs of a chart, from its longest: only then are points of the same index at the same steps.
std::size_t group_of(const json& scenario, const std::string& algorithm) {
  std::size_t longest = 0;
  for (const json& arm : scenario.at("arms")) {
    if (arm.at("algorithm") != algorithm) continue;
    for (const json& run : scenario.at("runs")) {
      if (is_good(run, arm.at("name"))) longest = std::max(longest, run.at("curve").at("loss").size());
    }
  }
  return std::max<std::size_t>(1, (longest + kCurvePoints - 1) / kCurvePoints);
}

LineChart chart_of(std::string title, std::string x, std::string y) {
  return {.title = std::move(title),
          .x_label = std::move(x),
          .y_label = std::move(y),
          .series = {},
          .from_zero = false,
          .level = std::nullopt,
          .level_label = {},
          .band = std::nullopt};
}

// Of each arm a thin line per run and a thick one, the median.
void add_arms(const json& scenario, const std::string& algorithm, Take take, LineChart& chart) {
  const std::size_t group = group_of(scenario, algorithm);
  for (const bool thick : {false, true}) {
    for (const json& arm : scenario.at("arms")) {
      if (arm.at("algorithm") != algorithm) continue;
      std::vector<Points> all;
      for (const json& run : scenario.at("runs")) {
        if (is_good(run, arm.at("name"))) all.push_back(take(run, group));
      }
      const std::string carrier = arm.at("carrier");
      if (thick) {
        chart.series.push_back({.name = carrier, .css_class = colour_of(carrier), .points = median_curve(all)});
      } else if (all.size() > 1) {
        for (Points& points : all) {
          chart.series.push_back(
              {.name = carrier, .css_class = colour_of(carrier), .points = std::move(points), .thin = true});
        }
      }
    }
  }
  std::erase_if(chart.series, [](const Series& series) { return series.points.empty(); });
}

std::string cdf_plot(const json& scenario, const std::string& algorithm, const std::string& title) {
  LineChart chart = chart_of(title, "ms per step (log scale)", "share");
  chart.from_zero = true;
  chart.log_x = true;
  for (const json& arm : scenario.at("arms")) {
    if (arm.at("algorithm") != algorithm) continue;
    std::vector<double> all;
    for (const json& run : scenario.at("runs")) {
      if (!is_good(run, arm.at("name")) || !run.at("step_seconds").is_array()) continue;
      for (const json& one : run.at("step_seconds")) {
        if (one.get<double>() > 0) all.push_back(1000 * one.get<double>());
      }
    }
    if (all.empty()) continue;
    std::sort(all.begin(), all.end());
    const std::string carrier = arm.at("carrier");
    Series series{.name = carrier, .css_class = colour_of(carrier), .points = {}};
    for (std::size_t i = 0; i <= kCdfPoints; ++i) {
      const double share = static_cast<double>(i) / kCdfPoints;
      series.points.emplace_back(all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))], share);
    }
    chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : line_chart(chart);
}

std::string ratio_plot(const json& training, const json& scenario) {
  const bool has_target = !training.at("options").at("target_accuracy").is_null();
  std::vector<report::IntervalRow> rows;
  for (const json& figure : scenario.at("figures")) {
    const json& ratio = figure.at(has_target ? "time_ratio" : "step_ratio");
    if (!ratio.is_object() || !ratio.at("low").is_number() || figure.at("reference") == figure.at("name")) continue;
    rows.push_back(
        {figure.at("name"), colour_of(figure.at("carrier")), ratio.at("ratio"), ratio.at("low"), ratio.at("high")});
  }
  if (rows.empty()) return "";
  return interval_chart(has_target ? "How many times sooner at the target accuracy than the reference"
                                   : "How many times faster a step than the reference's",
                        "times, and the 95 % interval over paired seeds", rows, 1);
}

std::string missing_plot(const json& scenario) {
  std::vector<report::Bar> bars;
  for (const json& figure : scenario.at("figures")) {
    const json& missing = figure.at("missing_bytes");
    if (!missing.is_number() || figure.at("carrier").get<std::string>().starts_with("tcp")) continue;
    bars.push_back(
        {figure.at("name"), {{figure.at("carrier"), colour_of(figure.at("carrier")), missing.get<double>() / 1e6}}});
  }
  return bars.empty() ? "" : bar_chart("Gradient bytes missing, all runs and ranks", "MB", bars);
}

}  // namespace

Curve median_curve(const std::vector<Curve>& runs) {
  std::size_t shortest = runs.empty() ? 0 : runs.front().size();
  for (const Curve& run : runs) shortest = std::min(shortest, run.size());
  Curve result;
  for (std::size_t i = 0; i < shortest; ++i) {
    std::vector<double> xs, ys;
    for (const Curve& run : runs) {
      xs.push_back(run[i].first);
      ys.push_back(run[i].second);
    }
    result.emplace_back(perf::median(xs), perf::median(ys));
  }
  return result;
}

const char* const kColours = R"css(
:root { --tcp-cubic: #b35c00; --tcp-bbr: #8c6d1f; --tcp-cubic-rto5: #e08a2e; --tcp-bbr-rto5: #c9a63c;
  --mlt-p0: #1f6fb4; --mlt-p0_5: #3aa17e; --mlt-p1: #14905a; --mlt-p5: #5f8f1c; --mlt-p10: #3f6212;
  --mlt-deadline: #a3478f; --other: #6b7280; }
@media screen and (prefers-color-scheme: dark) { :root { --tcp-cubic: #e0914a; --tcp-bbr: #c8a95c; --tcp-cubic-rto5: #f2b06a;
  --tcp-bbr-rto5: #e3ca7c; --mlt-p0: #6cb0ec; --mlt-p0_5: #8fe3c4; --mlt-p1: #5fd0a0; --mlt-p5: #b3d95f; --mlt-p10: #d4f08a;
  --mlt-deadline: #d993c8; --other: #a3acba; } }
.met { color: var(--mlt-p1); font-weight: 600; } .missed { color: var(--tcp-cubic); font-weight: 600; }
)css";

std::string colour_of(const std::string& carrier) {
  std::string name = "of-" + carrier;
  std::replace(name.begin(), name.end(), '.', '_');  // which would begin another class
  return name;
}

std::string plots_of(const json& training, const json& scenario) {
  std::string plots = ratio_plot(training, scenario) + missing_plot(scenario);
  for (const char* algorithm : kAlgorithms) {
    const auto is_here = [&](const json& figure) { return figure.at("algorithm") == algorithm; };
    if (std::none_of(scenario.at("figures").begin(), scenario.at("figures").end(), is_here)) continue;
    const std::string by = fmt::format(" ({})", algorithm);
    LineChart time = chart_of("Training loss over training time" + by, "seconds of training", "loss");
    add_arms(scenario, algorithm, loss_by_time, time);
    LineChart steps = chart_of("Training loss by step" + by, "step", "loss");
    add_arms(scenario, algorithm, loss_by_step, steps);
    LineChart accuracy = chart_of("Held-out accuracy over training time" + by, "seconds of training", "accuracy");
    add_arms(scenario, algorithm, accuracy_by_time, accuracy);
    for (Series& series : accuracy.series) series.markers = !series.thin;
    if (const json& target = training.at("options").at("target_accuracy"); target.is_number()) {
      accuracy.level = target.get<double>();
      accuracy.level_label = "target";
    }
    // A replay has neither loss nor accuracy.
    for (const LineChart* chart : {&time, &steps, &accuracy}) {
      if (!chart->series.empty()) plots += line_chart(*chart);
    }
    plots += cdf_plot(scenario, algorithm, "Duration of a step, cumulative" + by);
  }
  return "<div class=plots>\n" + plots + "</div>\n";
}

}  // namespace clustar::bench::ab::suite
