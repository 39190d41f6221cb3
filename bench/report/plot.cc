#include "bench/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/report/page.h"
#include "bench/report/range.h"

namespace clustar::bench::report {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 320;
constexpr double kLeft = 64;
constexpr double kRight = 16;
constexpr double kTop = 58;
constexpr double kBottom = 44;
constexpr double kBarHeight = 30;
constexpr double kBarGap = 14;
constexpr double kBarLabels = 130;  // width of the column of labels
constexpr double kBarNumbers = 70;  // of that of the totals

std::string number(double value) {
  if (value != 0 && std::abs(value) >= 10000) return fmt::format("{:.3g}k", value / 1000);
  return fmt::format("{:.4g}", value);
}

std::string text(double x, double y, const char* anchor, const std::string& css, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>", x, y, anchor, css,
                     escaped(content));
}

std::string line(double x1, double y1, double x2, double y2, const std::string& css) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"{}\"/>", x1, y1, x2, y2,
                     css);
}

std::string open_svg(double height, const std::string& title) {
  return fmt::format("<figure><svg class=chart viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kWidth,
                     height, escaped(title)) +
         text(12, 20, "start", "title", title);
}

// Long names are cut: the page's tables have them in full.
std::string cut(const std::string& name, std::size_t most) {
  return characters(name) <= most ? name : first_characters(name, most - 2) + "..";
}

// Each name once, in the order of their first appearance; in as many rows as it takes.
class Legend {
 public:
  void add_area(const std::string& name, const std::string& css_class) { add(name, "fill-" + css_class, kArea); }
  void add_line(const Series& series) { add(series.name, "line-" + series.css_class, series.dash); }
  void add_level(const std::string& name) { add(name, "level", 0); }
  double bottom() const { return y_ + kRow; }
  const std::string& svg() const { return svg_; }

 private:
  static constexpr int kArea = -1;
  static constexpr double kRow = 14;
  static constexpr double kSample = 22;

  void add(const std::string& name, const std::string& css_class, int dash) {
    if (name.empty() || !seen_.insert(name).second) return;
    const std::string shown = cut(name, 30);
    const double width = kSample + 22 + 6.2 * static_cast<double>(characters(shown));
    if (x_ + width > kWidth && x_ > kLeft) {
      x_ = kLeft;
      y_ += kRow;
    }
    svg_ += dash == kArea
                ? fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"14\" height=\"10\" rx=\"2\" class=\"{}\"/>", x_,
                              y_, css_class)
                : fmt::format("<path d=\"M{:.1f} {:.0f}h{:.0f}\" class=\"{} dash{}\"/>", x_, y_ + 5, kSample, css_class,
                              dash);
    svg_ += text(x_ + kSample + 5, y_ + 9, "start", "label", shown);
    x_ += width;
  }

  double x_ = kLeft;
  double y_ = 32;
  std::set<std::string> seen_;
  std::string svg_;
};

class Axes {
 public:
  Axes(Range x, Range y, double top) : x_(x), y_(y), top_(top) {}
  double x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double y(double value) const { return bottom() - (value - y_.low) / (y_.high - y_.low) * kPlotHeight; }
  double top() const { return top_; }
  double bottom() const { return top_ + kPlotHeight; }

 private:
  static constexpr double kPlotHeight = kHeight - kTop - kBottom;
  Range x_;
  Range y_;
  double top_;  // below the legend
};

void widen(Range& range) {
  if (range.empty()) range = {0, 1};
  if (range.high - range.low < 1e-9 * std::max(1.0, std::abs(range.high))) range.high = range.low + 1;
}

std::string curve(const Series& series, const Axes& axes) {
  std::string path;
  std::string marks;
  for (std::size_t i = 0; i < series.points.size(); ++i) {
    const auto [x, y] = series.points[i];
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", axes.x(x), axes.y(y));
    std::string around;
    if (i < series.spread.size()) {
      const auto [low, high] = series.spread[i];
      marks += line(axes.x(x), axes.y(low), axes.x(x), axes.y(high), "line-" + series.css_class);
      around = fmt::format(" ({} to {})", number(low), number(high));
    }
    if (!series.markers) continue;
    marks +=
        fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"fill-{}\"><title>{}: {}{}</title></circle>",
                    axes.x(x), axes.y(y), series.css_class, escaped(series.name), number(y), around);
  }
  if (path.empty()) return {};
  return fmt::format("<path d=\"{}\" class=\"line-{} dash{}{}\"><title>{}</title></path>", path, series.css_class,
                     series.dash, series.thin ? " thin" : "", escaped(series.name)) +
         marks;
}

std::string x_text(const LineChart& chart, double value) {
  if (chart.x_names.empty()) return number(chart.log_x ? std::pow(10, value) : value);
  const auto place = static_cast<std::size_t>(std::max(0.0, value));
  return place < chart.x_names.size() ? cut(chart.x_names[place], 12) : "";
}

