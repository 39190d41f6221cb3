#include "bench/lossy/report/fields.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

namespace clustar::bench::lossy_report {

using nlohmann::json;

const json& field(const json& object, const char* key) {
  static const json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(key);
  return found == object.end() ? nothing : *found;
}

const json& list(const json& object, const char* key) {
  static const json nothing = json::array();
  const json& value = field(object, key);
  return value.is_array() ? value : nothing;
}

std::optional<double> number(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const auto found = value.get<double>();
  return std::isfinite(found) ? std::optional(found) : std::nullopt;
}

std::optional<double> number(const json& object, const char* key) { return number(field(object, key)); }

std::string text(const json& object, const char* key, const std::string& otherwise) {
  const json& value = field(object, key);
  return value.is_string() ? value.get<std::string>() : otherwise;
}

std::string any_text(const json& value) {
  if (value.is_null()) return "-";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_float()) return fmt::format("{:.4g}", value.get<double>());
  if (!value.is_structured()) return value.dump();
  std::string joined;
  for (const auto& item : value.items()) {
    joined += joined.empty() ? "" : ", ";
    if (value.is_object()) joined += item.key() + ": ";
    // Not recursive: a hostile file may nest as deep as it likes.
    joined += item.value().is_structured() ? "..." : any_text(item.value());
  }
  return joined.empty() ? "-" : joined;
}

std::string fixed(std::optional<double> value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, std::abs(*value) < 1e9 ? digits : 0) : "-";
}

std::string milliseconds(std::optional<double> ms) {
  if (!ms) return "-";
  return fixed(ms, *ms < 10 ? 3 : *ms < 100 ? 2 : *ms < 1000 ? 1 : 0);
}

std::string bytes(std::optional<double> value) {
  if (!value) return "-";
  constexpr double kKiB = 1024, kMiB = kKiB * kKiB;
  if (*value >= kMiB && std::fmod(*value, kMiB) == 0) return fmt::format("{:g} MiB", *value / kMiB);
  if (*value >= kKiB && std::fmod(*value, kKiB) == 0) return fmt::format("{:g} KiB", *value / kKiB);
  if (*value >= 1e6) return fmt::format("{:.4g} MB", *value / 1e6);
  return *value >= 1e4 ? fmt::format("{:.4g} kB", *value / 1e3) : fmt::format("{:g} bytes", *value);
}

std::string rate(std::optional<double> bits_per_second) {
  if (!bits_per_second) return "-";
  static constexpr std::array<std::pair<double, const char*>, 3> kUnits{{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  for (const auto& [factor, prefix] : kUnits) {
    if (*bits_per_second >= factor) return fmt::format("{:.4g} {}bit/s", *bits_per_second / factor, prefix);
  }
  return fmt::format("{:g} bit/s", *bits_per_second);
}

}  // namespace clustar::bench::lossy_report
