// Changes of a fabric that is up, without making it again: packets go on passing meanwhile. Needs root.
#pragma once

#include <functional>
#include <string>

#include "bench/fabric/spec.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// Lets `edit` change the rules of each port at `place` (see places.h; "": of every port), one after another.
// kUnavailable when the fabric is not there, not whole, or has no switch program; kInvalidArgument: the place, or what
// `edit` made of the rules. After an error every port has the rules from before, or the error names it. In order with
// `up`, `down` and other changes. Returns the spec as it is now.
Result<FabricSpec> change_rules(const std::string& fabric, const std::string& place,
                                const std::function<Result<void>(PortRules&)>& edit);

// The switch program's counters, at every port.
Result<void> reset_counters(const std::string& fabric);

}  // namespace clustar::bench::fabric
