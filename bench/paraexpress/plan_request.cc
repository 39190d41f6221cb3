#include "bench/paraexpress/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "bench/fabric/spec.h"
#include "bench/paraexpress/plan_report.h"
#include "bench/report/report.h"

namespace clustar::bench::paraexpress {
namespace {

constexpr std::size_t kMostSizes = 64;

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

Result<void> add_lag(const std::string& text, std::uint32_t ranks, std::vector<double>& lag_s) {
  const auto wrong = [&](const std::string& why) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("'{}' is no late rank{}; allowed: RANK=TIME, as 3=5ms, ranks 0 to {}", text, why, ranks - 1));
  };
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return wrong("");
  std::uint32_t rank = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + equals, rank);
  if (error != std::errc() || end != text.data() + equals || rank >= ranks) return wrong("");
  const auto lag = fabric::parse_delay(text.substr(equals + 1));
  if (!lag) return wrong(": " + lag.error().message);
  lag_s.resize(ranks, 0);
  lag_s[rank] = static_cast<double>(*lag) * 1e-9;
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
