#include "paraexpress/core/region_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace clustar::paraexpress {
namespace {

constexpr std::uint32_t kInNone = ~std::uint32_t{0};
constexpr std::size_t kMostLine = 65536;

std::optional<std::uint32_t> whole(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

// "4" or "2.5": the library's conversion of doubles is none for a pure core.
std::optional<double> decimal(std::string_view text) {
  const std::size_t dot = text.find('.');
  const auto front = whole(text.substr(0, dot));
  if (!front) return {};
  if (dot == std::string_view::npos) return *front;
  const std::string_view digits = text.substr(dot + 1);
  const auto back = digits.size() <= 6 ? whole(digits) : std::nullopt;
  if (!back) return {};
  double scale = 1;
  for (std::size_t i = 0; i < digits.size(); ++i) scale *= 10;
  return *front + *back / scale;
}

std::string_view next_word(std::string_view& rest) {
  const std::size_t begin = std::min(rest.find_first_not_of(" \t\r"), rest.size());
  const std::size_t end = std::min(rest.find_first_of(" \t\r", begin), rest.size());
  const std::string_view word = rest.substr(begin, end - begin);
  rest.remove_prefix(end);
  return word;
}

class Parser {
 public:
  Parser(std::uint32_t ranks, std::uint32_t helpers) : ranks_(ranks), helpers_(helpers) {
    map_.region_of.assign(ranks + helpers, kInNone);
  }

  // The empty string, or what is wrong with it.
  std::string line(std::string_view text) {
    text = text.substr(0, text.find('#'));
    const std::string_view name = next_word(text);
    if (name.empty()) return {};
    if (text.size() > kMostLine) return fmt::format("a line of {} bytes; allowed: up to {}", text.size(), kMostLine);
    if (name.find('=') != std::string_view::npos) {
      return fmt::format("'{}' is no name of a region; allowed: a name first, as in 'region0 ranks=0-7'", name);
    }
    for (const Region& region : map_.regions) {
      if (region.name == name) return fmt::format("region '{}' appears twice; allowed: each name once", name);
    }
    map_.regions.push_back({std::string(name), 0, 1});
    members_ = 0;
    seen_.clear();
    for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
      if (std::string wrong = key_value(word); !wrong.empty()) return wrong;
    }
    Region& region = map_.regions.back();
    if (region.hosts == 0) region.hosts = members_;
    if (region.hosts < members_) {
      return fmt::format("hosts={} in region '{}'; allowed: at least its {} members", region.hosts, name, members_);
    }
    if (region.hosts == 0) return fmt::format("region '{}' has nobody; allowed: ranks=, helpers= or hosts=", name);
    return {};
  }

  Result<RegionMap> end() {
    for (Member member = 0; member < map_.region_of.size(); ++member) {
      if (map_.region_of[member] != kInNone) continue;
      const bool rank = member < ranks_;
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} {} is in no region; allowed: each rank from 0 to {}{} in one",
                              rank ? "rank" : "helper", rank ? member : member - ranks_, ranks_ - 1,
                              helpers_ == 0 ? "" : fmt::format(" and each helper from 0 to {}", helpers_ - 1)));
    }
    return std::move(map_);
  }

 private:
  std::string key_value(std::string_view word) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      return fmt::format("'{}' appears twice in this line; allowed: once", key);
    seen_.push_back(key);
    Region& region = map_.regions.back();
    if (key == "ranks") return take(value, "ranks", 0, ranks_);
    if (key == "helpers") return take(value, "helpers", ranks_, helpers_);
    if (key == "hosts") {
      const auto hosts = whole(value);
      if (!hosts || *hosts == 0 || *hosts > kMostMembers)
        return fmt::format("hosts={}; allowed: 1 to {}", value, kMostMembers);
      region.hosts = *hosts;
      return {};
    }
    if (key == "oversubscription") {
      const auto ratio = decimal(value);
      if (!ratio || *ratio < 1 || *ratio > kMostOversubscription) {
        return fmt::format("oversubscription={}; allowed: 1 to {}, as 4 or 2.5", value, kMostOversubscription);
      }
      region.oversubscription = *ratio;
      return {};
    }
    return fmt::format("unknown '{}'; allowed: ranks=, helpers=, hosts=, oversubscription=", word);
  }

  // "0-7,9": members from `first` on, `count` of them.
  std::string take(std::string_view list, std::string_view key, Member first, std::uint32_t count) {
    if (count == 0) return fmt::format("{}={}; allowed: nothing, there are none", key, list);
    for (std::size_t begin = 0; begin <= list.size();) {
      const std::size_t comma = std::min(list.find(',', begin), list.size());
      const std::string_view part = list.substr(begin, comma - begin);
      begin = comma + 1;
      const std::size_t dash = part.find('-');
      const auto low = whole(part.substr(0, dash));
      const auto high = dash == std::string_view::npos ? low : whole(part.substr(dash + 1));
      if (!low || !high || *low > *high || *high >= count) {
        return fmt::format("{}={}; allowed: numbers from 0 to {} and ranges, as 0-7,9", key, list, count - 1);
      }
      for (std::uint32_t number = *low; number <= *high; ++number) {
        std::uint32_t& place = map_.region_of[first + number];
        if (place != kInNone) {
          return fmt::format("{}={}: {} is in '{}' already; allowed: each in one region", key, list, number,
                             map_.regions[place].name);
        }
        place = static_cast<std::uint32_t>(map_.regions.size() - 1);
        ++members_;
      }
    }
    return {};
  }

  const std::uint32_t ranks_, helpers_;
  RegionMap map_;
  std::uint32_t members_ = 0;  // of the region of this line
  std::vector<std::string_view> seen_;
};

}  // namespace

RegionMap one_region(std::uint32_t members) { return equal_regions(members, members, 1); }

RegionMap equal_regions(std::uint32_t members, std::uint32_t size, double oversubscription) {
  RegionMap map;
  for (Member member = 0; member < members; ++member) {
    const std::uint32_t region = member / size;
    if (region == map.regions.size()) map.regions.push_back({fmt::format("region{}", region), size, oversubscription});
    map.region_of.push_back(region);
  }
  return map;
}

Result<RegionMap> parse_region_map(std::string_view text, std::uint32_t ranks, std::uint32_t helpers) {
  Parser parser(ranks, helpers);
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    if (std::string wrong = parser.line(text.substr(begin, end - begin)); !wrong.empty()) {
      return fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", number, wrong));
    }
    begin = end + 1;
  }
  return parser.end();
}

std::vector<std::vector<Member>> members_by_region(const RegionMap& map) {
  std::vector<std::vector<Member>> members(map.regions.size());
  for (Member member = 0; member < map.region_of.size(); ++member) members[map.region_of[member]].push_back(member);
  return members;
}

}  // namespace clustar::paraexpress
