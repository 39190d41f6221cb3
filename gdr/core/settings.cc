#include "gdr/core/settings.h"

#include <charconv>

namespace clustar::gdr {

std::int64_t number_of(const std::optional<std::string>& value, std::int64_t otherwise) {
  // NCCL takes an empty variable for one that is not set.
  if (!value || value->empty()) return otherwise;
  std::string_view text = *value;
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
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error == std::errc::result_out_of_range) return otherwise;
  if (error != std::errc() || end == text.data() || *text.data() == '-') return 0;
  return negative ? -number : number;
}

Distance farthest(const Settings& settings) {
  return settings.gdr_level ? parse_level(*settings.gdr_level).value_or(Distance::kPxb) : Distance::kPxb;
}

}  // namespace clustar::gdr
