#include "bench/lossy/report/section.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "bench/lossy/report/fields.h"
#include "bench/lossy/report/plots.h"
#include "bench/lossy/report/svg.h"
#include "bench/report/page.h"
#include "bench/report/report.h"

namespace clustar::bench::lossy_report {
namespace {

using nlohmann::json;
using report::cell;
using report::escaped;
using report::row;

constexpr std::size_t kMaxDrawn = 24;  // arms in a plot; tables have all

std::string name_of(const json& arm) {
  const std::string name = text(arm, "name");
  return name.empty() ? "(no name)" : name;
}

// In a cell: line as in the plots, label, and name as on the command line.
std::string arm_cell(const json& arm, const Palette& palette) {
  const std::string label = text(arm, "label", name_of(arm));
  std::string html = "<td>" + palette.of(text(arm, "name")).swatch() + escaped(label);
  if (label != name_of(arm)) html += " <code>" + escaped(name_of(arm)) + "</code>";
  return html + "</td>";
}

std::string ratio(std::optional<double> value, std::optional<double> to) {
  return value && to && *to > 0 ? fixed(*value / *to, 2) : "-";
}

std::string missing_share(const json& arm) {
  const auto missing = number(arm, "missing_bytes"), eligible = number(arm, "eligible_bytes");
  return missing && eligible && *eligible > 0 ? fmt::format("{:.3f} %", 100 * *missing / *eligible) : "-";
}

std::string block_range(const json& arm) {
  std::optional<double> low, high;
  for (const json& block : list(arm, "blocks")) {
    const auto value = number(block);
    if (!value) continue;
    low = std::min(low.value_or(*value), *value);
    high = std::max(high.value_or(*value), *value);
  }
  return low ? fmt::format("{:.4g} to {:.4g}", *low, *high) : "-";
}

std::string arm_row(const json& arm, const json& scenario, const Palette& palette) {
  const std::string skipped = text(arm, "skipped"), failure = text(arm, "failure");
  std::string html = "<tr>" + arm_cell(arm, palette);
  if (!number(arm, "p50_ms") && !(skipped + failure).empty()) {
    return html + fmt::format("<td colspan=13 class=\"why{}\">{}</td></tr>\n", failure.empty() ? "" : " warning",
                              escaped(failure.empty() ? "not measured: " + skipped : "failed: " + failure));
  }
  const auto p99 = number(arm, "p99_ms");
  html += cell(fixed(number(arm, "rounds"), 0));
  for (const char* key : {"p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"})
    html += cell(milliseconds(number(arm, key)));
  html += cell(ratio(p99, number(arm, "p50_ms"))) + cell(ratio(p99, number(scenario, "ideal_ms"))) +
          cell(block_range(arm)) + cell(fixed(number(arm, "goodput_gbps"), 4)) +
          cell(fixed(number(arm, "cpu_s_per_gbit"), 4)) + cell(fixed(number(arm, "machine_cpu_s_per_gbit"), 4)) +
          cell(missing_share(arm)) + "</tr>\n";
  if (failure.empty()) return html;
  return html + "<tr><td colspan=14 class=\"why warning\">then failed: " + escaped(failure) + "</td></tr>\n";
}

std::string arms_table(const json& scenario, const Palette& palette) {
  if (list(scenario, "arms").empty()) return "<p class=dim>No arm was measured.</p>\n";
  std::string html = "<div class=scroll><table class=arms>" +
                     row({"arm", "rounds", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms", "p99 / p50",
                          "p99 / ideal", "p50 by block, ms", "Gbit/s", "CPU s/Gbit", "whole machine", "missing"},
                         "th");
  for (const json& arm : list(scenario, "arms")) html += arm_row(arm, scenario, palette);
  html += "</table></div>\n";
  if (is_indicative(scenario)) {
    html += "<p class=indicative>Fewer than 1,000 rounds: percentiles are indicative.</p>\n";
  }
  const json& disturbs = field(field(scenario, "other_cpu"), "disturbs");
  if (disturbs.is_boolean() && disturbs.get<bool>()) {
    html += "<p class=indicative>Others used the CPU meanwhile: the whole machine's has theirs, too.</p>\n";
  }
  return html;
}

std::string jobs_table(const json& scenario) {
  std::string rows;
  for (const json& arm : list(scenario, "arms")) {
    for (const json& job : list(arm, "jobs")) {
      rows += row({name_of(arm), text(job, "name", "-"), fixed(number(job, "goodput_gbps"), 4),
                   fixed(number(job, "share_of_fair"), 3), any_text(field(job, "share_by_round"))});
    }
  }
  if (rows.empty()) return "";
  return "<div class=scroll><table>" +
         row({"jobs together", "job", "Gbit/s", "share of the fair one", "by round"}, "th") + rows + "</table></div>\n";
}

std::string rules_text(const json& rules) {
  if (!rules.is_array()) return any_text(rules);
  std::string joined;
  for (const json& rule : rules) {
    const std::string port = text(rule, "port"), loss = text(rule, "loss");
    joined += (joined.empty() ? "" : "; ") + (port.empty() || loss.empty() ? any_text(rule) : port + ": " + loss);
  }
  return joined.empty() ? "-" : joined;
}

std::string setup(const json& scenario) {
  const json& fabric = field(scenario, "fabric");
  std::string html = "<dl class=setup>";
  const auto add = [&](const char* what, const std::string& value) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>", what, escaped(value));
  };
  add("Fabric",
      fmt::format("{}, {} hosts, {} per port, MTU {}, {} per port", any_text(field(fabric, "topology")),
                  fixed(number(fabric, "hosts"), 0), rate(number(fabric, "rate_bps")), fixed(number(fabric, "mtu"), 0),
                  number(fabric, "buffer_bytes") == 0 ? "the fabric's default buffer"
                                                      : "a buffer of " + bytes(number(fabric, "buffer_bytes"))));
  add("Loss", rules_text(field(fabric, "rules")));
  const auto senders = number(scenario, "senders"), messages = number(scenario, "messages");
  add("Round",
      fmt::format("{} sender{}, {} message{} of {} each; {} rounds per arm", fixed(senders, 0), senders == 1 ? "" : "s",
                  fixed(messages.value_or(1), 0), messages.value_or(1) == 1 ? "" : "s",
                  bytes(number(scenario, "message_bytes")), fixed(number(scenario, "rounds"), 0)));
  std::string ideal = milliseconds(number(scenario, "ideal_ms")) + " ms: all layer-2 bytes at the port's rate";
  if (const auto one_way = number(scenario, "one_way_ms")) {
    ideal += fmt::format(", and one unloaded one-way time of {} ms", milliseconds(one_way));
  }
  if (const auto bucket = number(scenario, "bucket_ms")) {
    ideal += fmt::format("; after a pause the shaper may make a round {} ms faster", milliseconds(bucket));
  }
  add("Ideal", ideal);
  add("Delay", any_text(field(scenario, "delay_mode")));
  if (const auto deadline = number(scenario, "deadline_ms")) add("Static deadline", milliseconds(deadline) + " ms");
  return html + "</dl>\n";
}

std::vector<std::pair<double, double>> points_of(const json& arm) {
  std::vector<std::pair<double, double>> points;
  const auto add = [&](std::optional<double> ms, std::optional<double> fraction) {
    if (ms && fraction && *ms >= 0 && *fraction >= 0 && *fraction <= 1) points.emplace_back(*ms, *fraction);
  };
  for (const json& pair : list(arm, "cdf")) {
    if (pair.is_array() && pair.size() == 2) add(number(pair[0]), number(pair[1]));
  }
  if (points.empty()) return points;
  // The curve has few points for its last hundredth, which is where the figures of the table are.
  add(number(arm, "p99_ms"), 0.99);
  if (number(arm, "rounds").value_or(0) >= 1000) add(number(arm, "p999_ms"), 0.999);
  std::sort(points.begin(), points.end());
  // Quantiles lie between samples: never let the curve fall.
  double highest = 0;
  for (auto& [ms, fraction] : points) fraction = highest = std::max(highest, fraction);
  return points;
}

CurvePlot curves(const json& scenario, const Palette& palette) {
  CurvePlot plot{.curves = {}, .ideal_ms = number(scenario, "ideal_ms")};
  for (const json& arm : list(scenario, "arms")) {
    if (plot.curves.size() == kMaxDrawn) break;
    Curve curve{palette.of(text(arm, "name")), points_of(arm), number(arm, "rounds").value_or(0)};
    if (!curve.points.empty()) plot.curves.push_back(std::move(curve));
  }
  return plot;
}

BarPlot bars(const json& scenario, const Palette& palette, const char* key, const char* format, const char* axis) {
  BarPlot plot{.rows = {}, .value_format = format, .axis = axis, .reference = std::nullopt};
  for (const json& arm : list(scenario, "arms")) {
    const auto value = number(arm, key);
    if (plot.rows.size() == kMaxDrawn) break;
    if (value && *value >= 0) plot.rows.push_back({palette.of(text(arm, "name")), name_of(arm), *value, std::nullopt});
  }
  return plot;
}

// Marks each arm's bar with another of its figures.
void mark(BarPlot& plot, const json& scenario, const char* key) {
  for (BarRow& row_of_arm : plot.rows) {
    for (const json& arm : list(scenario, "arms")) {
      if (name_of(arm) == row_of_arm.label) row_of_arm.mark = number(arm, key);
    }
  }
}

BarPlot p99_bars(const json& scenario, const Palette& palette) {
  BarPlot plot = bars(scenario, palette, "p99_ms", "{:.4g}", "milliseconds");
  plot.may_be_log = true;
  plot.reference = number(scenario, "ideal_ms");
  mark(plot, scenario, "p50_ms");
  return plot;
}

BarPlot cpu_bars(const json& scenario, const Palette& palette) {
  BarPlot plot = bars(scenario, palette, "cpu_s_per_gbit", "{:.4f}", "CPU seconds per Gbit");
  mark(plot, scenario, "machine_cpu_s_per_gbit");
  return plot;
}

BarPlot share_bars(const json& scenario, const Palette& palette) {
  BarPlot plot{.rows = {}, .value_format = "{:.3f}", .axis = "share of the fair one", .reference = 1};
  for (const json& arm : list(scenario, "arms")) {
    for (const json& job : list(arm, "jobs")) {
      const auto share = number(job, "share_of_fair");
      if (plot.rows.size() == kMaxDrawn || !share) continue;
      ArmStyle style = palette.of(text(arm, "name"));
      const std::string name = text(job, "name");
      style.ours = name.find("mlt") != std::string::npos || name.find("clustar") != std::string::npos;
      plot.rows.push_back({style, name, *share, std::nullopt});
    }
  }
  return plot;
}

std::string plots(const json& scenario, const Palette& palette, Plotter& plotter) {
  const CurvePlot times = curves(scenario, palette);
  std::string html;
  const auto add_bars = [&](const BarPlot& plot, const std::string& caption) {
    html += plotter.figure(bars_script(plot), caption, labels(plot));
  };
  html += plotter.figure(distribution_script(times), "Round time: share of the rounds that took at most so long", {});
  html += plotter.figure(tail_script(times), "The slowest tenth of the rounds: each decade up is ten times rarer", {});
  add_bars(p99_bars(scenario, palette), "p99 of the round time; the line across a bar is its p50");
  add_bars(bars(scenario, palette, "goodput_gbps", "{:.4f}", "Gbit/s"), "Goodput: delivered bytes only");
  add_bars(cpu_bars(scenario, palette), "CPU of both ends' processes; the line is the whole machine's");
  add_bars(share_bars(scenario, palette), "Share of the port, job by job; jobs of one colour ran together, 1 is fair");
  if (html.empty()) return "";
  std::string keys;
  for (const json& arm : list(scenario, "arms")) {
    if (!number(arm, "p50_ms") && points_of(arm).empty()) continue;
    keys += "<span>" + palette.of(text(arm, "name")).swatch() + escaped(text(arm, "label", name_of(arm))) + "</span>";
  }
  if (times.ideal_ms) {
    keys +=
        "<span><svg class=swatch viewBox=\"0 0 34 10\" aria-hidden=true><line x1=0 y1=5 x2=34 y2=5 "
        "stroke=\"var(--text)\" stroke-width=1.8 stroke-dasharray=\"1.5 3\" /></svg>ideal</span>";
  }
  return "<p class=keys>" + keys + "</p>\n<div class=plots>\n" + html + "</div>\n";
}

}  // namespace

