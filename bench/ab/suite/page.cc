#include "bench/ab/suite/page.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "bench/ab/labels.h"
#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/captured.h"
#include "bench/ab/suite/figures.h"
#include "bench/report/page.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using report::cell;
using report::escaped;
using report::row;
using report::show;

std::string percent(const json& share, int digits = 2) {
  return share.is_number() ? fmt::format("{:.{}f} %", 100 * share.get<double>(), digits) : "-";
}

std::string points(const json& difference) {
  if (!difference.is_object()) return "-";
  const std::string mean = fmt::format("{:+.2f}", 100 * difference.at("mean").get<double>());
  if (!difference.at("low").is_number()) return mean;
  return fmt::format("{} ({:+.2f} to {:+.2f})", mean, 100 * difference.at("low").get<double>(),
                     100 * difference.at("high").get<double>());
}

std::string replicas(const json& identical) {
  if (identical.is_null()) return "not compared";
  return identical.get<bool>() ? "identical" : "DIFFERENT";
}

std::string time_table(const json& training, const json& scenario) {
  const bool has_target = !training.at("options").at("target_accuracy").is_null();
  std::vector<std::string> head{"time", "runs", "step ms, median", "p50", "p99"};
  if (has_target) head.insert(head.end(), {"seconds to target", "reached", "times sooner than the reference"});
  head.insert(head.end(), {"steps: times faster than the reference", "step time / clean"});
  std::string text = "<div class=scroll><table>" + row(head, "th");
  for (const json& one : scenario.at("figures")) {
    const bool is_reference = one.at("reference") == one.at("name");
    const auto ratio = [&](const char* key) {
      if (is_reference) return std::string("the reference");
      const json& estimate = one.at(key);
      if (!estimate.is_object()) return std::string("-");
      return fmt::format("{}, {} of {} pairs", interval_text(estimate), estimate.at("pairs").get<int>(),
                         training.at("options").at("rounds").get<int>());
    };
    std::vector<std::string> cells{show(one.at("name")), show(one.at("runs")), show(one.at("step_ms"), 2),
                                   show(one.at("step_p50_ms"), 2), show(one.at("step_p99_ms"), 2)};
    if (has_target) {
      cells.insert(cells.end(), {show(one.at("time_to_accuracy_s"), 2),
                                 fmt::format("{} of {}", one.at("reached").get<int>(),
                                             training.at("options").at("rounds").get<int>()),
                                 ratio("time_ratio")});
    }
    cells.insert(cells.end(), {ratio("step_ratio"), interval_text(one.at("growth"))});
    text += row(cells);
  }
  return text + "</table></div>\n";
}

std::string gradients_table(const json& scenario) {
  std::string text = "<div class=scroll><table>" +
                     row({"gradients", "accuracy, end", "accuracy - p0, points", "missing bytes", "of eligible",
                          "bound", "replicas", "lost on purpose", "buffer full", "others while it trained, Mbit/s"},
                         "th");
  for (const json& one : scenario.at("figures")) {
    const json& others = one.at("background_bps");
    text += row({show(one.at("name")), percent(one.at("accuracy")), points(one.at("accuracy_difference")),
                 show(one.at("missing_bytes"), 0), percent(one.value("missing_share", json(nullptr)), 3),
                 percent(one.value("bound", json(nullptr)), 1), replicas(one.at("replicas_identical")),
                 show(one.at("switch_lost_on_purpose"), 0), show(one.at("switch_dropped_full"), 0),
                 others.is_number() ? fmt::format("{:.1f}", others.get<double>() / 1e6) : "-"});
  }
  return text + "</table></div>\n";
}

std::string bars_table(const json& training) {
  if (training.at("bars").empty()) return "";
  std::string text =
      "<h2>Bars</h2>\n<div class=scroll><table class=text>" + row({"", "scenario", "arm", "bar", "measured"}, "th");
  for (const json& bar : training.at("bars")) {
    const bool known = !bar.at("met").is_null();
    const bool met = known && bar.at("met").get<bool>();
    text += fmt::format("<tr><td class={}>{}</td>{}{}{}{}</tr>\n",
                        !known ? "dim"
                        : met  ? "met"
                               : "missed",
                        !known ? "-"
                        : met  ? "met"
                               : "not met",
                        cell(show(bar.at("scenario"))), cell(show(bar.at("arm"))), cell(show(bar.at("what"))),
                        cell(show(bar.at("text"))));
  }
  return text + "</table></div>\n";
}

std::string arms_table(const json& scenario) {
  std::string text = "<div class=scroll><table class=text>" +
                     row({"arm", "what", "environment of its ranks", "rto_min", "left out"}, "th");
  for (const json& arm : scenario.at("arms")) {
    std::string settings;
    for (const auto& [name, value] : arm.at("settings").items())
      settings += name + "=" + value.get<std::string>() + " ";
    for (const json& word : arm.at("train_arguments")) settings += " " + word.get<std::string>();
    const int rto = arm.at("rto_min_us");
    text += row({show(arm.at("name")), show(arm.at("label")), settings,
                 rto == 0 ? "kernel's" : fmt::format("{} us", rto), show(arm.at("left_out"))});
  }
  return text + "</table></div>\n";
}

