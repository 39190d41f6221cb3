#include "bench/paraexpress/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "bench/fabric/spec.h"
#include "bench/paraexpress/plan_report.h"
#include "bench/report/report.h"

namespace clustar::bench::paraexpress {
namespace {

constexpr std::size_t kMostSizes = 64;
constexpr double kMostLag = 60;                               // seconds
constexpr double kLeastNicRate = 1e6, kMostNicRate = 1.6e12;  // bits per second

struct Unit {
  std::string_view name;
  double scale;
};

// "2.5ms" in the units given, in either case. Nothing: no number of at least 0 with one of them behind it.
std::optional<double> number_in(std::string_view given, std::initializer_list<Unit> units) {
  std::string text(given);
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return {};
  const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
  for (const Unit& one : units) {
    if (unit == one.name) return number * one.scale;
  }
  return {};
}

Result<px::RegionMap> map_of(const PlanRequest& request) {
  const std::uint32_t members = request.ranks + request.helpers;
  if (request.regions_path.empty()) {
    if (request.region_size == 0 && request.oversubscription > 1) {
      return fail(ErrorCode::kInvalidArgument, "--oversubscription without regions; allowed: with --region-size N");
    }
    return request.region_size == 0 ? px::one_region(members)
                                    : px::equal_regions(members, request.region_size, request.oversubscription);
  }
  if (request.region_size != 0 || request.oversubscription != 1) {
    return fail(ErrorCode::kInvalidArgument,
                "--regions says sizes and oversubscription; allowed: without --region-size and --oversubscription");
  }
  const auto content = report::read_text(request.regions_path);
  if (!content) return fail(ErrorCode::kInvalidArgument, content.error().message);
  auto map = px::parse_region_map(*content, request.ranks, request.helpers);
  if (!map) return fail(ErrorCode::kInvalidArgument, fmt::format("{}:{}", request.regions_path, map.error().message));
  return map;
}

}  // namespace

Result<px::Group> group_of(const PlanRequest& request) {
  auto map = map_of(request);
  if (!map) return fail(map.error().code, map.error().message);
  if (request.random_seed) *map = shuffled(std::move(*map), request.ranks, *request.random_seed);
  return px::make_group(request.ranks, request.helpers, std::move(*map));
}

Result<double> parse_nic_rate(const std::string& text) {
  std::string_view number = text;
  for (const std::string_view suffix : {"bit/s", "bits", "bit"}) {
    if (!number.ends_with(suffix)) continue;
    number.remove_suffix(suffix.size());
    break;
  }
  const auto bits = number_in(number, {{"", 1}, {"k", 1e3}, {"m", 1e6}, {"g", 1e9}, {"t", 1e12}});
  if (!bits || *bits < kLeastNicRate || *bits > kMostNicRate) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("'{}' is not a rate of a NIC; allowed: 1M to 1.6T in bit/s, as 200M, 40G, 800Gbit", text));
  }
  return *bits / 8;
}

Result<void> add_lag(const std::string& text, std::uint32_t ranks, std::vector<double>& lag_s) {
  const auto wrong = [&] {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "'{}' is no late rank; allowed: RANK=TIME, as 3=5ms, ranks 0 to {}, times 0 to {}s in ns, us, ms, s", text,
            ranks - 1, kMostLag));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong();
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + equals, rank);
  if (error != std::errc() || end != text.data() + equals || rank >= ranks) return wrong();
  const auto lag =
      number_in(std::string_view(text).substr(equals + 1), {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}});
  if (!lag || *lag > kMostLag) return wrong();
  lag_s.resize(ranks, 0);
  lag_s[rank] = *lag;
  return {};
}

Result<std::vector<std::uint64_t>> parse_sizes(const std::string& text) {
  std::vector<std::uint64_t> sizes;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string one = text.substr(begin, comma - begin);
    begin = comma + 1;
    const auto bytes = fabric::parse_size(one);
    if (!bytes) return fail(ErrorCode::kInvalidArgument, bytes.error().message);
    if (*bytes == 0 || *bytes > kMostBytes || sizes.size() == kMostSizes) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' in --size; allowed: up to {} sizes of 1 to {} bytes, as 4KiB,1MiB", one, kMostSizes,
                              kMostBytes));
    }
    sizes.push_back(*bytes);
  }
  return sizes;
}

}  // namespace clustar::bench::paraexpress
