#include "bench/ab/reproduction/outcome.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ab/experiment.h"
#include "bench/ab/labels.h"
#include "bench/ab/verdict.h"
#include "bench/perf/statistics.h"
#include "bench/report/page.h"
#include "bench/report/plot.h"

namespace clustar::bench::ab::reproduction {
namespace {

using nlohmann::json;
using report::escaped;
using report::row;
using report::show;

constexpr std::uint64_t kBootstrapSeed = 1;  // equal measurements, equal intervals

std::vector<double> rates_of(const json& runs, const std::string& arm) {
  std::vector<double> rates;
  for (const json& run : runs) {
    if (run.at("arm") == arm) rates.push_back(run.at("images_per_second"));
  }
  return rates;
}

// By rounds that both have: the last may be cut short.
json ratio_json(const std::vector<double>& rates, std::vector<double> baseline) {
  std::vector<double> own = rates;
  own.resize(std::min(own.size(), baseline.size()));
  baseline.resize(own.size());
  if (own.empty()) return {{"rounds", 0}, {"ratio", nullptr}, {"ratio_low", nullptr}, {"ratio_high", nullptr}};
  const perf::RatioEstimate ratio = perf::paired_ratio(own, baseline, kBootstrapSeed);
  return {{"rounds", own.size()}, {"ratio", ratio.ratio}, {"ratio_low", ratio.low}, {"ratio_high", ratio.high}};
}

json median_json(const std::vector<double>& rates) {
  return rates.empty() ? json(nullptr) : json(perf::spread(rates).median);
}

// A figure of few rounds, or one whose interval reaches below what was reported, may be chance.
void add_verdict(const json& published, json& result) {
  result["met"] = nullptr;
  if (!result["problem"].is_null() || result["ratio"].is_null()) {
    result["verdict"] = "not measured";
  } else if (result["rounds"] < kRoundsForVerdict) {
    result["verdict"] =
        fmt::format("no verdict: {} of {} rounds", result["rounds"].get<std::size_t>(), kRoundsForVerdict);
  } else {
    const bool met = result["ratio_low"] >= published;
    result["met"] = met;
    result["verdict"] = met                                ? "met"
                        : result["ratio_high"] < published ? "MISSED"
                                                           : "not shown: the interval includes it";
  }
}

json judge_row(const json& measured, const std::string& baseline) {
  const std::string alone = to_string(Role::kCeiling);
  const json& runs = measured.at("runs");
  const std::vector<double> a = rates_of(runs, baseline);
  json result = measured;
  result["baseline"] = baseline;
  result["images_per_second_a"] = median_json(a);
  result["time_to_accuracy_ratio"] = nullptr;
  result["ceiling_ratio"] = ratio_json(rates_of(runs, alone), a)["ratio"];
  result["arms"] = json::array();
  json best{{"name", nullptr}, {"images_per_second", nullptr}};
  best.update(ratio_json({}, {}));
  for (const json& run : runs) {
    const std::string name = run.at("arm");
    const auto same = [&](const json& arm) { return arm.at("name") == name; };
    if (name == baseline || name == alone || std::any_of(result["arms"].begin(), result["arms"].end(), same)) continue;
    const std::vector<double> rates = rates_of(runs, name);
    json arm{{"name", name}, {"images_per_second", median_json(rates)}};
    arm.update(ratio_json(rates, a));
    if (arm["ratio"].is_number() && (best["ratio"].is_null() || arm["ratio"] > best["ratio"])) best = arm;
    result["arms"].push_back(std::move(arm));
  }
  result["candidate"] = best["name"];
  result["images_per_second_b"] = best["images_per_second"];
  for (const char* key : {"rounds", "ratio", "ratio_low", "ratio_high"}) result[key] = best[key];
  add_verdict(measured.at("published"), result);
  return result;
}

void warn_of_others(const json& results, json& all) {
  std::size_t runs = 0, disturbed = 0;
  double most = 0;
  for (const json& row : results) {
    for (const json& run : row.at("runs")) {
      ++runs;
      if (run.value("other_cpu_disturbs", json(false)) != true) continue;
      ++disturbed;
      most = std::max(most, run.at("other_cpu_cores").get<double>());
    }
  }
  if (disturbed == 0) return;
  all.push_back(
      fmt::format("others used more than 5 % of a core in {} of {} runs, up to {:.2f} cores", disturbed, runs, most));
}

json warnings(const TablePlan& plan, const Surroundings& around, const json& results) {
  json all = json::array();
  if (plan.rounds < kRoundsForVerdict) {
    all.push_back(fmt::format("{} of at least {} rounds: the intervals are no basis for a verdict", plan.rounds,
                              kRoundsForVerdict));
  }
  const std::string& kernels = around.kernel_congestion_control;
  std::vector<Arm> arms = plan.arms;
  arms.insert(arms.begin(), plan.baseline);
  for (const Arm& arm : arms) {
    if (congestion_of(arm, inherited_settings(), kernels).explicitly) continue;
    all.push_back(fmt::format("'{}' leaves TCP's congestion control to the kernel ({}){}", arm.name, kernels,
                              arm.by_ps() ? ", as a parameter server of 2018 does" : ""));
  }
  if (around.proof && !around.proof->per_packet()) {
    all.push_back(around.proof->complete() ? "the fabric's queues held super-packets, which no real switch would see"
                                           : "the fabric's proof that its queues hold packets was not complete");
  }
  warn_of_others(results, all);
  return all;
}

std::string interval_text(const json& arm) {
  if (arm.at("ratio").is_null()) return "-";
  return fmt::format("{:.2f} [{:.2f}, {:.2f}]", arm.at("ratio").get<double>(), arm.at("ratio_low").get<double>(),
                     arm.at("ratio_high").get<double>());
}

std::string number_text(const json& value) { return value.is_null() ? "-" : rate_text(value); }

}  // namespace

json judge(const json& rows, const std::string& baseline) {
  json results = json::array();
  for (const json& measured : rows) results.push_back(judge_row(measured, baseline));
  return results;
}

json setting(const TablePlan& plan, const Surroundings& around, const json& results) {
  return {{"place",
           {{"kind", "fabric"},
            {"text", fabric::describe(around.fabric)},
            {"ranks", plan.ranks},
            {"rate_bps", around.fabric.rate_bps},
            {"mtu", around.fabric.mtu},
            {"buffer_bytes", around.fabric.buffer_bytes},
            {"per_packet", around.proof ? json(around.proof->per_packet()) : json(nullptr)}}},
          {"planned_rounds", plan.rounds},
          {"card", plan.card},
          {"batch", plan.batch},
          {"seed", plan.seed},
          {"inherited_settings", inherited_settings()},
          {"warnings", warnings(plan, around, results)}};
}

std::string table(const json& document) {
  std::string text =
      fmt::format("\n{}\n{}; {} round{}\n{}\n\n  {:<9}{:>10}{:>10}{:>12}{:>12}  {:<22}{:<22}  {}\n", kLabel,
                  document.at("place").at("text").get<std::string>(), document.at("planned_rounds").get<int>(),
                  document.at("planned_rounds") == 1 ? "" : "s", kChoice, "model", "published", "ceiling", "A images/s",
                  "B images/s", "B/A [95 %]", "B", "");
  for (const json& one : document.at("results")) {
    text += fmt::format("  {:<9}{:>10.2f}{:>10}{:>12}{:>12}  {:<22}{:<22}  {}\n", one.at("model").get<std::string>(),
                        one.at("published").get<double>(), show(one.at("ceiling_ratio"), 2),
                        number_text(one.at("images_per_second_a")), number_text(one.at("images_per_second_b")),
                        interval_text(one), show(one.at("candidate")), one.at("verdict").get<std::string>());
    text += fmt::format("  {:<9}times x {:.4g}, bytes / {:.4g}\n", "", one.at("time_scale").get<double>(),
                        one.at("byte_scale").get<double>());
    if (!one.at("problem").is_null()) text += fmt::format("    {}\n", one.at("problem").get<std::string>());
  }
  for (const json& warning : document.at("warnings")) text += "  warning: " + warning.get<std::string>() + "\n";
  return text;
}

std::string page(const json& document) {
  const json& results = document.at("results");
  std::string text = report::page_head("clustar ab --table: what was reported in 2018");
  text += report::page_title(document, "What was reported of CLUSTAR in 2018, and what ours does",
                             fmt::format("<b>{}</b> The link is as fast as makes the training without communication "
                                         "1.25 times as fast, over the baseline, as was reported. {}",
                                         escaped(kLabel), escaped(kChoice)));
  // Not in a file that an earlier version wrote.
  for (const json& warning : document.value("warnings", json::array())) {
    text += fmt::format("<p class=warning>Warning: {}</p>\n", escaped(show(warning)));
  }
  std::vector<report::IntervalRow> intervals;
  text += "<div class=scroll><table class=names>" + row({"model", "arm", "images/s", "times the baseline [95 %]",
                                                         "reported", "ceiling", "", "times x", "bytes /"},
                                                        "th");
  for (const json& one : results) {
    text += row({show(one.at("model")), show(one.at("baseline")), number_text(one.at("images_per_second_a")), "1", "",
                 "", "", show(one.at("time_scale"), 1), show(one.at("byte_scale"), 1)});
    for (const json& arm : one.at("arms")) {
      const bool best = arm.at("name") == one.at("candidate");
      text += row({"", show(arm.at("name")), number_text(arm.at("images_per_second")), interval_text(arm),
                   best ? show(one.at("published"), 2) : "", best ? show(one.at("ceiling_ratio"), 2) : "",
                   best ? show(one.value("verdict", json(nullptr))) : "", "", ""});
    }
    if (!one.at("problem").is_null()) text += row({"", show(one.at("problem")), "", "", "", "", "", "", ""});
    if (one.at("ratio").is_null()) continue;
    intervals.push_back({.label = one.at("model"),
                         .css_class = "b",
                         .value = one.at("ratio"),
                         .low = one.at("ratio_low"),
                         .high = one.at("ratio_high"),
                         .ring = one.at("published").get<double>()});
  }
  text += "</table></div>\n";
  if (!intervals.empty()) {
    text += "<div class=plots>" +
            report::interval_chart(
                "Best of our arms, times the baseline, with its 95 % interval; a ring is what was reported", "times",
                intervals, 1) +
            "</div>\n";
  }
  std::vector<std::vector<std::string>> facts;
  if (document.contains("place")) {
    const json& place = document.at("place");
    facts = {{"network", show(place.at("text"))},
             {"rounds", show(document.at("planned_rounds"))},
             {"times of", show(document.at("card"))}};
  }
  return text + report::page_end(document, facts);
}

}  // namespace clustar::bench::ab::reproduction
