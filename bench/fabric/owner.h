// Whose fabric it is: root makes all of them, but on behalf of somebody. Two users who choose the same name must not
// remove each other's.
#pragma once

#include <sys/types.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

struct Owner {
  uid_t uid = 0;
  std::string name;
};

// The user who asked sudo for this process, otherwise the user who runs it.
Owner caller();

nlohmann::json to_json(const Owner& owner);
// Nothing in the state of a version that did not say it.
std::optional<Owner> owner_from_json(const nlohmann::json& state);

// Of the fabric's state file; nothing where there is none.
std::optional<Owner> owner_of(const std::string& fabric);
// kInvalidUsage, with the way out, where somebody else made the fabric. Under the lock.
Result<void> check_owner(const std::string& fabric);

}  // namespace clustar::bench::fabric
