// The report of results.h: one page, nothing outside it.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "bench/ab/results.h"
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

// After report::kPlotStyle.
constexpr const char* kColours = R"css(
.line-a { stroke: var(--a); } .line-b { stroke: var(--b); } .line-c { stroke: var(--c); }
.fill-a { fill: var(--a); } .fill-b { fill: var(--b); } .fill-c { fill: var(--c); } .fill-wait { fill: var(--wait); }
)css";

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
  return fmt::format("{:.3f} ({:.3f} to {:.3f})", from[key].get<double>(), from[key + "_low"].get<double>(),
                     from[key + "_high"].get<double>());
}

std::string summary_table(const json& result) {
  const json& arms = result["arms"];
  std::string text = "<div class=scroll><table>" + row({"median of the rounds", "A", "B", "B/A (95 % interval)"}, "th");
  const auto both = [&](const std::string& what, const char* key, int digits, const std::string& ratio = "") {
    text += row({what, show(arms[0][key], digits), show(arms[1][key], digits), ratio});
  };
  both("images/s", "images_per_second", 0, interval(result, "ratio"));
  text += row({"images/s without communication", show(result["images_per_second_ceiling"], 0), "",
               interval(result, "ceiling_ratio") + ": the ceiling"});
  if (const json& time = result["time_to_accuracy"]; time.is_object()) {
    const std::string what =
        fmt::format("seconds to {:.1f} % held-out accuracy", 100 * time["target_accuracy"].get<double>());
    text += row({what, show(time.value("seconds_a", json()), 2), show(time.value("seconds_b", json()), 2),
                 time["ratio"].is_null() ? "not reached" : interval(time, "ratio") + " sooner"});
  }
  both("exposed communication, ms/step", "exposed_comm_ms_per_step", 2);
  both("hidden communication, ms/step", "hidden_comm_ms_per_step", 2);
  both("compute, ms/step", "compute_ms_per_step", 2);
  both("bytes sent per run, all ranks", "bytes_sent", 0);
  both("messages per run, all ranks", "messages_sent", 0);
  if (result["place"]["kind"] == "fabric") both("packets dropped at the switch, all runs", "switch_drops_total", 0);
  return text + "</table></div>\n";
}

std::string settings_table(const json& result) {
  const json& a = result["arms"][0];
  const json& b = result["arms"][1];
  const json& inherited = result["inherited_settings"];
  std::string text = "<div class=scroll><table class=text>" + row({"setting", "A", "B"}, "th");
  const auto compare = [&](const std::string& what, const std::string& left, const std::string& right) {
    text +=
        fmt::format("<tr{}>{}{}{}</tr>\n", left == right ? "" : " class=differs", cell(what), cell(left), cell(right));
  };
  const auto congestion = [](const json& arm) {
    return show(arm["congestion_control"]) +
           (arm["congestion_control_explicit"].get<bool>() ? "" : " (kernel's default)");
  };
  compare("name", show(a["name"]), show(b["name"]));
  compare("plugin", show(a["plugin"]), show(b["plugin"]));
  compare("TCP congestion control", congestion(a), congestion(b));
  std::set<std::string> names;
  for (const json* settings : {&a["settings"], &b["settings"], &inherited}) {
    for (const auto& [name, value] : settings->items()) names.insert(name);
  }
  for (const std::string& name : names) {
    const json otherwise = inherited.contains(name) ? json(show(inherited[name]) + " (inherited)") : json("default");
    compare(name, show(a["settings"].value(name, otherwise)), show(b["settings"].value(name, otherwise)));
  }
  return text + "</table></div>\n<p class=dim>Bold: differs between the arms. Everything else is the same.</p>\n";
}

std::string environment_table(const json& document, const json& result) {
  std::string text = "<div class=scroll><table class=text>";
  const auto add = [&](const std::string& what, const std::string& value) { text += row({what, value}); };
  add("clustar", show(document["version"]));
  add("place", show(result["place"]["text"]));
  if (result["place"].contains("largest_frame_bytes")) {
    add("largest frame seen at the switch",
        fmt::format("{} bytes; {} packets larger than the MTU allows", show(result["place"]["largest_frame_bytes"]),
                    show(result["place"]["oversized_packets"])));
  }
  for (const auto& [name, value] : document["machine"].items()) add(name, show(value));
  add("model", fmt::format("{} ({}), {} bytes of gradients", show(result["model"]), show(result["shape"]),
                           show(result["gradient_bytes"])));
  add("data", show(result["data_source"]));
  add("compute by", show(result["gemm"]) + ", one thread per rank");
  for (const auto& [name, value] : result["config"].items()) {
    if (name != "seed" && name != "no_communication") add(name, show(value, 4));
  }
  add("seeds", fmt::format("{} to {}, one per round, the same for both arms", show(result["runs"].front()["seed"]),
                           show(result["runs"].back()["seed"])));
  add("whole measurement", fmt::format("{:.0f} s", result["seconds"].get<double>()));
  return text + "</table></div>\n";
}

std::string runs_table(const json& result) {
  std::string text =
      "<div class=scroll><table>" + row({"run", "round", "images/s", "exposed s", "hidden s", "compute s", "steps",
                                         "loss", "accuracy", "bytes sent", "switch drops"},
                                        "th");
  for (const json& run : result["runs"]) {
    const bool alone = run["arm"] == "no communication";
    text +=
        row({show(run["arm"]), show(run["round"]), show(run["images_per_second"], 0), show(run["exposed_comm_s"]),
             show(run["hidden_comm_s"]), show(run["compute_s"]), show(run["steps"]), alone ? "-" : show(run["loss"], 4),
             alone ? "-" : show(run["accuracy"], 4), show(run["bytes_sent"]), show(run["switch_drops"])});
  }
  return text + "</table></div>\n";
}

