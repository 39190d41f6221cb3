// A live measurement as text and JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/fabric/spec.h"
#include "bench/paraexpress/live/live.h"
#include "bench/perf/statistics.h"

namespace clustar::bench::paraexpress::live {
namespace {

std::string milliseconds(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }

}  // namespace

std::string text(const LiveOptions& options, const std::vector<LiveSize>& sizes) {
  std::string out = fmt::format("\nmeasured: real bytes, {} per host, {} round{} in turns, the slowest rank's time\n",
                                fabric::rate_text(options.rate_bps), options.rounds, options.rounds == 1 ? "" : "s");
  for (const LiveSize& size : sizes) {
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

nlohmann::json to_json(const LiveOptions& options, const std::vector<LiveSize>& sizes) {
  nlohmann::json all = nlohmann::json::array();
  for (const LiveSize& size : sizes) {
    nlohmann::json plans = nlohmann::json::array();
    for (const LiveRow& row : size.rows) {
      plans.push_back({{"plan", row.name},
                       {"chosen", row.chosen.empty() ? nlohmann::json() : nlohmann::json(row.chosen)},
                       {"seconds", row.seconds}});
    }
    all.push_back({{"bytes", size.bytes}, {"plans", plans}});
  }
  return {{"rate_bps", options.rate_bps}, {"delay_ns", options.delay_ns}, {"rounds", options.rounds}, {"sizes", all}};
}

}  // namespace clustar::bench::paraexpress::live
