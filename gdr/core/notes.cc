#include "gdr/core/notes.h"

#include <fmt/format.h>

#include <algorithm>

namespace clustar::gdr {
namespace {

constexpr std::uint16_t kRedHat = 0x1b36;  // QEMU's root ports

void add_acs(const Machine& machine, const Gpu& gpu, const Nic& nic, std::vector<Note>& notes) {
  std::string redirecting;
  std::string commands;
  std::string hidden;
  std::string unknown;
  std::string looks;
  for (const std::string& address : bridges_between(machine, gpu.pci, nic.pci)) {
    const auto bridge = machine.bridges.find(address);
    if (bridge == machine.bridges.end()) continue;
    const char* const comma = ", ";
    if (bridge->second.redirects == Known::kYes) {
      redirecting += fmt::format("{}{} (ACS control {:#06x})", redirecting.empty() ? "" : comma, address,
                                 bridge->second.acs_control);
      commands += fmt::format("setpci -s {} ECAP_ACS+6.w=0000; ", address);
    } else if (bridge->second.redirects == Known::kUnknown) {
      std::string& lines = bridge->second.acs_needs_root ? hidden : unknown;
      lines += fmt::format("{}{} ({})", lines.empty() ? "" : comma, address, bridge->second.acs_problem);
      if (!bridge->second.acs_needs_root)
        looks += fmt::format("{}`lspci -vv -s {}`", looks.empty() ? "" : comma, address);
    }
  }
  if (!redirecting.empty()) {
    notes.push_back(
        {.why = fmt::format("ACS sends what goes between GPU {} and {} up to the CPU, though NCCL counts their "
                            "switch as near: {}",
                            gpu.pci.address, nic.name, redirecting),
         .fix = commands + "until the next boot, for good in the BIOS; where virtual machines need ACS, use ATS"});
  }
  const auto add_unknown = [&](const std::string& evidence, const std::string& fix) {
    if (evidence.empty()) return;
    notes.push_back(
        {.why = fmt::format("whether ACS sends what goes between GPU {} and {} up to the CPU is unknown: {}",
                            gpu.pci.address, nic.name, evidence),
         .fix = fix});
  };
  add_unknown(hidden, "run this as root");
  add_unknown(unknown, fmt::format("see what {} says of it, and the kernel's log", looks));
}

void add_iommu(const PciDevice& device, const std::string& name, std::vector<Note>& notes) {
  if (device.iommu != Iommu::kTranslates) return;
  notes.push_back(
      {.why = fmt::format("the IOMMU translates the DMA of {} (iommu_group {}), so what goes to its neighbours "
                          "may be slow or refused",
                          name, device.iommu_type),
       .fix = "kernel parameter iommu=pt; in a virtual machine as its host says"});
}

}  // namespace

bool hides_switches(const Machine& machine, const PciDevice& device) {
  if (device.address.empty()) return false;
  return std::all_of(device.bridges.begin(), device.bridges.end(), [&](const std::string& address) {
    const auto bridge = machine.bridges.find(address);
    return bridge != machine.bridges.end() && bridge->second.ids.vendor == kRedHat;
  });
}

std::vector<Note> notes(const Machine& machine, const Gpu& gpu, const Nic& nic, const Facts& facts) {
  std::vector<Note> all;
  add_acs(machine, gpu, nic, all);
  add_iommu(gpu.pci, "GPU " + gpu.pci.address, all);
  add_iommu(nic.pci, nic.name, all);
  const Settings& settings = facts.settings;
  if (settings.gdr_level && !parse_level(*settings.gdr_level)) {
    const char* const what = level_overflows(*settings.gdr_level)
                                 ? "overflows NCCL's number, and what NCCL then takes it for is undefined"
                                 : "is no level, so NCCL ignores it";
    all.push_back({.why = fmt::format("NCCL_NET_GDR_LEVEL='{}' {}", *settings.gdr_level, what),
                   .fix = "LOC, PIX, PXB, P2C, PHB or SYS, in capitals"});
  }
  if (number_of(settings.gdrcopy_flush, 0) != 0) {
    if (number_of(settings.gdrcopy_enable, 0) != 1) {
      all.push_back({.why = "NCCL_GDRCOPY_FLUSH_ENABLE means nothing without NCCL_GDRCOPY_ENABLE=1",
                     .fix = "NCCL_GDRCOPY_ENABLE=1, or unset both"});
    } else if (!facts.x86) {
      all.push_back({.why = "NCCL flushes by gdrcopy on x86_64 only", .fix = "unset NCCL_GDRCOPY_FLUSH_ENABLE"});
    } else if (machine.system.gdrcopy_module != Known::kYes) {
      all.push_back(
          {.why =
               "NCCL_GDRCOPY_FLUSH_ENABLE is set, but gdrcopy's module is not loaded: /sys/module/gdrdrv is not there",
           .fix = "modprobe gdrdrv"});
    }
  }
  return all;
}

}  // namespace clustar::gdr
