// Plots as inline SVG. Colours are CSS classes of the page (see html.cc), so that they follow its light or dark scheme.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/report/page.h"

namespace clustar::bench::ab {

using report::escaped;

// About `count` round numbers that cover low..high.
std::vector<double> ticks(double low, double high, int count);

struct Series {
  std::string name;       // series of the same name share a place in the legend
  std::string css_class;  // "a", "b", "c"
  std::vector<std::pair<double, double>> points;
  bool markers = false;
  bool dashed = false;
  bool thin = false;  // one of many of its name
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  // Of x: a tick each. Else x begins at 0.
  bool whole_numbers = false;
  bool from_zero = true;        // y
  std::optional<double> level;  // a horizontal line
  std::string level_label;
  std::optional<std::pair<double, double>> band;  // of y
  bool log_x = false;                             // all x above 0
};
std::string line_chart(const LineChart& chart);

struct BarPart {
  std::string name;
  std::string css_class;
  double value = 0;
};
struct Bar {
  std::string label;
  std::vector<BarPart> parts;  // one after the other; the same names in every bar
};
// Horizontal bars; `unit` follows the numbers.
std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<Bar>& bars);

// A value and the interval around it.
struct IntervalRow {
  std::string label;
  std::string css_class;
  double value = 0;
  double low = 0;
  double high = 0;
};
// A row each, on a scale that shows `level`.
std::string interval_chart(const std::string& title, const std::string& x_label, const std::vector<IntervalRow>& rows,
                           double level);

}  // namespace clustar::bench::ab