std::string scenario_part(const json& training, const json& scenario) {
  std::string text = fmt::format("<h2>{}: {}</h2>\n<p>{}</p>\n", escaped(show(scenario.at("name"))),
                                 escaped(show(scenario.at("title"))), escaped(show(scenario.at("question"))));
  const json& place = scenario.at("place");
  text += fmt::format("<p class=dim>{} ranks; {}.", show(scenario.at("ranks")),
                      escaped(show(place.is_object() ? place.at("text") : scenario.at("fabric"))));
  for (const json& note : scenario.at("notes")) text += " " + escaped(show(note));
  text += "</p>\n";
  for (const json& problem : scenario.at("problems")) {
    text += fmt::format("<p class=warning>Not measured: {}</p>\n", escaped(show(problem)));
  }
  if (!scenario.at("figures").empty()) {
    text += time_table(training, scenario) + gradients_table(scenario) + plots_of(training, scenario);
  }
  std::string losses;
  for (const json& line : scenario.at("losses")) losses += (losses.empty() ? "" : "; ") + show(line);
  if (!losses.empty()) text += fmt::format("<p class=dim>Losses by port: {}</p>\n", escaped(losses));
  return text + "<details><summary>Arms in full</summary>" + arms_table(scenario) + "</details>\n";
}

std::string captured_table(const json& gains) {
  if (gains.empty()) return {};
  std::string text =
      "<h2>Captured gain</h2>\n<p>Of what trouble adds to a step of the better tuned TCP, how much the arm takes away: "
      "1 is as fast as that TCP on clean lines.</p>\n<div class=scroll><table>" +
      row({"scenario", "arm", "captured", "least to largest", "95 % interval", "beside", "bar", ""}, "th");
  for (const json& one : gains) {
    const bool has_interval = one.at("interval_low").is_number();
    const std::string interval =
        has_interval ? show(one.at("interval_low"), 2) + " to " + show(one.at("interval_high"), 2) : "-";
    text += row({show(one.at("scenario")), show(one.at("arm")), show(one.at("gain"), 2),
                 show(one.at("low"), 2) + " to " + show(one.at("high"), 2), interval, show(one.at("tcp")),
                 one.at("limit").is_null() ? "" : "at least " + show(one.at("limit"), 2),
                 one.at("limit").is_null() ? "" : show(one.at("verdict"))});
  }
  return text + "</table></div>\n";
}

// What was the same for all arms.
std::string page_foot(const json& document) {
  const json& training = document.at("training");
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : training.at("options").items())
    rows.push_back({option_label(name), option_text(value)});
  for (const char* key : {"load_average_before", "load_average_after"}) {
    if (training.contains(key)) rows.push_back({option_label(key), option_text(training[key])});
  }
  return report::page_end(document, rows);
}

std::string styles(const json& training) {
  std::set<std::string> carriers;
  for (const json& scenario : training.at("scenarios")) {
    for (const json& arm : scenario.at("arms")) carriers.insert(arm.at("carrier"));
  }
  std::string text = kColours;
  for (const std::string& carrier : carriers) {
    const std::string name = colour_of(carrier);  // "of-..."
    text += fmt::format(".line-{0} {{ stroke: {1}; }} .fill-{0} {{ fill: {1}; }}\n", name,
                        fmt::format("var(--{}, var(--other))", name.substr(3)));
  }
  return text;
}

}  // namespace

std::string page(const json& document) {
  const json& training = document.at("training");
  const json& options = training.at("options");
  const std::string model = show(options.at("model"));
  std::string text = report::page_head("clustar ab: training in trouble", styles(training));
  const json& target = options.at("target_accuracy");
  const std::string lead = fmt::format(
      "Rounds: {}, a seed each: the same weights, data, order and losses for every arm of a round, in an order that "
      "changes from round to round. {} Seconds are those of training: no evaluation, no comparison of replicas. Thin "
      "lines are runs, thick ones their median.",
      show(options.at("rounds")),
      target.is_number()
          ? fmt::format("A run ends after the epoch that reaches {:.1f} % held-out accuracy, or after {}.",
                        100 * target.get<double>(), show(options.at("epochs")))
          : fmt::format("Epochs of each run: {}.", show(options.at("epochs"))));
  text += report::page_title(document, "Training " + model + " in trouble", lead);
  for (const json& warning : training.at("warnings")) {
    text += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  text += bars_table(training) + captured_table(captured_gains(training));
  for (const json& scenario : training.at("scenarios")) text += scenario_part(training, scenario);
  return text + page_foot(document);
}

}  // namespace clustar::bench::ab::suite
