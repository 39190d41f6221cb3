#include "bench/lossy/report/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/lossy/report/fields.h"
#include "bench/lossy/report/palette.h"
#include "bench/lossy/report/section.h"
#include "bench/report/page.h"

namespace clustar::bench::lossy_report {
namespace {

using nlohmann::json;
using report::cell;
using report::escaped;

// Beside report::page_style().
constexpr const char* kStyle = R"css(
section { border-top: 1px solid var(--rule); margin-top: 2.5rem; }
section h2 { font-size: 1.25rem; margin-top: 1.2rem; } .question { font-size: 1.05rem; }
dl.setup { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0 1rem; }
dl.setup dt { color: var(--dim); } dl.setup dd { margin: 0; overflow-wrap: anywhere; }
table.arms th, table.arms td { padding: .25rem .5rem; } table.arms th:first-child, table.arms td:first-child {
  padding-left: 0; } table.arms td:first-child { white-space: normal; min-width: 15rem; }
td code { white-space: nowrap; } td.why { text-align: left; white-space: normal; } td.left, th.left { text-align: left; }
.badge { display: inline-block; white-space: nowrap; border: 1px solid; border-radius: 1em; padding: 0 .6em;
  font-size: .85em;
  color: var(--dim); } .badge.met { color: var(--good); } .badge.missed { color: var(--wait); font-weight: 600; }
.keys { display: flex; flex-wrap: wrap; gap: .2rem 1.4rem; margin: 1rem 0 .6rem; font-size: .92rem; }
.plot text { font: 12px system-ui, sans-serif; }
table.bars td, table.bars th { white-space: normal; } table.bars td:nth-child(n+4) { white-space: nowrap; }
td .reason { display: block; color: var(--dim); font-size: .92em; }
.indicative { color: var(--dim); font-size: .92rem; }
@media (max-width: 1000px) { table.arms th, table.arms td { padding: .2rem .22rem; } table.arms { font-size: .72rem; }
  table.arms td:first-child { min-width: 8rem; } table.bars th, table.bars td { padding: .2rem .35rem; } }
@media (max-width: 500px) { dl.setup { grid-template-columns: 1fr; } dl.setup dd { margin: 0 0 .3rem; } }
.notes { color: var(--dim); margin: 1rem 0; padding-left: 1.2rem; })css";

struct Count {
  int met = 0, missed = 0, unknown = 0, without_value = 0;
  int all() const { return met + missed + unknown + without_value; }
};

Count count_bars(const json& scenarios) {
  Count count;
  for (const json& scenario : scenarios) {
    for (const json& bar : list(scenario, "bars")) {
      const json& met = field(bar, "met");
      const bool is_void = !text(bar, "void_because").empty();
      ++(is_void             ? count.without_value
         : !met.is_boolean() ? count.unknown
         : met.get<bool>()   ? count.met
                             : count.missed);
    }
  }
  return count;
}

std::string verdict(const Count& count) {
  if (count.all() == 0) return "<div class=verdict>No bar was set.</div>\n";
  std::string words = fmt::format("{} of {} bars met", count.met, count.all());
  if (count.missed > 0) words += fmt::format(", {} missed", count.missed);
  if (count.unknown > 0) words += fmt::format(", {} not measured", count.unknown);
  if (count.without_value > 0) words += fmt::format(", {} void", count.without_value);
  const char* kind = count.missed > 0 ? "slower" : count.unknown + count.without_value > 0 ? "" : "faster";
  return fmt::format("<div class=\"verdict {}\">{}.</div>\n", kind, words);
}

std::string badge(const json& bar) {
  const json& met = field(bar, "met");
  const json& indicative = field(bar, "indicative");
  const std::string because = text(bar, "void_because");
  std::string html = !because.empty()    ? "<span class=badge>void</span>"
                     : !met.is_boolean() ? "<span class=badge>not measured</span>"
                     : met.get<bool>()   ? "<span class=\"badge met\">&#10003; met</span>"
                                         : "<span class=\"badge missed\">&#10007; missed</span>";
  if (indicative.is_boolean() && indicative.get<bool>()) html += "<span class=reason>indicative</span>";
  if (!because.empty()) html += "<span class=reason>" + escaped(because) + "</span>";
  return html;
}

std::string bar_row(const json& bar, const std::string& title, std::size_t index) {
  const auto least = number(bar, "at_least"), most = number(bar, "at_most");
  const std::string wanted = least  ? fmt::format("at least {:g}", *least)
                             : most ? fmt::format("at most {:g}", *most)
                                    : "-";
  const json& spread = list(bar, "spread");
  const std::string blocks =
      spread.size() == 2 ? fixed(number(spread[0]), 2) + " to " + fixed(number(spread[1]), 2) : "-";
  std::string measured = cell(fixed(number(bar, "figure"), 3));
  std::string others;
  if (const auto less = number(bar, "figure_less_bucket"))
    others += fmt::format("; {:.3f} of the ideal less the bucket", *less);
  if (const auto all = number(bar, "figure_with_stalls")) others += fmt::format("; {:.3f} with stalled rounds", *all);
  const std::string said = others.empty() ? "" : "<span class=reason>" + escaped(others.substr(2)) + "</span>";
  return fmt::format("<tr><td><a href=\"#{}\">{}</a></td><td class=left>{}</td><td class=left>{}</td>", anchor(index),
                     escaped(title), escaped(text(bar, "text", "-")), badge(bar) + said) +
         cell(wanted) + measured + cell(blocks) + "</tr>\n";
}

// The outcome stands before the figures, so that a narrow window does not cut it off.
std::string bars_table(const json& scenarios) {
  std::string rows;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    for (const json& bar : list(scenarios[i], "bars")) rows += bar_row(bar, title_of(scenarios[i]), i);
  }
  if (rows.empty()) return "";
  return "<div class=scroll><table class=bars><tr><th>scenario</th><th class=left>bar</th><th class=left>result</th>"
         "<th>wanted</th><th>measured</th><th>by block</th></tr>\n" +
         rows + "</table></div>\n";
}

