#include "bench/ab/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/report/range.h"

namespace clustar::bench::ab {
namespace {

using report::Range;

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
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kWidth, height,
                     escaped(title)) +
         text(12, 20, "start", "title", title);
}

// Name and class of each thing in the order of its first appearance.
using Legend = std::vector<std::pair<std::string, std::string>>;
std::string legend(const Legend& entries) {
  std::string svg;
  double x = kLeft;
  double y = 32;
  std::set<std::string> seen;
  for (const auto& [name, css] : entries) {
    if (!seen.insert(name).second) continue;
    // Long names are cut: the page's table has them in full.
    const std::string shown = name.size() > 30 ? name.substr(0, 28) + ".." : name;
    const double width = 36 + 6.6 * static_cast<double>(shown.size());
    if (x + width > kWidth && x > kLeft) {
      x = kLeft;
      y += 14;
    }
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"14\" height=\"10\" rx=\"2\" class=\"fill-{}\"/>", x, y,
                       css);
    svg += text(x + 19, y + 9, "start", "label", shown);
    x += width;
  }
  return svg;
}

class Axes {
 public:
  Axes(Range x, Range y) : x_(x), y_(y) {}
  double x(double value) const { return kLeft + (value - x_.low) / (x_.high - x_.low) * (kWidth - kLeft - kRight); }
  double y(double value) const {
    return kHeight - kBottom - (value - y_.low) / (y_.high - y_.low) * (kHeight - kTop - kBottom);
  }

 private:
  Range x_;
  Range y_;
};

void widen(Range& range) {
  if (range.empty()) range = {0, 1};
  if (range.high - range.low < 1e-9 * std::max(1.0, std::abs(range.high))) range.high = range.low + 1;
}

std::string curve(const Series& series, const Axes& axes) {
  std::string path;
  std::string marks;
  for (const auto& [x, y] : series.points) {
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : " L", axes.x(x), axes.y(y));
    if (!series.markers) continue;
    marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"fill-{}\"><title>{}: {}</title></circle>",
                         axes.x(x), axes.y(y), series.css_class, escaped(series.name), number(y));
  }
  if (path.empty()) return {};
  return fmt::format("<path d=\"{}\" class=\"line-{}{}{}\"/>", path, series.css_class, series.dashed ? " dashed" : "",
                     series.thin ? " thin" : "") +
         marks;
}

std::string grid(const LineChart& chart, const Axes& axes, const std::vector<double>& xs,
                 const std::vector<double>& ys) {
  std::string svg;
  for (const double value : ys) {
    svg += line(kLeft, axes.y(value), kWidth - kRight, axes.y(value), "grid");
    svg += text(kLeft - 6, axes.y(value) + 4, "end", "label", number(value));
  }
  for (const double value : xs) {
    svg += text(axes.x(value), kHeight - kBottom + 18, "middle", "label",
                number(chart.log_x ? std::pow(10, value) : value));
  }
  svg += text((kLeft + kWidth - kRight) / 2, kHeight - 8, "middle", "label", chart.x_label);
  // The unit of y stands above its axis, where it needs no rotation.
  return svg + text(kLeft - 6, kTop - 10, "end", "label", chart.y_label);
}

// The same with logarithms to the base of 10 for x.
LineChart logarithmic(LineChart chart) {
  for (Series& series : chart.series) {
    for (auto& [x, y] : series.points) x = std::log10(x);
  }
  return chart;
}

