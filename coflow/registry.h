// Policies by name, as commands and settings take them: name[:key=value[,key=value]...], e.g. dclas:factor=8,local=1.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coflow/core/scheduler.h"
#include "transport/base/result.h"

namespace clustar::coflow {

struct Policy {
  std::string spec;              // as it was asked for
  bool needs_deadlines = false;  // otherwise it does nothing
  std::function<std::unique_ptr<Scheduler>(const Table& table)> make;
};

struct PolicyInfo {
  std::string_view name;
  std::string_view what;
  std::string_view keys;  // with their defaults; "" if it takes none
};
const std::vector<PolicyInfo>& policies();

struct PolicyDefaults {
  double full_below = 0;  // MaddOptions::full_below, and DARK's
};

// Errors name what is allowed.
Result<Policy> find_policy(std::string_view spec, const PolicyDefaults& defaults = {});

}  // namespace clustar::coflow
