// Plots as inline SVG. Colours are CSS classes of the page, so that they follow its light or dark scheme.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace clustar::bench::report {

// About `count` round numbers that cover low..high.
std::vector<double> ticks(double low, double high, int count);

// Series::dash counts up to it, from 0: solid.
inline constexpr int kDashes = 6;

struct Series {
  std::string name{};       // series of the same name share a place in the legend
  std::string css_class{};  // "a", "b", "c"
  std::vector<std::pair<double, double>> points{};
  std::vector<std::pair<double, double>> spread{};  // of y, around each point; or empty
  bool markers = false;
  int dash = 0;
  bool thin = false;  // one of many of its name
};

struct LineChart {
  std::string title{};
  std::string x_label{};
  std::string y_label{};  // short: it stands above the axis
  std::vector<Series> series{};
  // Of x: a tick each. Otherwise x begins at 0.
  bool whole_numbers = false;
  std::vector<std::string> x_names{};  // of x = 0, 1, ..., if not empty
  bool from_zero = true;               // y
  std::optional<double> level{};       // a horizontal line
  std::optional<double> x_level{};     // or an upright one; above 0 where x is logarithmic
  std::string level_label{};
  std::optional<std::pair<double, double>> band{};  // of y
  bool log_x = false;                               // all x above 0
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

struct Span {
  double from = 0, to = 0;
  std::string css_class{};
  std::string name{};  // shown where the pointer is
};
struct Lane {
  std::string label{};
  std::vector<Span> spans{};  // drawn in their order
};
// Lanes below each other on one scale from 0.
std::string lane_chart(const std::string& title, const std::string& x_label, const std::vector<Lane>& lanes);

// A value and the interval around it.
struct IntervalRow {
  std::string label;
  std::string css_class;
  double value = 0;
  double low = 0;
  double high = 0;
  std::optional<double> ring{};  // a second value
};
// A row each, on a scale that shows `level`.
std::string interval_chart(const std::string& title, const std::string& x_label, const std::vector<IntervalRow>& rows,
                           double level);

}  // namespace clustar::bench::report
