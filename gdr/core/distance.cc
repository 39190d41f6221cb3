#include "gdr/core/distance.h"

#include <algorithm>

namespace clustar::gdr {
namespace {

constexpr const char* kDistanceNames[] = {"LOC", "NVL", "NVB", "C2C", "PIX",    "PXB",
                                          "P2C", "PXN", "PHB", "SYS", "unknown"};

std::uint64_t packed(const PciIds& ids) {
  return std::uint64_t{ids.vendor} << 48 | std::uint64_t{ids.device} << 32 | std::uint64_t{ids.subsystem_vendor} << 16 |
         ids.subsystem_device;
}

// Broadcom's PEX switches of generations 4 and 5 show as two levels. 0: another bridge.
int broadcom_generation(const PciIds& ids, std::uint64_t level) {
  const std::uint64_t family = packed(ids) & ~std::uint64_t{0xfff};
  if (family == 0x1000c0101000a000) return 4;
  if (family == (0x1000c03010000000 | level << 12)) return 5;
  return 0;
}

PciIds ids_of(const Machine& machine, const std::string& address) {
  const auto bridge = machine.bridges.find(address);
  return bridge == machine.bridges.end() ? PciIds{} : bridge->second.ids;
}

// `highest_first` without the lower half of each such switch. A switch takes in one level only.
std::vector<std::string> without_halves(const Machine& machine, const std::vector<std::string>& highest_first) {
  std::vector<std::string> kept;
  bool may_take_in = false;
  for (const std::string& address : highest_first) {
    const PciIds ids = ids_of(machine, address);
    const int generation = may_take_in ? broadcom_generation(ids_of(machine, kept.back()), 0) : 0;
    if (generation != 0 && broadcom_generation(ids, 1) == generation) {
      may_take_in = false;
      continue;
    }
    kept.push_back(address);
    may_take_in = true;
  }
  return kept;
}

}  // namespace

const char* to_string(Distance distance) { return kDistanceNames[static_cast<std::size_t>(distance)]; }

const char* meaning(Distance distance) {
  switch (distance) {
    case Distance::kLoc: return "one device";
    case Distance::kNvl: return "NVLink";
    case Distance::kNvb: return "NVLink by way of another GPU";
    case Distance::kC2c: return "NVLink-C2C to the CPU";
    case Distance::kPix: return "one PCIe switch between them";
    case Distance::kPxb: return "several PCIe switches between them";
    case Distance::kP2c: return "NVLink-C2C to the CPU, and PCIe from there to the NIC";
    case Distance::kPxn: return "by way of another GPU";
    case Distance::kPhb: return "by way of the CPU's host bridge, on one NUMA node";
    case Distance::kSys: return "by way of the link between NUMA nodes";
    case Distance::kUnknown: return "the NIC is no PCI device";
  }
  return "?";
}

std::vector<std::string> switches_above(const Machine& machine, const PciDevice& device) {
  // NCCL goes up two steps at a time, and what has no bridge above it any more hangs on the CPU.
  std::vector<std::string> above;
  for (std::size_t i = device.bridges.size(); i >= 2; i -= 2) above.push_back(device.bridges[i - 2]);
  std::reverse(above.begin(), above.end());
  above = without_halves(machine, above);
  std::reverse(above.begin(), above.end());
  return above;
}

int cpu_of(const Machine& machine, const PciDevice& device) {
  const auto above = switches_above(machine, device);
  if (above.empty()) return device.numa_node;
  const auto highest = machine.bridges.find(above.back());
  return highest == machine.bridges.end() ? device.numa_node : highest->second.numa_node;
}

Distance distance(const Machine& machine, const PciDevice& gpu, const PciDevice& nic, bool c2c) {
  if (gpu.address.empty() || nic.address.empty()) return Distance::kUnknown;
  if (gpu.address == nic.address) return Distance::kLoc;
  const auto above_gpu = switches_above(machine, gpu);
  const auto above_nic = switches_above(machine, nic);
  for (std::size_t g = 0; g < above_gpu.size(); ++g) {
    const auto common = std::find(above_nic.begin(), above_nic.end(), above_gpu[g]);
    if (common == above_nic.end()) continue;
    return g == 0 && common == above_nic.begin() ? Distance::kPix : Distance::kPxb;
  }
  if (cpu_of(machine, gpu) != cpu_of(machine, nic)) return Distance::kSys;
  return c2c ? Distance::kP2c : Distance::kPhb;
}

std::vector<std::string> bridges_between(const Machine& machine, const PciDevice& gpu, const PciDevice& nic) {
  const Distance between = distance(machine, gpu, nic, false);
  if (between != Distance::kPix && between != Distance::kPxb) return {};
  const std::size_t shorter = std::min(gpu.bridges.size(), nic.bridges.size());
  std::size_t common = 0;
  while (common < shorter && gpu.bridges[common] == nic.bridges[common]) ++common;
  std::vector<std::string> bridges(gpu.bridges.begin() + static_cast<std::ptrdiff_t>(common), gpu.bridges.end());
  bridges.insert(bridges.end(), nic.bridges.begin() + static_cast<std::ptrdiff_t>(common), nic.bridges.end());
  return bridges;
}

}  // namespace clustar::gdr
