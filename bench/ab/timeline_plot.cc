#include "bench/ab/timeline_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/report/plot.h"

namespace clustar::bench::ab {
namespace {

using nlohmann::json;
using report::Lane;

constexpr std::size_t kMostLanes = 8;  // of buckets: more share the last one, the earlier on top

// The run whose speed is nearest to the arm's; null: none has a timeline.
const json* typical_run(const json& result, const std::string& arm, double images_per_second) {
  const json* best = nullptr;
  const auto distance = [&](const json& run) {
    return std::abs(run.at("images_per_second").get<double>() - images_per_second);
  };
  for (const json& run : result.at("runs")) {
    const auto timeline = run.find("timeline");
    if (run.at("arm") != arm || timeline == run.end() || !timeline->is_array() || timeline->empty()) continue;
    if (best == nullptr || distance(run) < distance(*best)) best = &run;
  }
  return best;
}

// Those that are on their way at one time are below each other.
void add_buckets(const json& steps, const std::string& css_class, const std::string& label, std::vector<Lane>& lanes) {
  std::vector<Lane> own;
  for (const json& step : steps) {
    std::size_t number = 0;
    for (const json& bucket : step.at("buckets_s")) {
      const double from = 1e3 * bucket.at(0).get<double>(), to = 1e3 * bucket.at(1).get<double>();
      const auto free = [&](const Lane& lane) { return lane.spans.empty() || lane.spans.back().to <= from; };
      auto lane = std::find_if(own.begin(), own.end(), free);
      if (lane == own.end() && own.size() < kMostLanes) lane = own.insert(own.end(), Lane{});
      if (lane == own.end()) --lane;
      lane->spans.push_back({from, to, css_class, fmt::format("bucket {}", ++number)});
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) own[i].label = i == 0 ? label : "";
  lanes.insert(lanes.end(), own.begin(), own.end());
}

void add_compute(const json& steps, const std::string& label, std::vector<Lane>& lanes) {
  Lane lane{label, {}};
  const auto ms = [](const json& step, const char* key) { return 1e3 * step.at(key).get<double>(); };
  for (const json& step : steps) {
    lane.spans.push_back({ms(step, "begin_s"), ms(step, "backward_s"), "c", "forward"});
    lane.spans.push_back({ms(step, "backward_s"), ms(step, "backward_end_s"), "c", "backward"});
    if (ms(step, "end_s") > ms(step, "backward_end_s")) {
      lane.spans.push_back({ms(step, "backward_end_s"), ms(step, "end_s"), "wait", "waits for buckets"});
    }
  }
  lanes.push_back(std::move(lane));
}

}  // namespace

std::string timeline_plot(const json& result) {
  std::vector<Lane> lanes;
  const char* const names[] = {"baseline", "candidate"};
  const char* const letters[] = {"A", "B"};
  const char* const classes[] = {"a", "b"};
  for (std::size_t i = 0; i < 2; ++i) {
    const json& arm = result.at("arms").at(i);
    const json* run = typical_run(result, names[i], arm.at("images_per_second").get<double>());
    if (run == nullptr) continue;
    const json& steps = run->at("timeline");
    add_compute(steps, fmt::format("{} computes", letters[i]), lanes);
    add_buckets(steps, classes[i], fmt::format("{} sends", letters[i]), lanes);
  }
  if (lanes.empty()) return "";
  return report::lane_chart("The last steps of a typical run on rank 0; waiting is red", "milliseconds", lanes);
}

}  // namespace clustar::bench::ab
