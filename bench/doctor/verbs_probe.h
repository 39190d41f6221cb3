// What libibverbs says of an RDMA device. It is asked through libclustar-verbs.so, so that the doctor also runs where
// the library is what is missing.
#pragma once

#include <string>

#include "gdr/core/tiers.h"

namespace clustar::bench::doctor {

gdr::NicFacts ask_verbs(const std::string& rdma_device);

}  // namespace clustar::bench::doctor
