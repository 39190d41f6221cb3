#include "bench/trainer/paraexpress_options.h"

#include <fmt/format.h>

#include <charconv>

#include "bench/report/report.h"
#include "paraexpress/core/group.h"
#include "paraexpress/core/order.h"
#include "paraexpress/core/region_map.h"
#include "paraexpress/engine/engine.h"

namespace clustar::bench::trainer {

const char* to_string(PlanChoice choice) {
  const auto plan = plan_of(choice);
  return plan ? paraexpress::to_string(*plan) : "auto";
}

std::optional<paraexpress::Plan> plan_of(PlanChoice choice) {
  using paraexpress::Plan;
  switch (choice) {
    case PlanChoice::kAuto: return std::nullopt;
    case PlanChoice::kDirect: return Plan::kDirect;
    case PlanChoice::kRing: return Plan::kRing;
    case PlanChoice::kDoubleTree: return Plan::kDoubleTree;
    case PlanChoice::kHierarchical: return Plan::kHierarchical;
    case PlanChoice::kServer: return Plan::kServer;
    case PlanChoice::kSharded: return Plan::kSharded;
  }
  return std::nullopt;
}

Result<PlanChoice> plan_choice_of(std::string_view name) {
  std::string allowed;
  for (const PlanChoice choice : kPlanChoices) {
    if (name == to_string(choice)) return choice;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", to_string(choice));
  }
  return fail(ErrorCode::kInvalidArgument, fmt::format("plan '{}' is none of {}", name, allowed));
}

Result<int> helpers_of(std::string_view count) {
  int helpers = -1;
  const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), helpers);
  const bool whole = error == std::errc() && end == count.data() + count.size();
  if (whole && helpers >= 0 && helpers <= static_cast<int>(paraexpress::kMostHelpers)) return helpers;
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("{} helpers; allowed: 0 to {}", count, paraexpress::kMostHelpers));
}

Result<void> complete(ParaexpressOptions& options, int ranks) {
  const auto count = static_cast<std::uint32_t>(ranks);
  const auto helpers = static_cast<std::uint32_t>(options.helpers);
  paraexpress::RegionMap map = paraexpress::one_region(count + helpers);
  if (options.regions_path == paraexpress::kProbeRegions) {
    if (helpers > 0) {
      return fail(ErrorCode::kInvalidArgument, "--regions probe finds no helpers; allowed: --helpers 0, or a file");
    }
    options.regions = options.regions_path;
  } else if (!options.regions_path.empty()) {
    auto text = report::read_text(options.regions_path);
    if (!text) return fail(text.error().code, "--regions: " + text.error().message);
    auto parsed = paraexpress::parse_region_map(*text, count, helpers);
    if (!parsed) {
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("--regions: {}:{}", options.regions_path, parsed.error().message));
    }
    options.regions = std::move(*text);
    map = std::move(*parsed);
  }
  const auto plan = plan_of(options.plan);
  if (!plan || paraexpress::makes_sense(*plan, paraexpress::make_group(count, helpers, std::move(map)))) return {};
  if (*plan == paraexpress::Plan::kSharded) {
    return fail(ErrorCode::kInvalidArgument, "--plan sharded needs helpers and two ranks or more: add --helpers K");
  }
  return fail(ErrorCode::kInvalidArgument,
              fmt::format("--plan {} needs a region map of two regions or more: add --regions FILE, with a line for "
                          "each as 'rack0 ranks=0-{}'",
                          to_string(options.plan), ranks / 2 > 0 ? ranks / 2 - 1 : 0));
}

}  // namespace clustar::bench::trainer
