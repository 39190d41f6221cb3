// The plans: each builds a forest from a group.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "paraexpress/core/forest.h"
#include "paraexpress/core/group.h"

namespace clustar::paraexpress {

enum class Plan : std::uint8_t {
  kDirect,        // every rank the root of a shard, all others its children
  kSharded,       // as direct, with helpers as roots too, in BytePS's shares
  kServer,        // one root of all: the first helper, or the first rank
  kRing,          // every rank the root of a shard, the others a chain
  kDoubleTree,    // two halves, two binary trees, no rank is an inner node of both
  kHierarchical,  // as direct, but the other regions' ranks are added up by one of theirs first
};
inline constexpr std::array kPlans{Plan::kDirect, Plan::kSharded,    Plan::kServer,
                                   Plan::kRing,   Plan::kDoubleTree, Plan::kHierarchical};

const char* to_string(Plan plan);
std::optional<Plan> plan_of(std::string_view name);

// False of plans that would be another one: sharded without helpers, hierarchical with one region.
bool makes_sense(Plan plan, const Group& group);
Forest build(Plan plan, const Group& group);

}  // namespace clustar::paraexpress
