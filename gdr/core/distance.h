// How far a NIC is from a GPU, by NCCL's rules (2.28.9), because NCCL decides by them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gdr/core/machine.h"

namespace clustar::gdr {

// NCCL's names and order, nearest first; a level is compared by this order. NVL and NVB are
// between GPUs; PXN is by way of another GPU, whose own distance then counts. No pair is given them here, but a level
// may be set to them.
enum class Distance : std::uint8_t { kLoc, kNvl, kNvb, kC2c, kPix, kPxb, kP2c, kPxn, kPhb, kSys, kUnknown };

const char* to_string(Distance distance);
// In words: "one PCIe switch between them".
const char* meaning(Distance distance);
// kUnknown: the NIC is no PCI device. NCCL hangs it on the first CPU, so it is PHB or SYS, and counts as SYS here.
// `c2c`: the GPU is joined to its CPU by NVLink-C2C.
Distance distance(const Machine& machine, const PciDevice& gpu, const PciDevice& nic, bool c2c);

// The switches above a device, the nearest first, as NCCL counts them: a PCIe switch shows as an upstream and a
// downstream bridge, of which NCCL takes the upstream one; root ports do not count; some Broadcom switches show as two
// and count as one.
std::vector<std::string> switches_above(const Machine& machine, const PciDevice& device);

// The node that NCCL hangs it on: that of the highest switch above, otherwise the device's own.
int cpu_of(const Machine& machine, const PciDevice& device);

// Bridges that traffic between the two passes without going up to the root complex; empty where it does go there.
std::vector<std::string> bridges_between(const Machine& machine, const PciDevice& gpu, const PciDevice& nic);

}  // namespace clustar::gdr
