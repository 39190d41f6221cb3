// What libibverbs says of an RDMA device, where this build has it.
#pragma once

#include <string>

#include "gdr/core/tiers.h"

namespace clustar::bench::doctor {

gdr::NicFacts ask_verbs(const std::string& rdma_device);

}  // namespace clustar::bench::doctor
