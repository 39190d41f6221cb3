// A plan report as text and JSON.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/paraexpress/plan_report.h"

namespace clustar::bench::paraexpress {
namespace {

std::string time_text(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3f} ms", seconds * 1e3) : fmt::format("{:.3f} s", seconds);
}

std::string bytes_text(double bytes) {
  if (bytes < 10'000) return fmt::format("{:.0f} B", bytes);
  return bytes < 1e7 ? fmt::format("{:.1f} kB", bytes / 1e3) : fmt::format("{:.1f} MB", bytes / 1e6);
}

const char* advice(px::Placement placement) {
  switch (placement) {
    case px::Placement::kPack: return "pack the ranks into few regions";
    case px::Placement::kSpread: return "spread the ranks over the regions";
    case px::Placement::kEither: return "pack or spread, no difference";
  }
  return "?";
}

std::string count_text(std::uint64_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

// Where the simulation is not of what is modelled.
std::string notes(const SizeReport& size) {
  std::string out;
  for (const PlanRow& row : size.rows) {
    if (row.too_large) out += fmt::format("{}: not simulated: too many messages or members\n", row.name);
    if (row.simulated_chunks == 0 || row.simulated_chunks == row.modelled.chunks) continue;
    out += fmt::format("{}: simulated with {} chunks of {} per shard in place of {}\n", row.name, row.simulated_chunks,
                       bytes_text(row.chunk_bytes * row.modelled.chunks / row.simulated_chunks), row.modelled.chunks);
  }
  return out;
}

}  // namespace

std::string text(const PlanReport& report) {
  const px::Group& group = report.group;
  std::string out = fmt::format(
      "{}, {}, {}; NICs of {:.4g} Gbit/s, {:.3g} us, {:.3g} us per message\n", count_text(group.ranks, "rank"),
      count_text(group.helpers, "helper"), count_text(group.regions.regions.size(), "region"),
      report.network.nic_bytes_per_s * 8e-9, report.network.latency_s * 1e6, report.network.message_s * 1e6);
  for (const SizeReport& size : report.sizes) {
    out += fmt::format("\n{:<16}{:>12}{:>12}{:>16}{:>14}{:>12}{:>8}\n", count_text(size.bytes, "byte"), "modelled",
                       "simulated", "busiest uplink", "busiest NIC", "chunk", "steps");
    for (std::size_t i = 0; i < size.rows.size(); ++i) {
      const PlanRow& row = size.rows[i];
      out +=
          fmt::format("{} {:<14}{:>12}{:>12}{:>16}{:>14}{:>12}{:>8}\n",
                      i == size.chosen ? '>'
                      : row.candidate  ? ' '
                                       : '(',
                      row.name, time_text(row.modelled.seconds), row.simulated_s ? time_text(*row.simulated_s) : "-",
                      bytes_text(row.uplink_bytes), bytes_text(row.nic_bytes), bytes_text(row.chunk_bytes), row.steps);
    }
    out += notes(size);
    out += fmt::format("placement: {} (now {}, packed {}, spread {})\n", advice(size.placement.placement),
                       time_text(size.placement.given_s), time_text(size.placement.packed_s),
                       time_text(size.placement.spread_s));
  }
  return out +
         "\n> marks the chosen plan, of the least modelled time; ( marks a row for comparison only, which is never "
         "chosen. modelled:\n"
         "by the planner; simulated: message by message. Uplink and NIC: bytes per direction and operation. steps: "
         "messages one\n"
         "after the other.\n";
}

nlohmann::json to_json(const PlanReport& report) {
  nlohmann::json regions = nlohmann::json::array();
  const auto members = px::members_by_region(report.group.regions);
  for (std::size_t i = 0; i < members.size(); ++i) {
    const px::Region& region = report.group.regions.regions[i];
    regions.push_back({{"name", region.name},
                       {"hosts", region.hosts},
                       {"oversubscription", region.oversubscription},
                       {"members", members[i]}});
  }
  nlohmann::json sizes = nlohmann::json::array();
  for (const SizeReport& size : report.sizes) {
    nlohmann::json plans = nlohmann::json::array();
    for (const PlanRow& row : size.rows) {
      plans.push_back({{"plan", row.name},
                       {"candidate", row.candidate},
                       {"modelled_us", row.modelled.seconds * 1e6},
                       {"simulated_us", row.simulated_s ? nlohmann::json(*row.simulated_s * 1e6) : nlohmann::json()},
                       {"too_large_to_simulate", row.too_large},
                       {"simulated_chunks_per_shard", row.simulated_chunks},
                       {"chunks_per_shard", row.modelled.chunks},
                       {"chunk_bytes", row.chunk_bytes},
                       {"busiest_uplink_bytes", row.uplink_bytes},
                       {"busiest_nic_bytes", row.nic_bytes},
                       {"steps", row.steps}});
    }
    const px::PlacementHint& hint = size.placement;
    sizes.push_back({{"bytes", size.bytes},
                     {"chosen", size.rows[size.chosen].name},
                     {"plans", plans},
                     {"placement",
                      {{"hint", px::to_string(hint.placement)},
                       {"given_us", hint.given_s * 1e6},
                       {"packed_us", hint.packed_s * 1e6},
                       {"spread_us", hint.spread_s * 1e6}}}});
  }
  return {{"ranks", report.group.ranks},
          {"helpers", report.group.helpers},
          {"regions", regions},
          {"network",
           {{"nic_gbps", report.network.nic_bytes_per_s * 8e-9},
            {"latency_us", report.network.latency_s * 1e6},
            {"message_us", report.network.message_s * 1e6}}},
          {"sizes", sizes}};
}

}  // namespace clustar::bench::paraexpress