// 1, 2 and 5 of each power of 10 that x spans, as logarithms; powers alone where they are many.
std::vector<double> log_ticks(const Range& x) {
  std::vector<double> all;
  const bool many = x.high - x.low > 3;
  for (double power = std::floor(x.low); power <= std::ceil(x.high); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = power + std::log10(factor);
      if ((factor == 1 || !many) && value >= x.low && value <= x.high) all.push_back(value);
    }
  }
  return all;
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
  Range x;
  Range y;
  for (const Series& series : chart.series) {
    for (const auto& [px, py] : series.points) {
      x.take(px);
      y.take(py);
    }
  }
  if (!chart.whole_numbers && !chart.log_x) x.take(0);
  if (chart.from_zero) y.take(0);
  if (chart.level) y.take(*chart.level);
  if (chart.band) {
    y.take(chart.band->first);
    y.take(chart.band->second);
  }
  widen(x);
  widen(y);
  const std::vector<double> ys = ticks(y.low, y.high, 5);
  y = {ys.front(), ys.back()};
  std::vector<double> xs = ticks(x.low, x.high, 6);
  if (chart.whole_numbers) {
    xs.clear();
    for (double value = std::ceil(x.low); value <= x.high; value += std::max(1.0, std::ceil((x.high - x.low) / 20))) {
      xs.push_back(value);
    }
    x = {x.low - 0.4, x.high + 0.4};
  } else if (chart.log_x) {
    xs = log_ticks(x);
  } else {
    x = {xs.front(), xs.back()};
  }
  const Axes axes(x, y);
  std::string svg = open_svg(kHeight, chart.title);
  if (chart.band) {
    const double top = axes.y(chart.band->second);
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"band\"/>", kLeft,
                       top, kWidth - kLeft - kRight, std::max(1.0, axes.y(chart.band->first) - top));
  }
  svg += grid(chart, axes, xs, ys);
  if (chart.level) {
    svg += line(kLeft, axes.y(*chart.level), kWidth - kRight, axes.y(*chart.level), "level");
    svg += text(kWidth - kRight - 4, axes.y(*chart.level) - 5, "end", "label", chart.level_label);
  }
  Legend names;
  for (const Series& series : chart.series) {
    svg += curve(series, axes);
    names.emplace_back(series.name, series.css_class);
  }
  return svg + legend(names) + "</svg>\n";
}

std::string bar_chart(const std::string& title, const std::string& unit, const std::vector<Bar>& bars) {
  double longest = 0;
  Legend names;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const BarPart& part : bar.parts) {
      sum += part.value;
      names.emplace_back(part.name, part.css_class);
    }
    longest = std::max(longest, sum);
  }
  const double scale = longest > 0 ? (kWidth - kBarLabels - kBarNumbers - kRight) / longest : 0;
  const double height = kTop + static_cast<double>(bars.size()) * (kBarHeight + kBarGap);
  std::string svg = open_svg(height, title);
  double y = kTop;
  for (const Bar& bar : bars) {
    svg += text(kBarLabels - 10, y + kBarHeight / 2 + 4, "end", "label", bar.label);
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
  return svg + legend(names) + "</svg>\n";
}

std::string interval_chart(const std::string& title, const std::string& x_label, const std::vector<IntervalRow>& rows,
                           double level) {
  Range range;
  range.take(level);
  for (const IntervalRow& row : rows) {
    range.take(row.low);
    range.take(row.high);
  }
  widen(range);
  const std::vector<double> xs = ticks(range.low, range.high, 5);
  const auto x = [&](double value) {
    return kBarLabels + (value - xs.front()) / (xs.back() - xs.front()) * (kWidth - kBarLabels - kBarNumbers - kRight);
  };
  const double bottom = kTop + static_cast<double>(rows.size()) * (kBarHeight + kBarGap);
  std::string svg = open_svg(bottom + kBottom, title);
  for (const double value : xs) {
    svg += line(x(value), kTop - 12, x(value), bottom, "grid");
    svg += text(x(value), bottom + 16, "middle", "label", number(value));
  }
  svg += line(x(level), kTop - 12, x(level), bottom, "level strong");
  svg += text((kBarLabels + kWidth - kBarNumbers) / 2, bottom + 34, "middle", "label", x_label);
  double y = kTop + kBarHeight / 2;
  for (const IntervalRow& row : rows) {
    svg += text(kBarLabels - 10, y + 4, "end", "label", row.label);
    svg +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"6\" rx=\"3\" class=\"fill-{} faint\"/>",
                    x(row.low), y - 3, std::max(2.0, x(row.high) - x(row.low)), row.css_class);
    svg += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"6\" class=\"fill-{}\"><title>{}: {} ({} to {})</title></circle>",
        x(row.value), y, row.css_class, escaped(row.label), number(row.value), number(row.low), number(row.high));
    svg += text(kWidth - kBarNumbers - kRight + 12, y + 4, "start", "label", number(row.value));
    y += kBarHeight + kBarGap;
  }
  return svg + "</svg>\n";
}

}  // namespace clustar::bench::ab
