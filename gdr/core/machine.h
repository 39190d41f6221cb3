// What a machine's sysfs says of GPUs, NICs and the PCIe bridges above them, as plain values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace clustar::gdr {

// What was asked may have no answer: not readable, not asked, another version.
enum class Known : std::uint8_t { kUnknown, kNo, kYes };

constexpr const char* to_string(Known known) {
  return known == Known::kYes ? "yes" : known == Known::kNo ? "no" : "unknown";
}

struct PciIds {
  std::uint16_t vendor = 0;
  std::uint16_t device = 0;
  std::uint16_t subsystem_vendor = 0;
  std::uint16_t subsystem_device = 0;
};

// What the IOMMU does to a device's DMA.
enum class Iommu : std::uint8_t { kUnknown, kOff, kPassthrough, kTranslates };

struct PciDevice {
  std::string address{};  // 0000:1b:00.0; empty: not a PCI device
  std::string path{};     // in sysfs, without links
  // Bridges from the root port down to the one that the device is plugged into; empty: on the root bus.
  std::vector<std::string> bridges{};
  std::uint32_t class_code = 0;
  PciIds ids{};
  int numa_node = -1;  // -1: the firmware names none
  Iommu iommu = Iommu::kUnknown;
  std::string iommu_type{};  // as sysfs names it, "DMA-FQ"; with the group's number
};

// Access Control Services of a bridge: whether it sends traffic between its devices up to the root complex.
struct Bridge {
  PciIds ids{};
  int numa_node = -1;
  Known redirects = Known::kUnknown;
  std::uint16_t acs_control = 0;
  std::string acs_problem{};    // why `redirects` is unknown
  bool acs_needs_root = false;  // because the process may not read it
};

struct Gpu {
  PciDevice pci{};
};

struct Nic {
  std::string name{};  // of the RDMA device, otherwise of the network interface
  bool rdma = false;
  PciDevice pci{};
  std::string no_pci{};  // why there is no PCI device behind it
  std::vector<std::string> interfaces{};
};

// The kernel and its modules; an empty text is "not known", or "not there" where it says so.
struct System {
  std::string kernel_release{};  // 6.8.0-45-generic
  std::string driver_version{};  // of the module nvidia; empty: not loaded
  Known open_modules = Known::kUnknown;
  std::string open_evidence{};  // the line that says so
  std::string peermem{};        // the file that shows nvidia_peermem, or nv_peer_mem; empty: neither is loaded
  Known gdrcopy_module = Known::kUnknown;
};

struct Machine {
  std::vector<Gpu> gpus{};  // in the order of their addresses
  std::vector<Nic> nics{};  // the same; then those without one, by name
  std::map<std::string, Bridge> bridges{};
  System system{};
  std::vector<std::string> problems{};  // what could not be read, for a person
  bool gpus_certain = true;             // no PCI device that could not be read may be one
};

}  // namespace clustar::gdr
