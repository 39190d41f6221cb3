// Two arms, round by round: what each pair of runs says, also where one of the two failed or missed its target.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace clustar::bench::ab::suite {

inline constexpr std::size_t kLeastPairs = 5;           // for a verdict by a ratio
inline constexpr std::size_t kLeastAccuracyPairs = 10;  // for one by a difference of accuracies

// 0 for what is not there or no number.
double number(const nlohmann::json& run, const char* key);

using ByRound = std::map<int, const nlohmann::json*>;
// Of the runs that ended well.
ByRound runs_of(const nlohmann::json& scenario, const std::string& arm);

// What failed though the machine can run it.
struct Failures {
  std::size_t count = 0;
  std::string why;  // of the last
};
Failures failures_of(const nlohmann::json& scenario, const std::string& arm);

using Value = std::optional<double> (*)(const nlohmann::json& run);
std::optional<double> step_seconds(const nlohmann::json& run);
std::optional<double> seconds_to_target(const nlohmann::json& run);  // none: not reached

std::vector<double> values(const ByRound& runs, Value value);

// a / b in the rounds that both have, {ratio, low, high, pairs}; null without any. One pair has no interval.
nlohmann::json ratio_json(const ByRound& a, const ByRound& b, Value value);

// reference / arm in seconds, {ratio, low, high, pairs, rounds, censored_reference, censored_arm, neither}; null
// without any pair and without any that both missed. A run that failed, or has no value because it missed its target,
// took longer than can be seen: that is infinite for the arm (ratio 0), and for the reference the least that it took,
// its own training or, where it failed, the time limit. Where both did, the pair tells nothing and is counted in
// `neither`.
nlohmann::json censored_ratio(const nlohmann::json& training, const nlohmann::json& scenario,
                              const std::string& reference, const std::string& arm, Value value);

// Median of seconds in which runs that failed or missed count as infinite; none when nothing of it was run.
std::optional<double> censored_median(const nlohmann::json& scenario, const std::string& arm, Value value);

}  // namespace clustar::bench::ab::suite
