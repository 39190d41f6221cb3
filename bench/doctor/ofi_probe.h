// What libfabric says of this machine. It is asked through libclustar-ofi.so, so that the doctor also runs where the
// library is what is missing.
#pragma once

#include <string>

#include "bench/doctor/nccl_facts.h"

namespace clustar::bench::doctor {

// `forced`: CLUSTAR_OFI_PROVIDER, or empty. `progress`: CLUSTAR_OFI_PROGRESS. `no_rdma`: the variable that forbids RDMA
// NICs, or empty.
OfiFacts ask_libfabric(const std::string& forced, const std::string& progress, const std::string& no_rdma);

}  // namespace clustar::bench::doctor
