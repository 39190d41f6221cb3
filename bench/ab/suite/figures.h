// What the runs of a suite are worth: figures per arm and scenario, and the bars. JSON in, JSON out, no measuring.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace clustar::bench::ab::suite {

struct MeanEstimate {
  double mean = 0;
  double low = 0;  // 95 % interval of Student's t
  double high = 0;
};
// None for fewer than two values, which have no interval.
std::optional<MeanEstimate> mean_estimate(std::span<const double> values);

// Adds to `training`, which conduct() made, "figures" in each scenario, one per arm that has runs, and "bars" and
// "warnings" at the top. What was there of them before is replaced.
void judge(nlohmann::json& training);

// The contract's rows: {scenario, model, baseline, candidate, images_per_second_a, images_per_second_b, ratio,
// ratio_low, ratio_high, time_to_accuracy_ratio, ceiling_ratio}, an entry per arm that has a reference.
nlohmann::json comparisons(const nlohmann::json& training);

// "1.134 (1.020 to 1.210)"; "-" for null.
std::string interval_text(const nlohmann::json& estimate, int digits = 3);
// The entry of `list` whose "name" (or `key`) is that; null without one.
const nlohmann::json* find_named(const nlohmann::json& list, const std::string& name, const char* key = "name");

}  // namespace clustar::bench::ab::suite
