#include "bench/lossy/results.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/fabric/places.h"
#include "bench/fabric/topology.h"
#include "bench/lossy/arm.h"
#include "bench/lossy/stalls.h"

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
          {"largest_bytes", counters.largest_bytes},
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
    double goodput = 0, share = 0;
    json shares = json::array();
    for (const auto& block : samples.block_shares) {
      for (const auto& round : block) {
        goodput += round.at(job).goodput_gbps;
        share += round.at(job).share;
        shares.push_back(round.at(job).share);
      }
    }
    const double rounds = std::max(static_cast<double>(shares.size()), 1.0);
    jobs.push_back({{"name", names[job]},
                    {"goodput_gbps", goodput / rounds},
                    {"share_of_fair", share / rounds},
                    {"share_by_round", std::move(shares)}});
  }
  return jobs;
}

std::vector<double> with_stalls(const ArmSamples& samples) {
  std::vector<double> ms = samples.all_ms();
  ms.insert(ms.end(), samples.stalled_ms.begin(), samples.stalled_ms.end());
  return ms;
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
  const bool enough = all.size() >= kRoundsForPercentiles;
  const double gbit = 8e-9 * static_cast<double>(arm.delivered_bytes);
  out.update(
      {{"p50_ms", times.p50},
       {"p90_ms", times.p90},
       {"p99_ms", times.p99},
       {"p999_ms", enough ? json(times.p999) : json(nullptr)},
       {"indicative", !enough},
       {"mean_ms", times.mean},
       {"min_ms", times.min},
       {"max_ms", times.max},
       {"message_p50_ms", messages.p50},
       {"message_p99_ms", messages.p99},
       {"goodput_gbps", arm.seconds > 0 ? gbit / arm.seconds : 0},
       {"delivered_bytes", arm.delivered_bytes},
       {"missing_bytes", arm.missing_bytes},
       {"eligible_bytes", arm.eligible_bytes},
       {"lost_packets", arm.switches.lost},
       {"queue_drops", arm.switches.to_receiver.dropped_buffer},
       {"switch", counters_json(arm.switches.to_receiver)},
       {"host_drops", {{"interfaces", arm.interface_drops}, {"softnet", arm.samples.softnet_drops}}},
       {"cpu_s_per_gbit", gbit > 0 ? arm.cpu_s / gbit : 0},
       {"machine_cpu_s_per_gbit", gbit > 0 && arm.machine_cpu_s > 0 ? json(arm.machine_cpu_s / gbit) : json(nullptr)},
       {"retransmitted", arm.retransmitted ? json(*arm.retransmitted) : json(nullptr)},
       {"stalled_rounds", arm.samples.stalled_ms.size()},
       {"p99_with_stalls_ms", times_of(with_stalls(arm.samples)).p99},
       {"blocks", block_medians(arm.samples)},
       {"facts", arm.facts}});
  json curve = json::array();
  for (const auto& [ms, fraction] : distribution(all, kCurvePoints)) curve.push_back({ms, fraction});
  out["cdf"] = std::move(curve);
  if (jobs_of(arm.samples.name).size() > 1) out["jobs"] = jobs_json(arm.samples);
  return out;
}

json bar_json(const Bar& bar) {
  const bool judged = bar.figure && bar.void_because.empty();
  json out{{"text", bar.text}, {"met", judged ? json(bar.met()) : json(nullptr)}};
  out[bar.at_least ? "at_least" : "at_most"] = bar.limit;
  out["figure"] = bar.figure ? json(*bar.figure) : json(nullptr);
  if (!bar.figure) return out;
  out["spread"] = {bar.low, bar.high};
  out["indicative"] = bar.indicative;
  if (bar.figure_with_stalls) out["figure_with_stalls"] = *bar.figure_with_stalls;
  if (bar.figure_less_bucket) out["figure_less_bucket"] = *bar.figure_less_bucket;
  if (!bar.void_because.empty()) out["void_because"] = bar.void_because;
  return out;
}

bool has_mptcp(const std::string& name) {
  const auto arm = find_arm(name);
  return arm && arm->carrier == Carrier::kMptcp;
}

// A connection that the other end, or a middle, did not want as MPTCP is plain TCP, and looks the same from above.
std::string subflow_note(const ArmOutcome& arm) {
  for (const json& job : arm.facts) {
    if (!has_mptcp(job.value("job", ""))) continue;
    const json sender = job.value("sender", json::object());
    const json subflows = sender.value("subflows", json());
    if (!subflows.is_number()) {
      return fmt::format("{}: the kernel does not say how many subflows it has: it may be plain TCP.",
                         arm.samples.name);
    }
    if (subflows <= 1) return fmt::format("{}: MPTCP made one subflow only.", arm.samples.name);
  }
  return "";
}