const json& arm_of(const json& scenario, const std::string& name) {
  static const json nothing;
  for (const json& arm : list(scenario, "arms")) {
    if (text(arm, "name") == name) return arm;
  }
  return nothing;
}

std::optional<double> p99_over_ideal(const json& scenario, const std::string& arm_name) {
  const auto ideal = number(scenario, "ideal_ms"), p99 = number(arm_of(scenario, arm_name), "p99_ms");
  return p99 && ideal && *ideal > 0 ? std::optional(*p99 / *ideal) : std::nullopt;
}

// An arm that may leave bytes out has it easier than one that must deliver all.
std::optional<double> reliable_p99_over_ideal(const json& scenario, const std::string& arm_name) {
  const json& arm = arm_of(scenario, arm_name);
  const bool reliable = number(arm, "eligible_bytes").value_or(0) <= 0 && number(arm, "missing_bytes").value_or(0) <= 0;
  return reliable && text(arm, "failure").empty() ? p99_over_ideal(scenario, arm_name) : std::nullopt;
}

// Arms by scenarios, where an arm is one job and has its figure.
std::string overview(const json& scenarios, const Palette& palette) {
  std::vector<std::string> arms;
  std::vector<std::size_t> columns;
  for (std::size_t i = 0; i < scenarios.size(); ++i) {
    bool any = false;
    for (const json& arm : list(scenarios[i], "arms")) {
      const std::string name = text(arm, "name");
      if (!list(arm, "jobs").empty() || !p99_over_ideal(scenarios[i], name)) continue;
      any = true;
      if (std::find(arms.begin(), arms.end(), name) == arms.end()) arms.push_back(name);
    }
    if (any) columns.push_back(i);
  }
  if (arms.empty()) return "";
  std::string rows = "<tr><th>arm</th>";
  for (const std::size_t i : columns) {
    rows += fmt::format("<th><a href=\"#{}\">{}</a>{}</th>", anchor(i), escaped(text(scenarios[i], "name", "-")),
                        is_indicative(scenarios[i]) ? " *" : "");
  }
  rows += "</tr>\n";
  for (const std::string& arm : arms) {
    rows += "<tr><td>" + palette.of(arm).swatch() + escaped(arm) + "</td>";
    for (const std::size_t i : columns) {
      const auto value = p99_over_ideal(scenarios[i], arm);
      bool best = reliable_p99_over_ideal(scenarios[i], arm).has_value();
      for (const std::string& other : arms) {
        best = best && reliable_p99_over_ideal(scenarios[i], other).value_or(*value) >= *value;
      }
      rows += fmt::format("<td{}>{}</td>", best ? " class=best" : "", fixed(value, 2));
    }
    rows += "</tr>\n";
  }
  return "<h2>p99 of the round time over the ideal, by arm and scenario</h2>\n<div class=scroll><table>" + rows +
         "</table></div>\n<p class=dim>1 is the line's own time; the best of a column in bold, among those that " +
         "deliver every byte. *: indicative, fewer than 1,000 rounds. Solid: clustar's transports. Dashed: the " +
         "kernel's TCP and MPTCP.</p>\n";
}

