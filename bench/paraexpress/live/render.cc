// A live measurement as text and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/fabric/spec.h"
#include "bench/paraexpress/live/live.h"
#include "bench/perf/statistics.h"
#include "paraexpress/core/probe.h"

namespace clustar::bench::paraexpress::live {
namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }

// The same ranks together, whatever the regions' names and numbers.
bool is_right(const LiveOptions& options, const std::string& found) {
  const auto map = px::parse_region_map(found, options.group.ranks, 0);
  if (!map) return false;
  auto mine = px::members_by_region(*map), truth = px::members_by_region(options.group.regions);
  for (auto* one : {&mine, &truth}) {
    std::erase_if(*one, [](const auto& members) { return members.empty(); });
    std::ranges::sort(*one);
  }
  return mine == truth;
}

}  // namespace

std::string text(const LiveOptions& options, const LiveResult& result) {
  std::string said;
  if (options.probe) {
    said = fmt::format("\nregions found ({}):\n{}true ones:\n{}",
                       is_right(options, result.found) ? "the true ones" : "NOT the true ones", result.found,
                       px::to_text(options.group.regions, options.group.ranks));
  }
  std::string out =
      said + fmt::format("\nmeasured: real bytes, {} per host, {} round{} in turns, the slowest rank's time\n",
                         fabric::rate_text(options.rate_bps), options.rounds, options.rounds == 1 ? "" : "s");
  for (const LiveSize& size : result.sizes) {
    out += fmt::format("\n{:<16}{:>14}{:>14}{:>14}{:>16}\n", fmt::format("{} bytes", size.bytes), "median", "least",
                       "most", "of the ring's");
    const auto ring = std::ranges::find(size.rows, "ring", &LiveRow::name);
    for (const LiveRow& row : size.rows) {
      if (row.seconds.empty()) {
        out += fmt::format("  {:<14}{:>14}\n", row.name, "too slow");
        continue;
      }
      const double median = perf::median(row.seconds);
      out += fmt::format("  {:<14}{:>14}{:>14}{:>14}", row.name, milliseconds(median),
                         milliseconds(*std::ranges::min_element(row.seconds)),
                         milliseconds(*std::ranges::max_element(row.seconds)));
      if (ring != size.rows.end() && !ring->seconds.empty()) {
        out += fmt::format("{:>16.2f}", median / perf::median(ring->seconds));
      }
      out += row.chosen.empty() ? "\n" : fmt::format("  {}\n", row.chosen);
    }
  }
  return out;
}

nlohmann::json to_json(const LiveOptions& options, const LiveResult& result) {
  nlohmann::json all = nlohmann::json::array();
  for (const LiveSize& size : result.sizes) {
    nlohmann::json plans = nlohmann::json::array();
    for (const LiveRow& row : size.rows) {
      plans.push_back({{"plan", row.name},
                       {"chosen", row.chosen.empty() ? nlohmann::json() : nlohmann::json(row.chosen)},
                       {"seconds", row.seconds}});
    }
    all.push_back({{"bytes", size.bytes}, {"plans", plans}});
  }
  nlohmann::json regions;
  if (options.probe) {
    regions = {{"true", px::to_text(options.group.regions, options.group.ranks)},
               {"found", result.found},
               {"right", is_right(options, result.found)}};
  }
  return {{"regions", regions},
          {"rate_bps", options.rate_bps},
          {"delay_ns", options.delay_ns},
          {"rounds", options.rounds},
          {"sizes", all}};
}

}  // namespace clustar::bench::paraexpress::live