std::string drops_note(const ArmOutcome& arm) {
  if (arm.interface_drops + arm.samples.softnet_drops == 0) return "";
  return fmt::format(
      "{}: {} packets were dropped by the hosts' interfaces and {} by the cores' input queues (those of everybody on "
      "this machine): losses that no rule asked for.",
      arm.samples.name, arm.interface_drops, arm.samples.softnet_drops);
}

// The rounds that were repeated, and what they would have changed.
std::string stalls_note(const ScenarioOutcome& outcome) {
  if (!outcome.stalls_known) {
    return "It is not known when this machine stood still, since threads may not have SCHED_FIFO here: all rounds "
           "count, and long ones may be the machine's.";
  }
  std::string arms;
  for (const ArmOutcome& arm : outcome.arms) {
    const std::vector<double>& stalled = arm.samples.stalled_ms;
    if (stalled.empty()) continue;
    arms += fmt::format("{}{} {} rounds, p99 {:.2f} ms", arms.empty() ? "" : "; ", arm.samples.name, stalled.size(),
                        times_of(with_stalls(arm.samples)).p99);
  }
  if (arms.empty()) return "";
  return fmt::format(
      "In some rounds this machine stood still: one of its cores was away for more than {} ms, by a watch of its own. "
      "They were repeated, and do not count. How many, and p99 with them: {}.",
      kStallNs / 1'000'000, arms);
}

// The kernel keeps the minimum in its own ticks, rounded up.
std::string rto_note(const ArmOutcome& arm) {
  for (const json& job : arm.facts) {
    const auto known = find_arm(job.value("job", ""));
    if (!known || known->rto_min_us == 0 || known->rto_min_us >= 100'000) continue;
    const json rto = job.value("sender", json::object()).value("rto_us", json());
    if (!rto.is_number()) continue;
    return fmt::format("{}: with a minimum of {} ms the kernel works with an RTO of {} ms (its ticks are coarse).",
                       arm.samples.name, known->rto_min_us / 1000, rto.get<std::uint64_t>() / 1000);
  }
  return "";
}

double bucket_ms(const Scenario& scenario) {
  const fabric::FabricSpec& fabric = scenario.fabric;
  return static_cast<double>(fabric::burst_bytes(fabric.rate_bps, fabric.mtu)) * 8e3 /
         static_cast<double>(fabric.rate_bps);
}

json other_cpu_json(const ScenarioOutcome& outcome) {
  return outcome.other_cpu ? to_json(*outcome.other_cpu) : json(nullptr);
}

// Others' user time tells of programs; what the kernel does for them, and for itself, shows while all arms sleep.
bool machine_is_ours(const ScenarioOutcome& outcome) {
  constexpr double kIdleCores = 0.05;
  return outcome.other_cpu && !outcome.other_cpu->disturbs() && outcome.idle_cores.value_or(0) <= kIdleCores;
}

json notes_json(const ScenarioOutcome& outcome) {
  json notes = outcome.scenario.notes;
  for (const std::string& note : outcome.notes) notes.push_back(note);
  if (const std::string note = stalls_note(outcome); !note.empty()) notes.push_back(note);
  for (const ArmOutcome& arm : outcome.arms) {
    for (const std::string& note : {subflow_note(arm), drops_note(arm), rto_note(arm)}) {
      if (!note.empty()) notes.push_back(note);
    }
  }
  return notes;
}

}  // namespace

json to_json(const perf::OtherCpu& other) {
  return {
      {"cores_used", other.used}, {"cores", other.cores}, {"seconds", other.seconds}, {"disturbs", other.disturbs()}};
}

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
           {"bucket_ms", bucket_ms(scenario)},
           {"arms", json::array()},
           {"bars", json::array()},
           {"switch", switch_json(outcome)},
           {"other_cpu", other_cpu_json(outcome)},
           {"idle_cores", outcome.idle_cores ? json(*outcome.idle_cores) : json(nullptr)},
           {"notes", notes_json(outcome)}};
  if (!outcome.skipped.empty()) out["skipped"] = outcome.skipped;
  std::vector<ArmSamples> samples;
  for (const ArmOutcome& arm : outcome.arms) {
    out["arms"].push_back(arm_json(arm));
    // The round that ended an arm has no time, and would have been its longest.
    if (arm.failure.empty()) samples.push_back(arm.samples);
  }
  const Conditions conditions{.ideal_ms = outcome.ideal_ms,
                              .bucket_ms = bucket_ms(scenario),
                              .machine_is_ours = machine_is_ours(outcome),
                              .backstop_drops = outcome.backstop_drops};
  for (const BarSpec& bar : scenario.bars) out["bars"].push_back(bar_json(judge(bar, samples, conditions)));
  return out;
}

}  // namespace clustar::bench::lossy
