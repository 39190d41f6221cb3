#include "bench/lossy/report/plots.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "bench/lossy/report/svg.h"
#include "bench/report/page.h"
#include "bench/report/range.h"

namespace clustar::bench::lossy_report {
namespace {

using report::Range;

constexpr int kWidth = 600, kHeight = 330;
constexpr int kBarStep = 30, kBarFrame = 62;  // pixels per bar, and above and below of them
constexpr double kLogSpan = 4;                // from here on an axis is logarithmic
constexpr std::size_t kMaxPoints = 1000;      // of a curve
constexpr std::size_t kMaxLabel = 20;         // characters

std::string head(int height) {
  std::string script =
      fmt::format("set encoding utf8\nset terminal svg size {},{} dynamic font 'sans,12' noenhanced\nset key off\n",
                  kWidth, height);
  script += fmt::format("set border 3 lc rgb {}\nset tics nomirror out scale 0.5 textcolor rgb {}\n", kAxisColour,
                        kTextColour);
  return script + fmt::format("set grid lc rgb {} lt 1 lw 0.8\nset format x '%g'\n", kGridColour);
}

std::string x_label(const std::string& words) {
  return fmt::format("set xlabel '{}' textcolor rgb {} offset 0,0.3\n", words, kTextColour);
}

std::string vertical(double x) {
  return fmt::format(
      "set arrow from first {0:.9g}, graph 0 to first {0:.9g}, graph 1 nohead lc rgb {1} lw 1.2 dt "
      "(1.5,3) front\n",
      x, kMarkColour);
}

// Round numbers on a logarithmic axis: 1, 2, 5 of each decade where there are few decades.
std::string log_ticks(const Range& range) {
  std::vector<std::string> ticks;
  const double decades = std::log10(range.high / range.low);
  const std::vector<double> factors = decades < 0.8    ? std::vector<double>{1, 1.5, 2, 3, 4, 5, 6, 8}
                                      : decades <= 2.2 ? std::vector<double>{1, 2, 5}
                                                       : std::vector<double>{1};
  for (double power = std::floor(std::log10(range.low)); power <= std::log10(range.high); ++power) {
    for (const double factor : factors) {
      const double at = factor * std::pow(10, power);
      if (at >= range.low * 0.999 && at <= range.high * 1.001) ticks.push_back(fmt::format("{:.6g}", at));
    }
  }
  return fmt::format("set xtics ({})\n", fmt::join(ticks, ", "));
}

std::string time_axis(Range x, const CurvePlot& plot) {
  if (plot.ideal_ms) x.take(*plot.ideal_ms);
  const bool log = x.low > 0 && x.span() > kLogSpan;
  std::string script = x_label(log ? "milliseconds per round (logarithmic)" : "milliseconds per round");
  if (log) {
    x = {x.low / 1.08, x.high * 1.08};
    script += "set logscale x\n" + log_ticks(x);
  } else {
    const double margin = std::max((x.high - x.low) * 0.04, std::abs(x.high) * 1e-3 + 1e-9);
    x = {x.low - margin, x.high + margin};
  }
  script += fmt::format("set xrange [{:.9g}:{:.9g}]\n", x.low, x.high);
  return script + (plot.ideal_ms ? vertical(*plot.ideal_ms) : "");
}

struct Block {
  ArmStyle style;
  std::vector<std::pair<double, double>> points;
};

std::string draw(const std::vector<Block>& blocks) {
  std::string data, commands;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    data += fmt::format("$c{} << END\n", i);
    for (const auto& [x, y] : blocks[i].points) data += fmt::format("{:.9g} {:.9g}\n", x, y);
    const ArmStyle& style = blocks[i].style;
    commands += fmt::format("{}$c{} using 1:2 with steps lc rgb {} lw {}", i == 0 ? "plot " : ", ", i,
                            slot_colour(style.slot), style.width());
    if (!style.dash.empty()) commands += fmt::format(" dt ({})", fmt::join(style.dash, ","));
    data += "END\n";
  }
  return data + commands + "\n";
}

// Fewer points where there are very many, the last one kept.
std::vector<std::pair<double, double>> thinned(const std::vector<std::pair<double, double>>& points) {
  if (points.size() <= kMaxPoints) return points;
  std::vector<std::pair<double, double>> result;
  for (std::size_t i = 0; i < kMaxPoints; ++i) result.push_back(points[i * (points.size() - 1) / (kMaxPoints - 1)]);
  return result;
}

}  // namespace

