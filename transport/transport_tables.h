// The settings of all transports, whether their modules are here or not, and what contradicts between them.
#pragma once

#include <string>

#include "transport/base/config.h"

namespace clustar::transport {

Config::Tables setting_tables();

// No transport but mlt may be chosen.
bool is_only_mlt(const Config& config);
// Something that has to be had, otherwise nothing: a transport, protection, faults, staged GPU memory.
bool asks_for_something(const Config& config);
// Name of the variable that disabled RDMA NICs, for a person.
std::string ib_disabled_by(const Config& config);
// What of several settings together cannot be.
Result<void> check(const Config& config);

}  // namespace clustar::transport
