#include "bench/lossy/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fabric/places.h"
#include "bench/fabric/topology.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;

constexpr std::size_t kCurvePoints = 200;

// [{"port", "loss", "rules"}]: ports with the same rules together, those of most ports last.
json rules_json(const fabric::FabricSpec& spec) {
  struct Group {
    std::vector<std::string> ports;
    fabric::PortRules rules;
  };
  std::vector<Group> groups;
  for (const fabric::SwitchPort& port : fabric::switch_ports(fabric::topology_of(spec))) {
    const std::string place = fabric::port_place(port);
    const fabric::PortRules& rules = spec.rules.of(place);
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& one) { return one.rules == rules; });
    if (same == groups.end()) {
      groups.push_back({{place}, rules});
    } else {
      same->ports.push_back(place);
    }
  }
  std::stable_sort(groups.begin(), groups.end(),
                   [](const Group& a, const Group& b) { return a.ports.size() < b.ports.size(); });
  json result = json::array();
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const bool rest = i + 1 == groups.size();
    const std::string ports = !rest    ? fmt::format("{}", fmt::join(groups[i].ports, ", "))
                              : i == 0 ? "every port"
                                       : "every other port";
    const std::string said = fabric::describe(groups[i].rules);
    result.push_back(
        {{"port", ports}, {"loss", said.empty() ? "none" : said}, {"rules", fabric::to_json(groups[i].rules)}});
  }
  return result;
}

json fabric_json(const Scenario& scenario, std::uint64_t seed) {
  // Each run's has a name of its own.
  const auto checked = lossy_fabric(scenario, "any", seed);
  const fabric::FabricSpec& spec = checked ? *checked : scenario.fabric;
  return {{"hosts", spec.hosts},
          {"rate_bps", spec.rate_bps},
          {"mtu", spec.mtu},
          {"buffer_bytes", spec.buffer_bytes},
          {"ecn_marks_above_bytes", static_cast<std::uint64_t>(kMarkAbove * static_cast<double>(spec.buffer_bytes))},
          {"topology", spec.spines > 0 ? fmt::format("leaf-spine, {} spines", spec.spines) : "star"},
          {"seed", seed},
          {"rules", checked ? rules_json(spec) : json::array()}};
}

json counters_json(const fabric::ClassCounters& counters) {
  return {{"packets", counters.packets},
          {"bytes", counters.bytes},
          {"marked", counters.marked},
          {"dropped_loss", counters.dropped_loss},
          {"dropped_buffer", counters.dropped_buffer},
          {"dropped_selective", counters.dropped_selective},
          {"trimmed", counters.trimmed},
          {"super_packets", counters.super_packets},
          {"deepest_bytes", counters.deepest_bytes}};
}

// Of the port that leads to the receiver, while arms were at their turns.
json switch_json(const ScenarioOutcome& outcome) {
  SwitchCounts sum;
  for (const ArmOutcome& arm : outcome.arms) sum += arm.switches;
  json result = counters_json(sum.to_receiver);
  result["port"] = fabric::host_name(0);
  result["backstop_drops"] = outcome.backstop_drops;
  return result;
}

json block_medians(const ArmSamples& samples) {
  json blocks = json::array();
  for (const auto& block : samples.block_ms) {
    if (!block.empty()) blocks.push_back(times_of(block).p50);
  }
  return blocks;
}

json jobs_json(const ArmSamples& samples) {
  json jobs = json::array();
  const auto names = jobs_of(samples.name);
  for (std::size_t job = 0; job < names.size(); ++job) {
    std::vector<double> goodput, share;
    for (const auto& block : samples.block_shares) {
      if (block.size() != names.size()) continue;
      goodput.push_back(block[job].goodput_gbps);
      share.push_back(block[job].share);
    }
    const auto mean = [](const std::vector<double>& values) {
      double sum = 0;
      for (const double value : values) sum += value;
      return values.empty() ? 0 : sum / static_cast<double>(values.size());
    };
    jobs.push_back({{"name", names[job]},
                    {"goodput_gbps", mean(goodput)},
                    {"share_of_fair", mean(share)},
                    {"share_by_block", share}});
  }
  return jobs;
}

json arm_json(const ArmOutcome& arm) {
  json out{{"name", arm.samples.name}, {"label", arm.label}, {"transport", arm.transport}};
  if (!arm.skipped.empty()) out["skipped"] = arm.skipped;
  if (!arm.failure.empty()) out["failure"] = arm.failure;
  const std::vector<double> all = arm.samples.all_ms();
  out["rounds"] = all.size();
  if (all.empty()) return out;
  const Times times = times_of(all);
  const Times messages = times_of(arm.message_ms);
  const double bits = 8.0 * static_cast<double>(arm.delivered_bytes);
  out.update({{"p50_ms", times.p50},
              {"p90_ms", times.p90},
              {"p99_ms", times.p99},
              {"p999_ms", times.p999},
              {"mean_ms", times.mean},
              {"min_ms", times.min},
              {"max_ms", times.max},
              {"message_p50_ms", messages.p50},
              {"message_p99_ms", messages.p99},
              {"goodput_gbps", arm.seconds > 0 ? bits / 1e9 / arm.seconds : 0},
              {"delivered_bytes", arm.delivered_bytes},
              {"missing_bytes", arm.missing_bytes},
              {"eligible_bytes", arm.eligible_bytes},
              {"lost_packets", arm.switches.lost},
              {"queue_drops", arm.switches.to_receiver.dropped_buffer},
              {"switch", counters_json(arm.switches.to_receiver)},
              {"cpu_s_per_gbit", bits > 0 ? arm.cpu_s / (bits / 1e9) : 0},
              {"retransmitted", arm.retransmitted},
              {"blocks", block_medians(arm.samples)},
              {"facts", arm.facts}});
  json curve = json::array();
  for (const auto& [ms, fraction] : distribution(all, kCurvePoints)) curve.push_back({ms, fraction});
  out["cdf"] = std::move(curve);
  if (jobs_of(arm.samples.name).size() > 1) out["jobs"] = jobs_json(arm.samples);
  return out;
}