std::string other_cpu_text(const json& other) {
  if (!other.is_object()) return any_text(other);
  std::string words = fmt::format("{} of {} cores, over {} s", fixed(number(other, "cores_used"), 2),
                                  fixed(number(other, "cores"), 0), fixed(number(other, "seconds"), 0));
  if (const json& disturbs = field(other, "disturbs"); disturbs.is_boolean() && disturbs.get<bool>()) {
    words += ": enough to disturb the figures";
  }
  return words;
}

// What the machine did meanwhile.
std::vector<std::vector<std::string>> conditions(const json& results) {
  return {{"load average before", any_text(field(results, "load_average_before"))},
          {"load average after", any_text(field(results, "load_average_after"))},
          {"CPU used by others", other_cpu_text(field(results, "other_cpu"))}};
}

std::string warnings(const json& results) {
  std::string html;
  const auto add = [&](const std::string& words) { html += "<p class=warning>" + escaped(words) + "</p>\n"; };
  if (const std::string reason = text(results, "ended_by"); !reason.empty()) {
    add("Ended early: " + reason + "; not measured: " + any_text(field(results, "unfinished")) + ".");
  }
  const json& disturbs = field(field(results, "other_cpu"), "disturbs");
  if (disturbs.is_boolean() && disturbs.get<bool>()) {
    add("Others used the CPU while this was measured: ratios hold better than times.");
  }
  for (const json& scenario : list(results, "scenarios")) {
    for (const json& arm : list(scenario, "arms")) {
      const std::string failure = text(arm, "failure");
      if (!failure.empty()) add(text(scenario, "name") + ", " + text(arm, "name") + " failed: " + failure);
    }
  }
  return html;
}

}  // namespace

bool can_draw(const json& document) { return field(field(document, "results"), "scenarios").is_array(); }

Page make_page(const json& document, const GnuplotOptions& gnuplot) {
  const json& results = field(document, "results");
  const json& scenarios = list(results, "scenarios");
  const Palette palette(scenarios);
  Plotter plotter(gnuplot);
  std::string sections;
  for (std::size_t i = 0; i < scenarios.size(); ++i) sections += section(scenarios[i], i, palette, plotter);
  Page page{.html = {}, .plots = plotter.plots(), .problems = plotter.problems()};
  page.html = report::page_head("clustar perf --suite lossy", kStyle);
  page.html += report::page_title(document, "Transports over a lossy fabric", "");
  page.html += verdict(count_bars(scenarios)) + warnings(results);
  for (const std::string& problem : page.problems) {
    page.html += "<p class=warning>Plots are missing: " + escaped(problem) +
                 ". Then draw this page again: <code>clustar report FILE.json -o FILE.html</code></p>\n";
  }
  page.html += bars_table(scenarios) + overview(scenarios, palette);
  if (scenarios.empty()) page.html += "<p>The file has no scenario.</p>\n";
  page.html += sections + report::page_end(document, conditions(results));
  return page;
}

}  // namespace clustar::bench::lossy_report
