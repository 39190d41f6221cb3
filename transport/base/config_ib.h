// The settings of RDMA NICs, and of what runs over them.
#pragma once

#include <vector>

#include "transport/base/config_keys.h"

namespace clustar::config_keys {

std::vector<Key> ib_keys();

}  // namespace clustar::config_keys
