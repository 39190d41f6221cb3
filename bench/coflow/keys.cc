#include "bench/coflow/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace clustar::bench::coflow {
namespace {

std::string limits_of(std::span<const Key> keys) {
  std::string limits;
  for (const Key& key : keys) {
    limits += fmt::format("{}{} ({}{} to {})", limits.empty() ? "" : ", ", key.name, key.whole ? "whole, " : "",
                          key.least, key.most);
  }
  return limits + ", as key=value,...";
}

}  // namespace

Result<void> read_keys(std::string_view text, std::span<const Key> keys, std::string allowed) {
  if (allowed.empty()) allowed = limits_of(keys);
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{}; allowed: {}", what, allowed));
  };
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find(','));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view name = pair.substr(0, equals);
    const std::string_view value = pair.substr(std::min(equals + 1, pair.size()));
    const auto key = std::find_if(keys.begin(), keys.end(), [&](const Key& one) { return one.name == name; });
    double read = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), read);
    const bool number = error == std::errc() && end == value.data() + value.size();
    if (key == keys.end() || !number || !(read >= key->least && read <= key->most) ||
        (key->whole && read != std::floor(read))) {
      return wrong(fmt::format("'{}' cannot be", pair));
    }
    if (!seen.insert(name).second) return wrong(fmt::format("{} is there twice", name));
    key->set(read);
  }
  return {};
}

}  // namespace clustar::bench::coflow
