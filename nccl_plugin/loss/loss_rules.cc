#include "nccl_plugin/loss/loss_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_plugin {
namespace {

constexpr const char* kKeys = "comm, ranks, bytes, class, func, p";

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// The text up to `separator`, trimmed; `rest` keeps what is behind it, nothing after the last part.
std::string_view next_part(std::optional<std::string_view>& rest, char separator) {
  const std::string_view all = *rest;
  const std::size_t end = all.find(separator);
  rest = end == std::string_view::npos ? std::nullopt : std::optional(all.substr(end + 1));
  return trim(all.substr(0, end));
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::uint64_t unit_of(char suffix) {
  switch (suffix) {
    case 'K':
    case 'k': return 1ull << 10;
    case 'M':
    case 'm': return 1ull << 20;
    case 'G':
    case 'g': return 1ull << 30;
    default: return 1;
  }
}

// 0 .. high; `units`: suffixes K, M, G count.
std::optional<std::uint64_t> bound(std::string_view text, std::uint64_t high, bool units) {
  const std::uint64_t unit = units && !text.empty() ? unit_of(text.back()) : 1;
  if (unit > 1) text = trim(text.substr(0, text.size() - 1));
  const auto value = number<std::uint64_t>(text);
  if (!value || *value > high / unit) return std::nullopt;
  return *value * unit;
}

// N | N-M | N- | -M
template <class T>
bool read_range(std::string_view text, LossRule::Range<T>& range, bool units = false) {
  constexpr std::uint64_t kHigh = std::numeric_limits<T>::max();
  range = {};
  const std::size_t dash = text.find('-');
  const std::string_view low_text = trim(text.substr(0, dash));
  const std::string_view high_text = dash == std::string_view::npos ? low_text : trim(text.substr(dash + 1));
  if (low_text.empty() && high_text.empty()) return false;
  const auto low = low_text.empty() ? std::optional<std::uint64_t>(0) : bound(low_text, kHigh, units);
  const auto high = high_text.empty() ? std::optional<std::uint64_t>(kHigh) : bound(high_text, kHigh, units);
  if (!low || !high || *low > *high) return false;
  range.low = static_cast<T>(*low);
  range.high = static_cast<T>(*high);
  return true;
}

bool read_function(std::string_view text, LossRule& rule) {
  if (text == "allreduce") rule.function = nccl_abi::kAllReduce;
  if (text == "reducescatter") rule.function = nccl_abi::kReduceScatter;
  if (text == "sendrecv") rule.function = nccl_abi::kSendRecv;
  return rule.function != -1 || text == "any";
}

bool read_tolerance(std::string_view text, LossRule& rule) {
  const auto share = number<double>(text);
  if (!share || !std::isfinite(*share) || *share < 0 || *share * 1e6 > kMaxTolerancePpm) return false;
  rule.tolerance_ppm = static_cast<std::uint32_t>(std::lround(*share * 1e6));
  return rule.tolerance_ppm > 0 || *share == 0;
}

struct Key {
  const char* name;
  const char* allowed;
  bool (*read)(std::string_view value, LossRule& rule);
};
constexpr Key kGrammar[] = {
    {"comm", "a name, with * and ?",
     [](std::string_view value, LossRule& rule) {
       rule.comm = value;
       return true;
     }},
    {"ranks", "N, N-M, N- or -M with numbers from 0 to 4294967295",
     [](std::string_view value, LossRule& rule) { return read_range(value, rule.ranks); }},
    {"bytes", "N, N-M, N- or -M with sizes such as 65536, 64K, 1M, 2G",
     [](std::string_view value, LossRule& rule) { return read_range(value, rule.bytes, true); }},
    // No -M: a class of -1 is NCCL's word for none.
    {"class", "N, N-M or N- with traffic classes from 0 to 2147483647",
     [](std::string_view value, LossRule& rule) {
       rule.any_class = false;
       return !value.starts_with('-') && read_range(value, rule.traffic_class);
     }},
    {"func", "allreduce, reducescatter, any (of these two) or sendrecv", read_function},
    {"p", "0, which means reliable, or a fraction from 0.000001 to 0.1", read_tolerance},
};
constexpr std::size_t kKeyCount = std::size(kGrammar);

tl::unexpected<Error> bad_rule(std::size_t index, std::string_view rule, const std::string& problem) {
  return fail(ErrorCode::kInvalidArgument, fmt::format("CLUSTAR_LOSS_RULES: rule {} ('{}'): {}", index, rule, problem));
}

Result<LossRule> parse_rule(std::size_t index, std::string_view text, std::uint32_t tolerance_ppm) {
  LossRule rule;
  rule.tolerance_ppm = tolerance_ppm;
  bool seen[kKeyCount] = {};
  if (text.empty()) {
    return bad_rule(index, text,
                    fmt::format("is empty; remove its ';', or write KEY=VALUE,... with the keys {}", kKeys));
  }
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view part = next_part(rest, ',');
    const std::size_t equals = part.find('=');
    const std::string_view name = trim(part.substr(0, equals));
    const Key* const key = std::find_if(std::begin(kGrammar), std::end(kGrammar),
                                        [&](const Key& candidate) { return name == candidate.name; });
    if (key == std::end(kGrammar)) {
      return bad_rule(index, text, fmt::format("unknown key '{}'; allowed: {}", name, kKeys));
    }
    if (equals == std::string_view::npos) {
      return bad_rule(index, text,
                      fmt::format("'{}' has no value; write {}=..., allowed: {}", name, name, key->allowed));
    }
    if (std::exchange(seen[key - kGrammar], true)) {
      return bad_rule(index, text, fmt::format("'{}' is allowed once; write a second rule behind a ';'", name));
    }
    const std::string_view value = trim(part.substr(equals + 1));
    if (!key->read(value, rule)) {
      return bad_rule(index, text, fmt::format("{} = '{}' is not allowed: {}", name, value, key->allowed));
    }
  }
  return rule;
}

}  // namespace

Result<std::vector<LossRule>> parse_loss_rules(std::string_view text, std::uint32_t tolerance_ppm) {
  std::vector<LossRule> rules;
  if (trim(text).empty()) return rules;
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view part = next_part(rest, ';');
    auto rule = parse_rule(rules.size() + 1, part, tolerance_ppm);
    if (!rule) return tl::unexpected(rule.error());
    rules.push_back(std::move(*rule));
  }
  return rules;
}

Result<std::vector<LossRule>> parse_traffic_classes(std::string_view text, std::uint32_t tolerance_ppm) {
  std::vector<LossRule> rules;
  if (trim(text).empty()) return rules;
  for (std::optional<std::string_view> rest = text; rest;) {
    const std::string_view part = next_part(rest, ',');
    LossRule rule;
    rule.tolerance_ppm = tolerance_ppm;
    rule.any_class = false;
    if (part.starts_with('-') || !read_range(part, rule.traffic_class)) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("CLUSTAR_LOSS_TRAFFIC_CLASSES: range {} ('{}') is not allowed: N, N-M or N- with "
                              "traffic classes from 0 to 2147483647, joined by ','",
                              rules.size() + 1, part));
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::optional<std::size_t> star;  // the latest one: only it needs to take more when the rest does not fit
  std::size_t taken = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star) {
      p = *star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace clustar::nccl_plugin
