// What the rows' runs are worth: JSON in, and JSON, a table and a page out.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab::reproduction {

inline constexpr const char* kLabel =
    "A reproduction on an emulated network: computing is replayed, by estimates, and the stack of 2018 is our own "
    "parameter server.";

// Of conduct()'s rows, the contract's keys of `ab` for each: {model, baseline, candidate (of our arms, the one with the
// best median), images_per_second_a, images_per_second_b, ratio, ratio_low, ratio_high, time_to_accuracy_ratio (null),
// ceiling_ratio, published, met (null: not all runs were done), arms [{name, images_per_second, ratio, ratio_low,
// ratio_high}], ...the row}.
nlohmann::json judge(const nlohmann::json& rows, const std::string& baseline);

// For people. `results`: what judge() made.
std::string table(const nlohmann::json& results);
// One HTML page. `document`: bench/report's envelope around judge()'s.
std::string page(const nlohmann::json& document);

}  // namespace clustar::bench::ab::reproduction
