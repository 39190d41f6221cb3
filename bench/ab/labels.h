// What people call the options of a training, by their keys in the JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace clustar::bench::ab {

// "rate": "learning rate". A key without words of its own is its own name.
std::string option_label(const std::string& key);
// 0.1 and not 0.1000.
std::string option_text(const nlohmann::json& value);
// Images per second: whole numbers, three digits below 100.
std::string rate_text(double per_second);

}  // namespace clustar::bench::ab
