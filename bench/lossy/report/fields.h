// Reading JSON of which any key may be missing, null or of another type.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace clustar::bench::lossy_report {

// null where there is no such key or `object` is no object.
const nlohmann::json& field(const nlohmann::json& object, const char* key);
// An empty array where it is no array.
const nlohmann::json& list(const nlohmann::json& object, const char* key);
// Nothing where it is no finite number.
std::optional<double> number(const nlohmann::json& value);
std::optional<double> number(const nlohmann::json& object, const char* key);
// `otherwise` where it is no string.
std::string text(const nlohmann::json& object, const char* key, const std::string& otherwise = "");
// As people read it, "-" for null; a list's values with commas.
std::string any_text(const nlohmann::json& value);

// "-" where there is nothing.
std::string fixed(std::optional<double> value, int digits);
// Milliseconds with about four digits.
std::string milliseconds(std::optional<double> ms);
// "1 MiB", "100 kB"; "-" where there is nothing.
std::string bytes(std::optional<double> value);
// "200 Mbit/s"
std::string rate(std::optional<double> bits_per_second);

}  // namespace clustar::bench::lossy_report
