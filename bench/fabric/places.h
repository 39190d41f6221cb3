// Where a rule applies: ports of switches by the names of their nodes. Values only; touches no kernel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/fabric/spec.h"
#include "bench/fabric/topology.h"
#include "transport/base/result.h"

namespace clustar::bench::fabric {

// The name of one port, as SwitchRules::ports has it: "h3", the switch's port towards that host; "leaf0:spine1", that
// of leaf0 towards spine1.
std::string port_place(const std::string& node, const std::string& peer);
std::string port_place(const SwitchPort& port);

// The ports that a place names, in the topology's order. "": all; "h3" or "3": the one towards the host;
// "leaf0:spine1": one; "leaf0-spine1": both of that link; "spine1": all of that switch and those of others towards it.
// kInvalidArgument naming what is allowed.
Result<std::vector<SwitchPort>> ports_at(const Topology& topology, const std::string& place);

// Lets `edit` change the rules of each port at `place`, one after another. `spec` is checked(); what `edit` makes of it
// is for checked() to judge. kInvalidArgument: the place; or what `edit` returns; `spec` may have changed in part.
Result<void> edit_rules(FabricSpec& spec, const std::string& place,
                        const std::function<Result<void>(PortRules&)>& edit);

// In the one form that equal rules have: `all` holds nothing, and `ports` those with rules of their own.
// kInvalidArgument naming the port and what is allowed.
Result<SwitchRules> checked(const SwitchRules& rules, const Topology& topology);

}  // namespace clustar::bench::fabric
