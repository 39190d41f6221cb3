#include "transport/api/level_classes.h"

#include <charconv>

namespace clustar::transport {
namespace {

constexpr int kMaxDscp = 63;

// A number at the front of `text`, which it is taken from.
std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.front() == '-') return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char what) {
  if (text.empty() || text.front() != what) return false;
  text.remove_prefix(1);
  return true;
}

}  // namespace

std::optional<LevelClasses> LevelClasses::parse(std::string_view text) {
  LevelClasses classes;
  if (text.empty()) return classes;
  std::size_t level = 0;
  do {
    const auto first = take_number(text);
    if (!first || static_cast<std::size_t>(*first) != level) return std::nullopt;
    const auto last = take(text, '-') ? take_number(text) : first;
    if (!last || *last < *first || static_cast<std::size_t>(*last) >= kLevels || !take(text, '=')) return std::nullopt;
    const auto dscp = take_number(text);
    if (!dscp || *dscp > kMaxDscp) return std::nullopt;
    for (; level <= static_cast<std::size_t>(*last); ++level) classes.dscp_[level] = *dscp;
  } while (take(text, ','));
  if (!text.empty() || level != kLevels) return std::nullopt;
  return classes;
}

}  // namespace clustar::transport