std::string Plotter::figure(const std::string& script, const std::string& caption,
                            const std::vector<std::string>& labels) {
  if (script.empty() || useless_) return "";
  const auto drawn = run_gnuplot(script, options_);
  const auto svg = drawn ? inline_svg(*drawn, caption, labels) : Result<std::string>(tl::unexpected(drawn.error()));
  if (svg) {
    ++plots_;
    return "<figure><figcaption>" + escaped(caption) + "</figcaption>" + *svg + "</figure>\n";
  }
  problems_.push_back(svg.error().message);
  // The next one would end the same way, or as late.
  useless_ = svg.error().code == ErrorCode::kUnavailable || svg.error().message.find("longer") != std::string::npos;
  if (useless_) return "";
  return "<figure><figcaption>" + escaped(caption) +
         "</figcaption><p class=warning>No plot: " + escaped(svg.error().message) + "</p></figure>\n";
}

std::string title_of(const json& scenario) { return text(scenario, "title", text(scenario, "name", "(no title)")); }

bool is_indicative(const json& scenario) {
  for (const json& arm : list(scenario, "arms")) {
    const json& indicative = field(arm, "indicative");
    if (indicative.is_boolean() && indicative.get<bool>()) return true;
  }
  return false;
}

std::string anchor(std::size_t index) { return fmt::format("s{}", index); }