std::string throughput_plot(const json& result) {
  LineChart chart{.title = "Images/s by round",
                  .x_label = "round",
                  .y_label = "images/s",
                  .series = {},
                  .whole_numbers = true,
                  .level = std::nullopt,
                  .level_label = {},
                  .band = std::nullopt};
  for (const Kind& kind : kinds()) {
    Series series{.name = kind.name, .css_class = kind.css_class, .points = {}, .markers = true};
    for (const json& run : result["runs"]) {
      if (run["arm"] == kind.arm) series.points.emplace_back(run["round"], run["images_per_second"]);
    }
    chart.series.push_back(std::move(series));
  }
  return line_chart(chart);
}

std::string ratio_plot(const json& result) {
  std::map<int, std::pair<double, double>> rounds;
  for (const json& run : result["runs"]) {
    if (run["arm"] == "baseline") rounds[run["round"]].first = run["images_per_second"];
    if (run["arm"] == "candidate") rounds[run["round"]].second = run["images_per_second"];
  }
  Series series{.name = "B/A", .css_class = "b", .points = {}, .markers = true};
  for (const auto& [round, pair] : rounds) series.points.emplace_back(round, pair.second / pair.first);
  return report::line_chart({.title = "Ratio of images/s by round, and the 95 % interval of its median",
                             .x_label = "round",
                             .y_label = "B/A",
                             .series = {series},
                             .whole_numbers = true,
                             .from_zero = false,
                             .level = 1.0,
                             .level_label = "equal",
                             .band = std::pair(result["ratio_low"].get<double>(), result["ratio_high"].get<double>())});
}

// One curve per arm and round. `x` is "step" or "train_s".
std::string loss_plot(const json& result, const std::string& x, const std::string& label, const std::string& title) {
  LineChart chart{.title = title,
                  .x_label = label,
                  .y_label = "loss",
                  .series = {},
                  .level = std::nullopt,
                  .level_label = {},
                  .band = std::nullopt};
  const std::vector<Kind>& all = kinds();
  for (const Kind* kind : {&all[0], &all[1]}) {
    for (const json& run : result["runs"]) {
      if (run["arm"] != kind->arm) continue;
      // B is dashed, so that A shows through where they are equal.
      Series series{.name = kind->name, .css_class = kind->css_class, .points = {}, .dash = kind == &all[1] ? 1 : 0};
      const json& curve = run["curve"];
      for (std::size_t i = 0; i < curve["loss"].size(); ++i) {
        if (curve["loss"][i].is_number()) series.points.emplace_back(curve[x][i], curve["loss"][i]);
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
    for (const json& run : result["runs"]) {
      if (run["arm"] != kind->arm) continue;
      Series series{.name = kind->name,
                    .css_class = kind->css_class,
                    .points = {},
                    .markers = true,
                    .dash = kind == &all[1] ? 1 : 0};
      const json& epochs = run["per_epoch"];
      double seconds = 0;
      for (std::size_t i = 0; i < epochs["accuracy"].size(); ++i) {
        seconds += epochs["train_s"][i].get<double>();
        series.points.emplace_back(seconds, epochs["accuracy"][i]);
      }
      chart.series.push_back(std::move(series));
    }
  }
  if (result["time_to_accuracy"].is_object()) {
    chart.level = result["time_to_accuracy"]["target_accuracy"].get<double>();
    chart.level_label = "target";
  }
  return line_chart(chart);
}

std::string step_plot(const json& result) {
  std::vector<report::Bar> bars;
  for (std::size_t i = 0; i < 2; ++i) {
    const json& arm = result["arms"][i];
    bars.push_back({kinds()[i].name,
                    {{"compute", "c", arm["compute_ms_per_step"]},
                     {"exposed communication", "wait", arm["exposed_comm_ms_per_step"]}}});
  }
  return bar_chart("Where the time of a step goes (median of the rounds)", "ms", bars);
}

}  // namespace

std::string html(const json& document) {
  const json& result = document["results"][0];
  const std::string verdict = result["verdict"];
  const std::string verdict_class = verdict == "above the ceiling" ? "above"
                                    : verdict == "faster"          ? "faster"
                                    : verdict == "slower"          ? "slower"
                                                                   : "";
  std::string page =
      report::page_head(fmt::format("clustar ab: {} against {}", show(result["candidate"]), show(result["baseline"])),
                        std::string(report::kPageStyle) + report::kPlotStyle + kColours);
  page += fmt::format("<h1>{} on {}</h1>\n<p>A, the baseline: <b>{}</b>. B, the candidate: <b>{}</b>.</p>\n",
                      escaped(show(result["model"])), escaped(show(result["place"]["text"])),
                      escaped(show(result["baseline"])), escaped(show(result["candidate"])));
  page += fmt::format("<div class=\"verdict {}\">{}</div>\n", verdict_class, escaped(show(result["verdict_text"])));
  for (const json& warning : result["warnings"]) {
    page += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  page += summary_table(result);
  page += fmt::format("<p class=dim>{}</p>\n", escaped(equality_text(result)));
  page += "<div class=plots>\n" + throughput_plot(result) + ratio_plot(result) +
          loss_plot(result, "step", "step", "Training loss by step, all rounds") +
          loss_plot(result, "train_s", "seconds of training", "Training loss over time, all rounds") +
          accuracy_plot(result) + step_plot(result) + "</div>\n";
  page += "<h2>What differs between the arms</h2>\n" + settings_table(result);
  page += "<h2>What was the same</h2>\n" + environment_table(document, result);
  page += "<h2>All runs, in their order</h2>\n" + runs_table(result);
  return page + report::kPageEnd;
}

}  // namespace clustar::bench::ab
