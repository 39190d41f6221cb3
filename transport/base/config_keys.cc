#include "transport/base/config_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace clustar::config_keys {

bool one_of(const std::string& value, const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::optional<std::uint32_t> byte_count(std::string text, std::uint32_t low, std::uint32_t high) {
  std::uint64_t unit = 1;
  if (!text.empty() && (text.back() == 'K' || text.back() == 'k')) unit = 1024;
  if (!text.empty() && (text.back() == 'M' || text.back() == 'm')) unit = 1024 * 1024;
  if (unit > 1) text.pop_back();
  const auto value = number<std::uint64_t>(text, 0, high / unit);
  if (!value || *value * unit < low) return std::nullopt;
  return static_cast<std::uint32_t>(*value * unit);
}

Key bytes_key(const std::string& name, std::uint32_t Config::*field, std::uint32_t low, std::uint32_t high) {
  return {name, fmt::format("bytes from {} to {} (suffix K or M allowed)", low, high),
          [=](Config& config, const std::string& text) {
            const auto value = byte_count(text, low, high);
            if (value) config.*field = *value;
            return value.has_value();
          },
          [=](const Config& config) { return std::to_string(config.*field); }};
}

Key number_key(const std::string& name, int Config::*field, int low, int high, const std::string& meaning) {
  return {name, fmt::format("a number from {} to {}{}", low, high, meaning),
          [=](Config& config, const std::string& text) {
            const auto value = number<int>(text, low, high);
            if (value) config.*field = *value;
            return value.has_value();
          },
          [=](const Config& config) { return std::to_string(config.*field); }};
}

Key switch_key(const std::string& name, bool Config::*field) {
  return {name, "0 | 1",
          [=](Config& config, const std::string& text) {
            config.*field = text == "1";
            return text == "0" || text == "1";
          },
          [=](const Config& config) { return config.*field ? "1" : "0"; }};
}

Key choice_key(const std::string& name, std::string Config::*field, const std::vector<std::string>& allowed) {
  return {name, fmt::format("{}", fmt::join(allowed, " | ")),
          [=](Config& config, const std::string& text) {
            config.*field = text;
            return one_of(text, allowed);
          },
          [=](const Config& config) { return config.*field; }};
}

Key text_key(const std::string& name, std::string Config::*field, const std::string& allowed) {
  return {name, allowed,
          [=](Config& config, const std::string& text) {
            config.*field = text;
            return true;
          },
          [=](const Config& config) { return config.*field; }};
}

}  // namespace clustar::config_keys
