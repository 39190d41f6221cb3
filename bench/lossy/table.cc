#include "bench/lossy/table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

std::string figure(const json& object, const char* key, int digits) {
  const json value = object.value(key, json());
  return value.is_number() ? fmt::format("{:.{}f}", value.get<double>(), digits) : "-";
}

std::string arm_line(const json& arm) {
  const std::string name = arm["name"];
  if (arm["rounds"] == 0) {
    return fmt::format("  {:<18} {}\n", name,
                       arm.contains("failure") ? "FAILED: " + arm["failure"].get<std::string>()
                                               : "not measured: " + arm.value("skipped", ""));
  }
  std::string line = fmt::format("  {:<18} {:>6}", name, arm["rounds"].get<int>());
  for (const char* key : {"p50_ms", "p90_ms", "p99_ms", "p999_ms", "max_ms"}) {
    line += fmt::format(" {:>8}", figure(arm, key, 2));
  }
  for (const char* key : {"goodput_gbps", "cpu_s_per_gbit", "machine_cpu_s_per_gbit"}) {
    line += fmt::format(" {:>8}", figure(arm, key, 4));
  }
  if (const auto eligible = arm["eligible_bytes"].get<double>(); eligible > 0) {
    line += fmt::format("  {:.3f} % missing", 100 * arm["missing_bytes"].get<double>() / eligible);
  }
  for (const json& job : arm.value("jobs", json::array())) {
    line += fmt::format("  {} {:.2f}", job["name"].get<std::string>(), job["share_of_fair"].get<double>());
  }
  if (arm.contains("failure")) line += "\n    then FAILED: " + arm["failure"].get<std::string>();
  return line + "\n";
}

std::string bar_line(const json& bar) {
  const bool at_least = bar.contains("at_least");
  const std::string wanted =
      fmt::format("{} {:g}", at_least ? "at least" : "at most", bar[at_least ? "at_least" : "at_most"].get<double>());
  const std::string text = bar["text"];
  if (bar["figure"].is_null()) return fmt::format("  bar  {}: {}: not measured\n", text, wanted);
  std::string result = bar.contains("void_because") ? "VOID: " + bar["void_because"].get<std::string>()
                       : bar["met"] == true         ? "met"
                                                    : "MISSED";
  if (bar.value("indicative", false)) result += " (indicative)";
  if (bar.contains("figure_with_stalls")) {
    result += fmt::format("; {} with stalled rounds", figure(bar, "figure_with_stalls", 3));
  }
  if (bar.contains("figure_less_bucket")) {
    result += fmt::format("; {} of the ideal less the shaper's bucket", figure(bar, "figure_less_bucket", 3));
  }
  return fmt::format("  bar  {}: {} ({:.3f} to {:.3f} by block), {}: {}\n", text, figure(bar, "figure", 3),
                     bar["spread"][0].get<double>(), bar["spread"][1].get<double>(), wanted, result);
}

bool any_indicative(const json& scenario) {
  for (const json& arm : scenario["arms"]) {
    if (arm.value("indicative", false)) return true;
  }
  return false;
}

}  // namespace

std::string table(const json& scenario) {
  std::string text =
      fmt::format("\n{}: {}\n", scenario["name"].get<std::string>(), scenario["title"].get<std::string>());
  if (scenario.contains("skipped")) return text + "  not measured: " + scenario["skipped"].get<std::string>() + "\n";
  text +=
      fmt::format("  ideal {} ms, one way unloaded {} ms; the shaper's bucket may make a round {} ms faster\n",
                  figure(scenario, "ideal_ms", 2), figure(scenario, "one_way_ms", 3), figure(scenario, "bucket_ms", 2));
  text += fmt::format("  {:<18} {:>6} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8}\n", "arm", "rounds", "p50 ms",
                      "p90 ms", "p99 ms", "p99.9 ms", "max ms", "Gbit/s", "CPU s/Gb", "machine");
  for (const json& arm : scenario["arms"]) text += arm_line(arm);
  if (any_indicative(scenario)) text += "  fewer than 1,000 rounds: percentiles are indicative\n";
  const json other = scenario.value("other_cpu", json());
  if (!other.is_object() || other["disturbs"] == true) {
    text += "  others used the CPU, or it is not known whether: machine has theirs, too\n";
  }
  const json& port = scenario["switch"];
  const auto count = [&](const char* key) { return port[key].get<std::uint64_t>(); };
  text += fmt::format(
      "  switch port {}: {} packets of at most {} B, {} marked, lost to rules {}, to the buffer {}, deepest {} B\n",
      port["port"].get<std::string>(), count("packets"), count("largest_bytes"), count("marked"), count("dropped_loss"),
      count("dropped_buffer"), count("deepest_bytes"));
  for (const json& bar : scenario["bars"]) text += bar_line(bar);
  for (const json& note : scenario["notes"]) text += "  note: " + note.get<std::string>() + "\n";
  return text;
}

}  // namespace clustar::bench::lossy
