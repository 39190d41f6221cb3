#include "transport/base/setting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>

namespace clustar {

std::string SettingInfo::variable() const {
  std::string text = "CLUSTAR_" + name;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

namespace setting {

bool one_of(const std::string& value, const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

std::string alternatives(const std::vector<std::string>& allowed) {
  return fmt::format("{}", fmt::join(allowed, " | "));
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

std::string bytes_allowed(std::uint32_t low, std::uint32_t high) {
  return fmt::format("bytes from {} to {} (suffix K or M allowed)", low, high);
}

std::string bytes_text(std::uint32_t bytes) {
  if (bytes > 0 && bytes % (1 << 20) == 0) return fmt::format("{}M", bytes >> 20);
  if (bytes > 0 && bytes % (1 << 10) == 0) return fmt::format("{}K", bytes >> 10);
  return std::to_string(bytes);
}

std::optional<Duration> seconds(const std::string& text, double high) {
  const auto value = number<double>(text, 0, high);
  if (!value) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*value));
}

std::string seconds_text(Duration duration) {
  return fmt::format("{:.12g}", std::chrono::duration<double>(duration).count());
}

std::optional<std::uint32_t> share_ppm(const std::string& text, double high) {
  const auto share = number<double>(text, 0, high);
  if (!share) return std::nullopt;
  const auto ppm = static_cast<std::uint32_t>(std::lround(*share * 1e6));
  if (ppm == 0 && *share > 0) return std::nullopt;  // otherwise too little would mean nothing
  return ppm;
}

std::string share_text(std::uint32_t ppm) { return fmt::format("{:g}", ppm / 1e6); }

}  // namespace setting
}  // namespace clustar
