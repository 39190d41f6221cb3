// What ParaExpress is told of a run: by which plan, and where the ranks are.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "paraexpress/core/plans/build.h"
#include "transport/base/result.h"

namespace clustar::bench::trainer {

enum class PlanChoice : std::uint8_t { kAuto, kDirect, kRing, kDoubleTree, kHierarchical, kServer, kSharded };
inline constexpr std::array kPlanChoices{PlanChoice::kAuto,       PlanChoice::kDirect,       PlanChoice::kRing,
                                         PlanChoice::kDoubleTree, PlanChoice::kHierarchical, PlanChoice::kServer,
                                         PlanChoice::kSharded};
const char* to_string(PlanChoice choice);  // "auto", "direct", ...
Result<PlanChoice> plan_choice_of(std::string_view name);
std::optional<paraexpress::Plan> plan_of(PlanChoice choice);
Result<int> helpers_of(std::string_view count);

struct ParaexpressOptions {
  PlanChoice plan = PlanChoice::kAuto;
  std::string regions_path{};  // empty: all ranks are in one region
  std::string regions{};       // the text of that file
  int helpers = 0;
  std::string helpers_root{};  // HOST:PORT of rank 0, where ranks and helpers meet
};

// Reads the region map, if there is to be one. Whether map and plan suit so many ranks: errors say what is allowed.
Result<void> complete(ParaexpressOptions& options, int ranks);

}  // namespace clustar::bench::trainer
