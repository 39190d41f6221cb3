#include "bench/coflow/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

namespace clustar::bench::coflow {
namespace {

tl::unexpected<Error> wrong(const std::string& what, std::span<const Key> keys) {
  std::string allowed;
  for (const Key& key : keys) {
    allowed += fmt::format("{}{} ({}{} to {})", allowed.empty() ? "" : ", ", key.name, key.whole ? "whole, " : "",
                           key.least, key.most);
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}; allowed: {}, as key=value,...", what, allowed));
}

}  // namespace

Result<void> read_keys(std::string_view text, std::span<const Key> keys) {
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
      return wrong(fmt::format("'{}' cannot be", pair), keys);
    }
    if (!seen.insert(name).second) return wrong(fmt::format("{} is there twice", name), keys);
    key->set(read);
  }
  return {};
}

}  // namespace clustar::bench::coflow
