#include "gdr/core/settings.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

namespace clustar::gdr {
namespace {

struct Number {
  std::int64_t value = 0;  // the nearest that there is, where it is out of range
  bool out_of_range = false;
};

// As strtoll with base 0 in the C locale; a core may not call that, since it sets errno.
Number read_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || (text.front() >= '\t' && text.front() <= '\r')))
    text.remove_prefix(1);
  const bool negative = !text.empty() && text.front() == '-';
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  int base = 10;
  if (text.size() > 1 && text[0] == '0') {
    const bool hex = text[1] == 'x' || text[1] == 'X';
    base = hex ? 16 : 8;
    text.remove_prefix(hex ? 2 : 1);
  }
  std::uint64_t magnitude = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), magnitude, base);
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::uint64_t limit = static_cast<std::uint64_t>(kMost) + (negative ? 1 : 0);
  const bool out_of_range = read.ec == std::errc::result_out_of_range || magnitude > limit;
  if (out_of_range) magnitude = limit;
  return {static_cast<std::int64_t>(negative ? std::uint64_t{0} - magnitude : magnitude), out_of_range};
}

bool begins_with_digit(std::string_view text) { return !text.empty() && text.front() >= '0' && text.front() <= '9'; }

// NCCL keeps the long in an int.
std::int32_t old_level(std::string_view text) { return static_cast<std::int32_t>(read_number(text).value); }

}  // namespace

std::int64_t number_of(const std::optional<std::string>& value, std::int64_t otherwise) {
  // NCCL takes an empty variable for one that is not set.
  if (!value || value->empty()) return otherwise;
  const Number number = read_number(*value);
  return number.out_of_range ? otherwise : number.value;
}

std::optional<Distance> parse_level(std::string_view text) {
  for (auto level = std::uint8_t{0}; level <= static_cast<std::uint8_t>(Distance::kSys); ++level) {
    if (text == to_string(static_cast<Distance>(level))) return static_cast<Distance>(level);
  }
  if (!begins_with_digit(text) || level_overflows(text)) return std::nullopt;
  constexpr Distance kOld[] = {Distance::kLoc, Distance::kPix, Distance::kPxb, Distance::kPhb, Distance::kSys};
  return kOld[std::min<std::size_t>(static_cast<std::size_t>(old_level(text)), std::size(kOld) - 1)];
}

bool level_overflows(std::string_view text) { return begins_with_digit(text) && old_level(text) < 0; }

Distance farthest(const Settings& settings) {
  return settings.gdr_level ? parse_level(*settings.gdr_level).value_or(Distance::kPxb) : Distance::kPxb;
}

}  // namespace clustar::gdr
