// What the commands share: exit statuses, checks of option values, and paths among them.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace clustar::bench::cli {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;

// A number from `low` to `high`. CLI::Range lets "nan" through, which compares false with both ends.
inline CLI::Validator number_between(double low, double high) {
  std::ostringstream range;
  range << "a number from " << low << " to " << high;
  const std::string allowed = range.str();
  return CLI::Validator(
      [=](std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() && value >= low && value <= high;
        return good ? std::string() : "'" + text + "' is not " + allowed;
      },
      "");
}

// One of `names`, for an option that is an enumeration with these values in this order, from 0.
inline CLI::Validator choice(std::vector<std::string> names) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        const auto known = std::find(names.begin(), names.end(), text);
        if (known == names.end()) return "'" + text + "' is none of " + CLI::detail::join(names, ", ");
        text = std::to_string(known - names.begin());
        return std::string();
      },
      "");
}

// False, too, of a link that leads to itself and of a name that is too long, where the library's own would throw.
inline bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

// As it is where the current folder was removed: there is no absolute path then.
inline std::string absolute_path(const std::string& path) {
  std::error_code error;
  const auto found = std::filesystem::absolute(path, error);
  return error ? path : found.string();
}

}  // namespace clustar::bench::cli
