#include "bench/trainer/tolerance.h"

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>

namespace clustar::bench::trainer {
namespace {

using paraexpress::tolerant::kMostStaleness;
using paraexpress::tolerant::Tolerance;

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<std::uint32_t> count(std::string_view text, std::uint32_t least, std::uint32_t most) {
  const auto value = number(text);
  if (!value || *value < least || *value > most || *value != std::floor(*value)) return std::nullopt;
  return static_cast<std::uint32_t>(*value);
}

std::optional<Duration> duration(std::string_view text) {
  for (const auto& [unit, ns] : {std::pair<std::string_view, double>{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}) {
    if (!text.ends_with(unit)) continue;
    const auto value = number(text.substr(0, text.size() - unit.size()));
    if (!value || *value < 0 || *value * ns > 3.6e12) return std::nullopt;
    return Duration(std::llround(*value * ns));
  }
  return std::nullopt;
}

std::optional<std::uint32_t> parts_per_million(std::string_view text) {
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  const auto value = number(text);
  const double p = value ? *value * (percent ? 0.01 : 1) : -1;
  return p >= 0 && p <= 0.1 ? std::optional(static_cast<std::uint32_t>(std::lround(p * 1e6))) : std::nullopt;
}

// False: this is no value of it.
template <class T>
bool set(T& out, const std::optional<T>& value) {
  if (value) out = *value;
  return value.has_value();
}

}  // namespace

Result<Tolerance> parse_tolerance(std::string_view text) {
  Tolerance tolerance;
  std::set<std::string_view> seen;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string_view item = text.substr(at, comma - at);
    at = comma + 1;
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = equals < item.size() ? item.substr(equals + 1) : std::string_view();
    const bool good = key == "q"           ? set(tolerance.quorum, count(value, 1, paraexpress::kMostRanks))
                      : key == "deadline"  ? set(tolerance.deadline, duration(value))
                      : key == "staleness" ? set(tolerance.staleness, count(value, 0, kMostStaleness))
                      : key == "p"         ? set(tolerance.tolerance_ppm, parts_per_million(value))
                                           : false;
    if (good && seen.insert(key).second) continue;
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}'; allowed, each once: q=RANKS (1 to {}), deadline=TIME (0ms to 1 h, with us, ms or s), "
                    "staleness=STEPS (0 to {}), p=SHARE (0 to 10%, or 0.1), joined by commas",
                    item, paraexpress::kMostRanks, kMostStaleness));
  }
  return tolerance;
}

std::string to_text(const Tolerance& tolerance, int ranks) {
  const std::uint32_t quorum =
      tolerance.quorum != 0 ? tolerance.quorum : static_cast<std::uint32_t>(std::max(1, ranks - 1));
  return fmt::format("q={},deadline={:.4g}ms,staleness={},p={:.4g}%", quorum,
                     std::chrono::duration<double, std::milli>(tolerance.deadline).count(), tolerance.staleness,
                     static_cast<double>(tolerance.tolerance_ppm) / 1e4);
}

}  // namespace clustar::bench::trainer
