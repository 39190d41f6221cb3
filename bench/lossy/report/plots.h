// The kinds of plots, as scripts for gnuplot. Text is only numbers and label tokens: see svg.h.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/lossy/report/palette.h"

namespace clustar::bench::lossy_report {

struct Curve {
  ArmStyle style;
  std::vector<std::pair<double, double>> points;  // (milliseconds, fraction of the rounds that took at most so long)
  double rounds = 0;
};

struct CurvePlot {
  std::vector<Curve> curves;
  std::optional<double> ideal_ms;  // a vertical line
};

// All of each distribution. "" when there is nothing to draw.
std::string distribution_script(const CurvePlot& plot);
// The slowest tenth: each decade up is ten times rarer. "" when no curve has kTailRounds.
std::string tail_script(const CurvePlot& plot);
inline constexpr double kTailRounds = 100;

struct BarRow {
  ArmStyle style;
  std::string label;  // of its token; the script does not contain it
  double value = 0;
  std::optional<double> mark;  // a line across the bar
};

struct BarPlot {
  std::vector<BarRow> rows;  // from the top
  std::string value_format;  // of fmt, such as "{:.3g}"
  std::string axis;          // words of ours
  bool may_be_log = false;   // where the values span more than 4x
  std::optional<double> reference;
};
// "" when there is nothing to draw.
std::string bars_script(const BarPlot& plot);
// What stands beside the bars: cut where it is long.
std::vector<std::string> labels(const BarPlot& plot);

}  // namespace clustar::bench::lossy_report
