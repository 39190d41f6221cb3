// The report of results.h: one page, nothing outside it.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "bench/ab/labels.h"
#include "bench/ab/results.h"
#include "bench/ab/timeline_plot.h"
#include "bench/report/page.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;
using report::cell;
using report::escaped;
using report::LineChart;
using report::row;
using report::Series;
using report::show;

// Above so many times the arms' best, the ceiling would press their curves together.
constexpr double kCeilingInPlot = 1.3;

// The three kinds of runs: what they are called in "arm", in plots, and their colour.
struct Kind {
  std::string arm;
  std::string name;
  std::string css_class;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{{"baseline", "A (baseline)", "a"},
                                     {"candidate", "B (candidate)", "b"},
                                     {"no communication", "no communication", "c"}};
  return all;
}

std::string interval(const json& from, const std::string& key) {
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", from.at(key).get<double>(), from.at(key + "_low").get<double>(),
                     from.at(key + "_high").get<double>());
}

std::string summary_table(const json& result) {
  const json& arms = result.at("arms");
  std::string text = "<div class=scroll><table>" + row({"median of the rounds", "A", "B", "B/A (95 % interval)"}, "th");
  const auto both = [&](const std::string& what, const char* key, int digits, const std::string& ratio = "") {
    text += row({what, show(arms.at(0).at(key), digits), show(arms.at(1).at(key), digits), ratio});
  };
  text += row({"images/s", rate_text(arms.at(0).at("images_per_second")), rate_text(arms.at(1).at("images_per_second")),
               interval(result, "ratio")});
  text += row({"images/s without communication", rate_text(result.at("images_per_second_ceiling")), "",
               interval(result, "ceiling_ratio") + ": the ceiling"});
  if (const json& time = result.at("time_to_accuracy"); time.is_object()) {
    const std::string what =
        fmt::format("seconds to {:.1f} % held-out accuracy", 100 * time.at("target_accuracy").get<double>());
    text += row({what, show(time.value("seconds_a", json()), 2), show(time.value("seconds_b", json()), 2),
                 time.at("ratio").is_null() ? "not reached" : interval(time, "ratio") + " sooner"});
  }
  both("exposed communication, ms/step", "exposed_comm_ms_per_step", 2);
  both("hidden communication, ms/step", "hidden_comm_ms_per_step", 2);
  both("compute, ms/step", "compute_ms_per_step", 2);
  both("bytes sent per run, all ranks", "bytes_sent", 0);
  both("messages per run, all ranks", "messages_sent", 0);
  if (result.at("place").at("kind") == "fabric")
    both("packets dropped at the switch, all runs", "switch_drops_total", 0);
  return text + "</table></div>\n";
}

std::string settings_table(const json& result) {
  const json& a = result.at("arms").at(0);
  const json& b = result.at("arms").at(1);
  const json& inherited = result.at("inherited_settings");
  std::string text = "<div class=scroll><table class=text>" + row({"setting", "A", "B"}, "th");
  const auto compare = [&](const std::string& what, const std::string& left, const std::string& right) {
    text +=
        fmt::format("<tr{}>{}{}{}</tr>\n", left == right ? "" : " class=differs", cell(what), cell(left), cell(right));
  };
  const auto congestion = [](const json& arm) {
    return show(arm.at("congestion_control")) +
           (arm.at("congestion_control_explicit").get<bool>() ? "" : " (kernel's default)");
  };
  compare("name", show(a.at("name")), show(b.at("name")));
  compare("plugin", show(a.at("plugin")), show(b.at("plugin")));
  compare("TCP congestion control", congestion(a), congestion(b));
  std::set<std::string> names;
  for (const std::string option : {"collective", "plan", "regions", "helpers"}) {
    const auto of = [&](const json& arm) { return arm.value("options", json::object()).value(option, ""); };
    if (!of(a).empty() || !of(b).empty()) compare(option, of(a), of(b));
  }
  for (const json* settings : {&a.at("settings"), &b.at("settings"), &inherited}) {
    for (const auto& [name, value] : settings->items()) names.insert(name);
  }
  for (const std::string& name : names) {
    const json otherwise = inherited.contains(name) ? json(show(inherited.at(name)) + " (inherited)") : json("default");
    compare(name, show(a.at("settings").value(name, otherwise)), show(b.at("settings").value(name, otherwise)));
  }
  return text + "</table></div>\n<p class=dim>Bold: differs between the arms. Everything else is the same.</p>\n";
}