std::string distribution_script(const CurvePlot& plot) {
  std::vector<Block> blocks;
  Range x;
  for (const Curve& curve : plot.curves) {
    if (curve.points.empty()) continue;
    Block block{curve.style, thinned(curve.points)};
    for (const auto& [ms, fraction] : block.points) x.take(ms);
    block.points.insert(block.points.begin(), {block.points.front().first, 0.0});
    blocks.push_back(std::move(block));
  }
  if (blocks.empty()) return "";
  return head(kHeight) + time_axis(x, plot) +
         "set yrange [0:1.02]\nset ytics ('0' 0, '25 %%' 0.25, '50 %%' 0.5, '75 %%' 0.75, '90 %%' 0.9, '100 %%' 1)\n" +
         draw(blocks);
}

std::string tail_script(const CurvePlot& plot) {
  std::vector<Block> blocks;
  Range x;
  double rarest = 0.1;  // the smallest fraction of rounds that is drawn
  for (const Curve& curve : plot.curves) {
    if (curve.rounds < kTailRounds) continue;
    Block block{curve.style, {}};
    const auto points = thinned(curve.points);
    // Nothing can be said about what is rarer than one round.
    const double floor = std::max(0.5 / curve.rounds, 1e-6);
    for (const auto& [ms, fraction] : points) {
      if (fraction < 0.9) continue;
      if (block.points.empty()) block.points.emplace_back(ms, 0.1);
      block.points.emplace_back(ms, std::max(1 - fraction, floor));
      x.take(ms);
    }
    if (block.points.empty()) continue;
    rarest = std::min(rarest, floor);
    blocks.push_back(std::move(block));
  }
  if (blocks.empty()) return "";
  return head(kHeight) + time_axis(x, plot) +
         fmt::format("set logscale y\nset yrange [0.1001:{:.9g}] reverse\n", rarest * 0.9) +
         "set ytics ('p90' 0.1, 'p95' 0.05, 'p99' 0.01, 'p99.5' 0.005, 'p99.9' 0.001, 'p99.99' 0.0001)\n" +
         draw(blocks);
}

std::string bars_script(const BarPlot& plot) {
  if (plot.rows.empty()) return "";
  Range values;
  for (const BarRow& row : plot.rows) {
    values.take(row.value);
    if (row.mark) values.take(*row.mark);
  }
  if (plot.reference) values.take(*plot.reference);
  const bool log = plot.may_be_log && values.low > 0 && values.span() > kLogSpan;
  Range x{log ? values.low / 1.6 : std::min(0.0, values.low), values.high * (log ? 1.05 : 1.02)};
  if (!(x.high > x.low)) x.high = x.low + 1;
  const auto count = static_cast<int>(plot.rows.size());
  std::string script = head(kBarFrame + kBarStep * count) + x_label(plot.axis + (log ? " (logarithmic)" : ""));
  script += "set grid noytics\nset lmargin at screen 0.27\nset rmargin at screen 0.87\nset tmargin 1\n";
  if (log) script += "set logscale x\n" + log_ticks(x);
  script += fmt::format("set xrange [{:.9g}:{:.9g}]\nset yrange [-0.6:{}]\n", x.low, x.high, count - 0.4);
  if (plot.reference) script += vertical(*plot.reference);
  std::string names, bars, marks;
  for (int i = 0; i < count; ++i) {
    const BarRow& row = plot.rows[static_cast<std::size_t>(i)];
    const double y = count - 1 - i;
    names += fmt::format("{}'{}' {}", i == 0 ? "" : ", ", label_token(static_cast<std::size_t>(i)), y);
    script += fmt::format("$b{} << END\n{:.9g} {} {:.9g} {:.9g} {} {} {}\nEND\n", i, row.value, y, x.low, row.value,
                          y - 0.34, y + 0.34, fmt::format(fmt::runtime(plot.value_format), row.value));
    bars += fmt::format(
        "{}$b{} using 1:2:3:4:5:6 with boxxyerror fs transparent solid {} border lc rgb {} lw 1.2 lc "
        "rgb {}, $b{} using 1:2:7 with labels left offset 0.6,0 textcolor rgb {}",
        i == 0 ? "plot " : ", ", i, row.style.ours ? "0.65" : "0.2", slot_colour(row.style.slot),
        slot_colour(row.style.slot), i, kTextColour);
    if (row.mark) marks += fmt::format("{:.9g} {} 0 0.68\n", *row.mark, y - 0.34);
  }
  script += fmt::format("set ytics ({}) scale 0\n", names);
  if (!marks.empty()) {
    script += "$m << END\n" + marks + "END\n";
    bars += fmt::format(", $m using 1:2:3:4 with vectors nohead lc rgb {} lw 2", kMarkColour);
  }
  return script + bars + "\n";
}

std::vector<std::string> labels(const BarPlot& plot) {
  std::vector<std::string> result;
  for (const BarRow& row : plot.rows) {
    const std::string cut = report::first_characters(row.label, kMaxLabel);
    result.push_back(cut.size() < row.label.size() ? cut + "\xE2\x80\xA6" : cut);
  }
  return result;
}

}  // namespace clustar::bench::lossy_report