std::string grid(const LineChart& chart, const Axes& axes, const std::vector<double>& xs,
                 const std::vector<double>& ys) {
  std::string svg;
  for (const double value : ys) {
    svg += line(kLeft, axes.y(value), kWidth - kRight, axes.y(value), "grid");
    svg += text(kLeft - 6, axes.y(value) + 4, "end", "label", number(value));
  }
  for (const double value : xs) {
    svg += text(axes.x(value), axes.bottom() + 18, "middle", "label", x_text(chart, value));
  }
  svg += text((kLeft + kWidth - kRight) / 2, axes.bottom() + kBottom - 8, "middle", "label", chart.x_label);
  // The unit of y stands above its axis, where it needs no rotation.
  return svg + text(kLeft - 6, axes.top() - 10, "end", "label", chart.y_label);
}

// The same with logarithms to the base of 10 for x.
LineChart logarithmic(LineChart chart) {
  for (Series& series : chart.series) {
    for (auto& [x, y] : series.points) x = std::log10(x);
  }
  if (chart.x_level) chart.x_level = std::log10(*chart.x_level);
  return chart;
}

// 1, 2 and 5 of each power of 10 that x spans, as logarithms; powers alone where they are many, and where there are
// hardly any of all these, round numbers.
std::vector<double> log_ticks(const Range& x) {
  std::vector<double> all;
  const bool many = x.high - x.low > 3;
  for (double power = std::floor(x.low); power <= std::ceil(x.high); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = power + std::log10(factor);
      if ((factor == 1 || !many) && value >= x.low && value <= x.high) all.push_back(value);
    }
  }
  if (all.size() > 1) return all;
  all.clear();
  for (const double value : ticks(std::pow(10, x.low), std::pow(10, x.high), 5)) {
    if (value > 0 && std::log10(value) >= x.low && std::log10(value) <= x.high) all.push_back(std::log10(value));
  }
  return all;
}

// Of all that a chart shows.
struct Extent {
  Range x, y;
};
Extent extent_of(const LineChart& chart) {
  Extent all;
  for (const Series& series : chart.series) {
    for (const auto& [x, y] : series.points) {
      all.x.take(x);
      all.y.take(y);
    }
    for (const auto& [low, high] : series.spread) {
      all.y.take(low);
      all.y.take(high);
    }
  }
  if (!chart.whole_numbers && !chart.log_x && chart.x_names.empty()) all.x.take(0);
  if (chart.from_zero) all.y.take(0);
  if (chart.level) all.y.take(*chart.level);
  if (chart.x_level) all.x.take(*chart.x_level);
  if (chart.band) {
    all.y.take(chart.band->first);
    all.y.take(chart.band->second);
  }
  widen(all.x);
  widen(all.y);
  return all;
}

// The ticks of x, which is widened to them.
std::vector<double> x_ticks(const LineChart& chart, Range& x) {
  if (chart.log_x) return log_ticks(x);
  std::vector<double> xs;
  if (!chart.x_names.empty()) x = {0, static_cast<double>(chart.x_names.size() - 1)};
  if (!chart.whole_numbers && chart.x_names.empty()) {
    xs = ticks(x.low, x.high, 6);
    x = {xs.front(), xs.back()};
    return xs;
  }
  for (double value = std::ceil(x.low); value <= x.high; value += std::max(1.0, std::ceil((x.high - x.low) / 20))) {
    xs.push_back(value);
  }
  x = {x.low - 0.4, x.high + 0.4};
  return xs;
}

}  // namespace

std::vector<double> ticks(double low, double high, int count) {
  if (!(high > low) || count < 1) return {low};
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= rough * 0.999) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> values;
  const double first = std::floor(low / step);
  const double last = std::ceil(high / step - 1e-9);
  for (double i = first; i <= last; ++i) values.push_back(i * step);
  return values;
}

std::string line_chart(const LineChart& given) {
  const LineChart chart = given.log_x ? logarithmic(given) : given;
  auto [x, y] = extent_of(chart);
  const std::vector<double> ys = ticks(y.low, y.high, 5);
  y = {ys.front(), ys.back()};
  const std::vector<double> xs = x_ticks(chart, x);
  Legend legend;
  for (const Series& series : chart.series) legend.add_line(series);
  if (chart.level || chart.x_level) legend.add_level(chart.level_label);
  const Axes axes(x, y, std::max(kTop, legend.bottom() + 12));
  std::string svg = open_svg(axes.bottom() + kBottom, chart.title);
  if (chart.band) {
    const double top = axes.y(chart.band->second);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"band\"/>", kLeft,
                       top, kWidth - kLeft - kRight, std::max(1.0, axes.y(chart.band->first) - top));
  }
  svg += grid(chart, axes, xs, ys);
  if (chart.level) {
    svg += line(kLeft, axes.y(*chart.level), kWidth - kRight, axes.y(*chart.level), "level");
  }
  if (chart.x_level) svg += line(axes.x(*chart.x_level), axes.top(), axes.x(*chart.x_level), axes.bottom(), "level");
  for (const Series& series : chart.series) svg += curve(series, axes);
  return svg + legend.svg() + "</svg></figure>\n";
}