// The envelope's words about the machine; its congestion control is none of the arms' where they name their own.
std::string page_foot(const json& document, const json& result) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&](const std::string& what, const std::string& value) { rows.push_back({what, value}); };
  const auto own = [&](std::size_t arm) {
    return result.at("arms").at(arm).at("congestion_control_explicit").get<bool>();
  };
  json envelope{{"version", document.at("version")}, {"machine", document.at("machine")}};
  json& machine = envelope["machine"];
  if (own(0) && own(1) && machine.contains("tcp_congestion_control")) {
    machine["tcp_congestion_control"] = show(machine.at("tcp_congestion_control")) + " (neither arm uses it)";
  }
  add("place", show(result.at("place").at("text")));
  if (result.at("place").contains("largest_frame_bytes")) {
    add("largest frame seen at the switch", fmt::format("{} bytes; {} packets larger than the MTU allows",
                                                        show(result.at("place").at("largest_frame_bytes")),
                                                        show(result.at("place").at("oversized_packets"))));
  }
  add("model", fmt::format("{} ({}), {} bytes of gradients", show(result.at("model")), show(result.at("shape")),
                           show(result.at("gradient_bytes"))));
  add("data", show(result.at("data_source")));
  const json replay = result.value("replay", json(nullptr));
  add("compute by", replay.is_null() ? show(result.at("gemm")) + ", one thread per rank" : show(replay.at("label")));
  for (const auto& [name, value] : result.at("config").items()) {
    if (name != "seed" && name != "no_communication") add(option_label(name), option_text(value));
  }
  const json& runs = result.at("runs");
  add("seeds", fmt::format("{} to {}, one per round, the same for both arms", show(runs.at(0).at("seed")),
                           show(runs.at(runs.size() - 1).at("seed"))));
  add("whole measurement", fmt::format("{:.0f} s", result.at("seconds").get<double>()));
  return report::page_end(envelope, rows);
}

std::string runs_table(const json& result) {
  std::string text =
      "<div class=scroll><table>" + row({"run", "round", "images/s", "exposed s", "hidden s", "compute s", "steps",
                                         "loss", "accuracy", "bytes sent", "switch drops"},
                                        "th");
  for (const json& run : result.at("runs")) {
    const bool alone = run.at("arm") == "no communication";
    text += row({show(run.at("arm")), show(run.at("round")), rate_text(run.at("images_per_second")),
                 show(run.at("exposed_comm_s")), show(run.at("hidden_comm_s")), show(run.at("compute_s")),
                 show(run.at("steps")), alone ? "-" : show(run.at("loss"), 4),
                 alone ? "-" : show(run.at("accuracy"), 4), show(run.at("bytes_sent")), show(run.at("switch_drops"))});
  }
  return text + "</table></div>\n";
}