std::string section(const json& scenario, std::size_t index, const Palette& palette, Plotter& plotter) {
  std::string html = fmt::format("<section id={}><h2>{}</h2>\n", anchor(index), escaped(title_of(scenario)));
  if (const std::string question = text(scenario, "question"); !question.empty()) {
    html += "<p class=question>" + escaped(question) + "</p>\n";
  }
  html += setup(scenario);
  if (const std::string skipped = text(scenario, "skipped"); !skipped.empty()) {
    html += "<p class=warning>Not measured: " + escaped(skipped) + "</p>\n";
  }
  html += arms_table(scenario, palette) + jobs_table(scenario) + plots(scenario, palette, plotter);
  std::string notes;
  for (const json& note : list(scenario, "notes")) notes += "<li>" + escaped(any_text(note)) + "</li>";
  if (!notes.empty()) html += "<ul class=notes>" + notes + "</ul>\n";
  const auto rounds = number(scenario, "rounds"), seed = number(field(scenario, "fabric"), "seed");
  std::set<std::string> arms;
  for (const json& arm : list(scenario, "arms")) {
    std::istringstream jobs(text(arm, "name"));
    for (std::string job; std::getline(jobs, job, '+');) arms.insert(job);
  }
  html +=
      "<p class=dim>Once more, as root:</p><pre>" +
      escaped(fmt::format("clustar perf --suite lossy --scenario {}{}{}{} --json lossy.json",
                          report::shell_word(text(scenario, "name", "NAME")),
                          arms.empty() ? "" : " --arms " + report::shell_word(fmt::format("{}", fmt::join(arms, ","))),
                          rounds && *rounds >= 1 ? fmt::format(" --rounds {:.0f}", *rounds) : "",
                          seed ? fmt::format(" --seed {:.0f}", *seed) : "")) +
      "</pre></section>\n";
  return html;
}

}  // namespace clustar::bench::lossy_report
