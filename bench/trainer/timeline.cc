#include "bench/trainer/timeline.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace clustar::bench::trainer {

using nlohmann::json;

double time_under_way(BucketTimes times) {
  std::sort(times.begin(), times.end());
  double total = 0;
  StepTimes::Instant covered_to = StepTimes::Instant::min();
  for (const auto& [started, ended] : times) {
    const StepTimes::Instant from = std::max(covered_to, started);
    if (ended > from) total += std::chrono::duration<double>(ended - from).count();
    covered_to = std::max(covered_to, ended);
  }
  return total;
}

json Timeline::to_json() const {
  json all = json::array();
  for (const StepTimes& step : steps_) {
    const auto seconds = [&](StepTimes::Instant at) {
      return std::chrono::duration<double>(at - steps_.front().begin).count();
    };
    json buckets = json::array();
    for (const auto& [from, to] : step.buckets) buckets.push_back({seconds(from), seconds(to)});
    all.push_back({{"begin_s", seconds(step.begin)},
                   {"backward_s", seconds(step.backward)},
                   {"backward_end_s", seconds(step.backward_end)},
                   {"end_s", seconds(step.end)},
                   {"buckets_s", std::move(buckets)}});
  }
  return all;
}

}  // namespace clustar::bench::trainer