std::string throughput_plot(const json& result) {
  double best = 0, highest = 0;
  for (const json& run : result.at("runs")) {
    double& most = run.at("arm") == kinds()[2].arm ? highest : best;
    most = std::max(most, run.at("images_per_second").get<double>());
  }
  const double ceiling = result.at("images_per_second_ceiling");
  const bool has_ceiling = highest <= kCeilingInPlot * best;
  LineChart chart{.title = "Images/s by round",
                  .x_label = "round",
                  .y_label = "images/s",
                  .series = {},
                  .whole_numbers = true,
                  .from_zero = false,
                  .level = std::nullopt,
                  .level_label = {},
                  .band = std::nullopt};
  if (!has_ceiling) chart.title += fmt::format(" (without communication: {:.0f}, above this plot)", ceiling);
  for (const Kind& kind : kinds()) {
    if (&kind == &kinds()[2] && !has_ceiling) continue;
    Series series{.name = kind.name, .css_class = kind.css_class, .points = {}, .markers = true};
    for (const json& run : result.at("runs")) {
      if (run.at("arm") == kind.arm) series.points.emplace_back(run.at("round"), run.at("images_per_second"));
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string ratio_plot(const json& result) {
  std::map<int, std::pair<double, double>> rounds;
  for (const json& run : result.at("runs")) {
    if (run.at("arm") == "baseline") rounds[run.at("round")].first = run.at("images_per_second");
    if (run.at("arm") == "candidate") rounds[run.at("round")].second = run.at("images_per_second");
  }
  Series series{.name = "B/A", .css_class = "b", .points = {}, .markers = true};
  for (const auto& [round, pair] : rounds) {
    // A file may lack a run of a round.
    if (pair.first > 0) series.points.emplace_back(round, pair.second / pair.first);
  }
  return report::line_chart(
      {.title = "Ratio of images/s by round, and the 95 % interval of its median",
       .x_label = "round",
       .y_label = "B/A",
       .series = {series},
       .whole_numbers = true,
       .from_zero = false,
       .level = 1.0,
       .level_label = "equal",
       .band = std::pair(result.at("ratio_low").get<double>(), result.at("ratio_high").get<double>())});
}

// One curve per arm and round. `x` is "step" or "train_s".
std::string loss_plot(const json& result, const std::string& x, const std::string& label, const std::string& title) {
  LineChart chart{.title = title,
                  .x_label = label,
                  .y_label = "loss",
                  .series = {},
                  .from_zero = false,
                  .level = std::nullopt,
                  .level_label = {},
                  .band = std::nullopt};
  const std::vector<Kind>& all = kinds();
  for (const Kind* kind : {&all[0], &all[1]}) {
    for (const json& run : result.at("runs")) {
      if (run.at("arm") != kind->arm) continue;
      // B is dashed, so that A shows through where they are equal.
      Series series{.name = kind->name, .css_class = kind->css_class, .points = {}, .dash = kind == &all[1] ? 1 : 0};
      const json& curve = run.at("curve");
      for (std::size_t i = 0; i < curve.at("loss").size(); ++i) {
        if (curve.at("loss")[i].is_number()) series.points.emplace_back(curve.at(x).at(i), curve.at("loss")[i]);
      }
      chart.series.push_back(std::move(series));
    }
  }
  return line_chart(chart);
}

std::string accuracy_plot(const json& result) {
  LineChart chart{.title = "Held-out accuracy over training time, a point per epoch",
                  .x_label = "seconds of training",
                  .y_label = "accuracy",
                  .series = {},
                  .from_zero = false,
                  .level = std::nullopt,
                  .level_label = {},
                  .band = std::nullopt};
  const std::vector<Kind>& all = kinds();
  for (const Kind* kind : {&all[0], &all[1]}) {
    for (const json& run : result.at("runs")) {
      if (run.at("arm") != kind->arm) continue;
      Series series{.name = kind->name,
                    .css_class = kind->css_class,
                    .points = {},
                    .markers = true,
                    .dash = kind == &all[1] ? 1 : 0};
      const json& epochs = run.at("per_epoch");
      double seconds = 0;
      for (std::size_t i = 0; i < epochs.at("accuracy").size(); ++i) {
        seconds += epochs.at("train_s").at(i).get<double>();
        series.points.emplace_back(seconds, epochs.at("accuracy").at(i));
      }
      chart.series.push_back(std::move(series));
    }
  }
  if (result.at("time_to_accuracy").is_object()) {
    chart.level = result.at("time_to_accuracy").at("target_accuracy").get<double>();
    chart.level_label = "target";
  }
  return line_chart(chart);
}

std::string step_plot(const json& result) {
  std::vector<report::Bar> bars;
  for (std::size_t i = 0; i < 2; ++i) {
    const json& arm = result.at("arms").at(i);
    bars.push_back({kinds()[i].name,
                    {{"compute", "c", arm.at("compute_ms_per_step")},
                     {"exposed communication", "wait", arm.at("exposed_comm_ms_per_step")}}});
  }
  return bar_chart("Where the time of a step goes (median of the rounds)", "ms", bars);
}

}  // namespace

std::string html(const json& document) {
  const json& result = document.at("results").at(0);
  const std::string verdict = result.at("verdict");
  const std::string verdict_class = verdict == "above the ceiling" ? "above"
                                    : verdict == "faster"          ? "faster"
                                    : verdict == "slower"          ? "slower"
                                                                   : "";
  std::string page = report::page_head(
      fmt::format("clustar ab: {} against {}", show(result.at("candidate")), show(result.at("baseline"))));
  page += report::page_title(document, show(result.at("model")) + " on " + show(result.at("place").at("text")),
                             fmt::format("A, the baseline: <b>{}</b>. B, the candidate: <b>{}</b>.",
                                         escaped(show(result.at("baseline"))), escaped(show(result.at("candidate")))));
  page += fmt::format("<div class=\"verdict {}\">{}</div>\n", verdict_class, escaped(show(result.at("verdict_text"))));
  const json replay = result.value("replay", json(nullptr));
  if (!replay.is_null()) page += fmt::format("<p class=warning>{}</p>\n", escaped(show(replay.at("label"))));
  for (const json& warning : result.at("warnings")) {
    page += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  page += summary_table(result);
  if (replay.is_null()) page += fmt::format("<p class=dim>{}</p>\n", escaped(equality_text(result)));
  page += "<div class=plots>\n" + throughput_plot(result) + ratio_plot(result);
  if (replay.is_null()) {
    page += loss_plot(result, "step", "step", "Training loss by step, all rounds") +
            loss_plot(result, "train_s", "seconds of training", "Training loss over time, all rounds") +
            accuracy_plot(result);
  }
  page += step_plot(result) + "</div>\n" + timeline_plot(result);
  page += "<h2>What differs between the arms</h2>\n" + settings_table(result);
  page += "<h2>All runs, in their order</h2>\n" + runs_table(result);
  return page + page_foot(document, result);
}

}  // namespace clustar::bench::ab