std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<Bar>& bars) {
  double longest = 0;
  Legend legend;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const BarPart& part : bar.parts) {
      sum += part.value;
      legend.add_area(part.name, part.css_class);
    }
    longest = std::max(longest, sum);
  }
  const double scale = longest > 0 ? (kWidth - kBarLabels - kBarNumbers - kRight) / longest : 0;
  const double height = kTop + static_cast<double>(bars.size()) * (kBarHeight + kBarGap);
  std::string svg = open_svg(height, title);
  double y = kTop;
  for (const Bar& bar : bars) {
    svg += text(kBarLabels - 10, y + kBarHeight / 2 + 4, "end", "label", cut(bar.label, 20));
    double x = kBarLabels;
    double sum = 0;
    for (const BarPart& part : bar.parts) {
      const double width = part.value * scale;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"fill-{}\"><title>{}: {} "
          "{}</title></rect>",
          x, y, width, kBarHeight, part.css_class, escaped(part.name), number(part.value), escaped(unit));
      x += width;
      sum += part.value;
    }
    svg += text(x + 8, y + kBarHeight / 2 + 4, "start", "label", number(sum) + " " + unit);
    y += kBarHeight + kBarGap;
  }
  return svg + legend.svg() + "</svg></figure>\n";
}

std::string lane_chart(const std::string& title, const std::string& x_label, const std::vector<Lane>& lanes) {
  constexpr double kLane = 18, kGap = 4, kAbove = 36;
  double last = 0;
  for (const Lane& lane : lanes) {
    for (const Span& span : lane.spans) last = std::max(last, span.to);
  }
  const std::vector<double> xs = ticks(0, last > 0 ? last : 1, 6);
  const auto x = [&](double value) { return kBarLabels + value / xs.back() * (kWidth - kBarLabels - kRight); };
  const double bottom = kAbove + static_cast<double>(lanes.size()) * (kLane + kGap);
  std::string svg = open_svg(bottom + kBottom, title);
  for (const double at : xs) {
    svg += line(x(at), kAbove, x(at), bottom, "grid");
    svg += text(x(at), bottom + 18, "middle", "label", number(at));
  }
  svg += text((kBarLabels + kWidth - kRight) / 2, bottom + 36, "middle", "label", x_label);
  double y = kAbove;
  for (const Lane& lane : lanes) {
    svg += text(kBarLabels - 10, y + kLane / 2 + 4, "end", "label", cut(lane.label, 20));
    for (const Span& span : lane.spans) {
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"fill-{}\"><title>{}: {} to "
          "{}</title></rect>",
          x(span.from), y, std::max(1.0, x(span.to) - x(span.from) - 0.5), kLane, span.css_class, escaped(span.name),
          number(span.from), number(span.to));
    }
    y += kLane + kGap;
  }
  return svg + "</svg></figure>\n";
}

std::string interval_chart(const std::string& title, const std::string& x_label, const std::vector<IntervalRow>& rows,
                           double level) {
  Range range;
  range.take(level);
  for (const IntervalRow& row : rows) {
    range.take(row.low);
    range.take(row.high);
    if (row.ring) range.take(*row.ring);
  }
  widen(range);
  const std::vector<double> xs = ticks(range.low, range.high, 5);
  const auto x = [&](double value) {
    return kBarLabels + (value - xs.front()) / (xs.back() - xs.front()) * (kWidth - kBarLabels - kBarNumbers - kRight);
  };
  constexpr std::size_t kFew = 6;
  const double each = rows.size() > kFew ? kBarHeight - 6 : kBarHeight + kBarGap;
  const double bottom = kTop + static_cast<double>(rows.size()) * each;
  std::string svg = open_svg(bottom + kBottom, title);
  for (const double value : xs) {
    svg += line(x(value), kTop - 12, x(value), bottom, "grid");
    svg += text(x(value), bottom + 16, "middle", "label", number(value));
  }
  svg += line(x(level), kTop - 12, x(level), bottom, "level strong");
  svg += text((kBarLabels + kWidth - kBarNumbers) / 2, bottom + 34, "middle", "label", x_label);
  double y = kTop + (each - kBarGap) / 2;
  for (const IntervalRow& row : rows) {
    svg += text(kBarLabels - 10, y + 4, "end", "label", cut(row.label, 20));
    svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\" rx=\"3\" class=\"fill-{} faint\"/>",
                    x(row.low), y - 3, std::max(2.0, x(row.high) - x(row.low)), row.css_class);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\" class=\"fill-{}\"><title>{}: {} ({} to {})</title></circle>",
        x(row.value), y, row.css_class, escaped(row.label), number(row.value), number(row.low), number(row.high));
    if (row.ring) {
      svg += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"8.5\" class=\"ring line-{}\"><title>{}: {}</title></circle>",
          x(*row.ring), y, row.css_class, escaped(row.label), number(*row.ring));
    }
    svg += text(kWidth - kBarNumbers - kRight + 12, y + 4, "start", "label", number(row.value));
    y += each;
  }
  return svg + "</svg></figure>\n";
}

}  // namespace clustar::bench::report