json bar_json(const Bar& bar) {
  json out{{"text", bar.text}, {"met", bar.figure ? json(bar.met()) : json(nullptr)}};
  out[bar.at_least ? "at_least" : "at_most"] = bar.limit;
  out["figure"] = bar.figure ? json(*bar.figure) : json(nullptr);
  if (bar.figure) out["spread"] = {bar.low, bar.high};
  return out;
}

std::string arm_line(const json& arm) {
  const std::string name = arm["name"];
  if (arm["rounds"] == 0) {
    return fmt::format("  {:<18} {}\n", name,
                       arm.contains("failure") ? "FAILED: " + arm["failure"].get<std::string>()
                                               : "not measured: " + arm.value("skipped", ""));
  }
  const auto figure = [&](const char* key) { return arm[key].get<double>(); };
  std::string line = fmt::format("  {:<18} {:>6} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>8.4f} {:>9.4f}", name,
                                 arm["rounds"].get<int>(), figure("p50_ms"), figure("p90_ms"), figure("p99_ms"),
                                 figure("max_ms"), figure("goodput_gbps"), figure("cpu_s_per_gbit"));
  if (const auto eligible = arm["eligible_bytes"].get<double>(); eligible > 0) {
    line += fmt::format("  {:.3f} % missing", 100 * figure("missing_bytes") / eligible);
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
  if (bar["figure"].is_null())
    return fmt::format("  bar  {}: {}: not measured\n", bar["text"].get<std::string>(), wanted);
  return fmt::format("  bar  {}: {:.3f} ({:.3f} to {:.3f} by block), {}: {}\n", bar["text"].get<std::string>(),
                     bar["figure"].get<double>(), bar["spread"][0].get<double>(), bar["spread"][1].get<double>(),
                     wanted, bar["met"].get<bool>() ? "met" : "MISSED");
}

}  // namespace

json to_json(const ScenarioOutcome& outcome) {
  const Scenario& scenario = outcome.scenario;
  json out{{"name", scenario.name},
           {"title", scenario.title},
           {"question", scenario.question},
           {"fabric", fabric_json(scenario, outcome.seed)},
           {"message_bytes", scenario.message_bytes},
           {"senders", scenario.senders},
           {"messages", scenario.messages},
           {"rounds", outcome.rounds},
           {"ideal_ms", outcome.ideal_ms},
           {"one_way_ms", outcome.one_way_ms},
           {"deadline_ms", outcome.deadline_ms},
           {"delay_mode", outcome.delay_mode},
           {"arms", json::array()},
           {"bars", json::array()},
           {"switch", switch_json(outcome)},
           {"notes", scenario.notes}};
  for (const std::string& note : outcome.notes) out["notes"].push_back(note);
  if (!outcome.skipped.empty()) out["skipped"] = outcome.skipped;
  std::vector<ArmSamples> samples;
  for (const ArmOutcome& arm : outcome.arms) {
    out["arms"].push_back(arm_json(arm));
    // The round that ended an arm has no time, and would have been its longest.
    if (arm.failure.empty()) samples.push_back(arm.samples);
    for (const json& job : arm.facts) {
      const json& sender = job["sender"];
      if (sender.value("subflows", 2) > 1) continue;
      out["notes"].push_back(fmt::format("{}: MPTCP made one subflow only.", arm.samples.name));
    }
  }
  for (const BarSpec& bar : scenario.bars) out["bars"].push_back(bar_json(judge(bar, samples, outcome.ideal_ms)));
  return out;
}

std::string table(const json& scenario) {
  std::string text =
      fmt::format("\n{}: {}\n", scenario["name"].get<std::string>(), scenario["title"].get<std::string>());
  if (scenario.contains("skipped")) return text + "  not measured: " + scenario["skipped"].get<std::string>() + "\n";
  text += fmt::format("  ideal {:.2f} ms, one way unloaded {:.3f} ms\n", scenario["ideal_ms"].get<double>(),
                      scenario["one_way_ms"].get<double>());
  text += fmt::format("  {:<18} {:>6} {:>9} {:>9} {:>9} {:>9} {:>8} {:>9}\n", "arm", "rounds", "p50 ms", "p90 ms",
                      "p99 ms", "max ms", "Gbit/s", "CPU s/Gb");
  for (const json& arm : scenario["arms"]) text += arm_line(arm);
  const json& port = scenario["switch"];
  text += fmt::format("  switch port {}: {} packets, {} marked, lost to rules {}, to the buffer {}, deepest {} B\n",
                      port["port"].get<std::string>(), port["packets"].get<std::uint64_t>(),
                      port["marked"].get<std::uint64_t>(), port["dropped_loss"].get<std::uint64_t>(),
                      port["dropped_buffer"].get<std::uint64_t>(), port["deepest_bytes"].get<std::uint64_t>());
  for (const json& bar : scenario["bars"]) text += bar_line(bar);
  for (const json& note : scenario["notes"]) text += "  note: " + note.get<std::string>() + "\n";
  return text;
}

}  // namespace clustar::bench::lossy
