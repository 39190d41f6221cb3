// What NCCL's decision about GPUDirect RDMA does not look at, and what comes of it.
#pragma once

#include <vector>

#include "gdr/core/tiers.h"

namespace clustar::gdr {

// Nothing above the device but emulated bridges: a virtual machine's usual picture.
bool hides_switches(const Machine& machine, const PciDevice& device);

std::vector<Note> notes(const Machine& machine, const Gpu& gpu, const Nic& nic, const Facts& facts);

}  // namespace clustar::gdr
