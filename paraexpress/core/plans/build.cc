#include "paraexpress/core/plans/build.h"

#include "paraexpress/core/plans/builders.h"

namespace clustar::paraexpress {

const char* to_string(Plan plan) {
  switch (plan) {
    case Plan::kDirect: return "direct";
    case Plan::kSharded: return "sharded";
    case Plan::kServer: return "server";
    case Plan::kRing: return "ring";
    case Plan::kDoubleTree: return "double-tree";
    case Plan::kHierarchical: return "hierarchical";
  }
  return "?";
}

std::optional<Plan> plan_of(std::string_view name) {
  for (const Plan plan : kPlans) {
    if (name == to_string(plan)) return plan;
  }
  return {};
}

bool makes_sense(Plan plan, const Group& group) {
  if (plan == Plan::kSharded) return group.helpers > 0 && group.ranks > 1;
  if (plan == Plan::kHierarchical) return regions_with_ranks(group).size() > 1;
  return true;
}

Forest build(Plan plan, const Group& group) {
  switch (plan) {
    case Plan::kDirect: return direct(group);
    case Plan::kSharded: return sharded(group);
    case Plan::kServer: return server(group);
    case Plan::kRing: return ring(group);
    case Plan::kDoubleTree: return double_tree(group);
    case Plan::kHierarchical: return hierarchical(group);
  }
  return {};
}

}  // namespace clustar::paraexpress
