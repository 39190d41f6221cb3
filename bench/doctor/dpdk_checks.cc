#include "bench/doctor/dpdk_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "bench/doctor/dpdk_virtual.h"
#include "transport/io/dpdk/core/device_spec.h"

namespace clustar::bench::doctor {
namespace {

using transport::io::dpdk::DeviceSpec;

// Drivers that DPDK works beside: the NIC stays the kernel's, too.
constexpr std::array<std::string_view, 3> kShared{"mlx4_core", "mlx5_core", "mana"};

std::string full_address(const std::string& name) { return name.size() == 7 ? "0000:" + name : name; }

std::string how_to_bind(const PciPort& port) {
  const std::string folder = "/sys/bus/pci/devices/" + port.address;
  std::string fix = "modprobe vfio-pci";
  if (!port.interface.empty()) fix += fmt::format("; ip link set {} down", port.interface);
  fix += fmt::format("; echo vfio-pci > {}/driver_override", folder);
  if (!port.driver.empty()) fix += fmt::format("; echo {} > {}/driver/unbind", port.address, folder);
  return fix + fmt::format("; echo {} > /sys/bus/pci/drivers_probe", port.address);
}

Check check_module(const DpdkFacts& facts) {
  if (!facts.module) {
    return failed("module", "libclustar-dpdk.so, which CLUSTAR_IO=dpdk needs, is not beside the plugin",
                  "install it; a build of your own needs: apt install libdpdk-dev");
  }
  if (!*facts.module) return failed("module", facts.why, "apt install dpdk, whose libraries it needs (DPDK 22.11)");
  return ok("module", "libclustar-dpdk.so and DPDK's libraries can be opened");
}

Check check_huge_pages(const DpdkFacts& facts, bool needed) {
  const std::string found = fmt::format("{} MiB free, {} wanted", facts.free_huge_mb, facts.wanted_mb);
  const std::string fix = fmt::format("echo {} > /proc/sys/vm/nr_hugepages", (facts.wanted_mb + 1) / 2);
  if (facts.huge_pages == "no") {
    return ok("huge pages", needed ? found + "; CLUSTAR_DPDK_HUGE_PAGES=no: ordinary ones serve, and cost speed"
                                   : "not used: CLUSTAR_DPDK_HUGE_PAGES=no");
  }
  if (facts.free_huge_mb >= facts.wanted_mb) return ok("huge pages", found);
  if (facts.huge_pages == "yes") return failed("huge pages", found, fix);
  if (needed) return warning("huge pages", found + ": ordinary pages serve, and cost speed", fix);
  return ok("huge pages", found + ": virtual devices do without");
}

Check check_vfio(const DpdkFacts& facts) {
  if (!facts.has_vfio) return failed("vfio", "the driver vfio-pci is not loaded", "modprobe vfio-pci");
  if (facts.has_iommu) return ok("vfio", "the driver vfio-pci is loaded, and there is an IOMMU");
  if (facts.unsafe_vfio) {
    return warning("vfio", "there is no IOMMU, and vfio may do without: a NIC reaches all memory",
                   "an IOMMU: intel_iommu=on or amd_iommu=on for the kernel, and on in the firmware");
  }
  return failed(
      "vfio", "there is no IOMMU",
      "intel_iommu=on or amd_iommu=on for the kernel; in a virtual machine without one, and only there: echo 1 "
      "> /sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
}

Check check_port(const DpdkFacts& facts, const DeviceSpec& spec) {
  const std::string address = full_address(spec.name);
  const auto found = std::ranges::find(facts.ports, address, &PciPort::address);
  if (found == facts.ports.end()) {
    return failed(address, "there is no network controller at this place", "lspci -D lists them");
  }
  const PciPort& port = *found;
  if (std::ranges::find(kShared, port.driver) != kShared.end()) {
    return ok(address, fmt::format("its driver {} stays the kernel's, and DPDK works beside it", port.driver));
  }
  if (port.driver != "vfio-pci") {
    const std::string up = port.is_up ? ", which is up: bind only what this host is not reached by" : "";
    const std::string whose = port.driver.empty()
                                  ? "no driver has it"
                                  : fmt::format("the kernel's driver {} has it{}{}", port.driver,
                                                port.interface.empty() ? "" : " as " + port.interface, up);
    return failed(address, whose, how_to_bind(port));
  }
  if (!port.group_opens) {
    return failed(address, fmt::format("bound to vfio-pci; this user may not open {}", port.group_file),
                  fmt::format("chown $USER {}", port.group_file));
  }
  return ok(address, "bound to vfio-pci, and this user may open it");
}

// Control connections are TCP of the kernel's.
Check check_control(const DpdkFacts& facts, const std::vector<DeviceSpec>& specs) {
  const auto is_apart = [&](const DeviceSpec& spec) {
    return spec.subnet && !facts.kernel_has.contains(spec.subnet->address);
  };
  if (!facts.control_interfaces.empty()) {
    return ok("control", "connections of CLUSTAR_CONTROL_IFNAME=" + facts.control_interfaces);
  }
  const auto apart = std::ranges::find_if(specs, is_apart);
  if (apart == specs.end()) return ok("control", "connections go by the device's own address");
  return failed("control",
                fmt::format("the kernel does not have the address of {}, which control connections need", apart->name),
                "CLUSTAR_CONTROL_IFNAME=eth0, another interface, on all ranks");
}

// The first of two net_af_xdp ports on one interface has it.
const DeviceSpec* twin_of(const DeviceSpec& spec, const std::vector<DeviceSpec>& specs) {
  for (const DeviceSpec& one : specs) {
    if (one.name == spec.name) return nullptr;
    const bool xdp = one.driver() == "net_af_xdp" && spec.driver() == "net_af_xdp";
    if (xdp && one.argument("iface") == spec.argument("iface")) return &one;
  }
  return nullptr;
}

Check check_device(const DpdkFacts& facts, const DeviceSpec& spec, const std::vector<DeviceSpec>& all) {
  if (spec.pci) return check_port(facts, spec);
  if (const DeviceSpec* const twin = twin_of(spec, all)) {
    return failed(spec.name, fmt::format("{} is on the same interface", twin->name),
                  "one net_af_xdp device on each interface, or net_af_packet");
  }
  return check_virtual(facts, spec);
}

}  // namespace

std::vector<Check> dpdk_checks(const DpdkFacts& facts) {
  std::vector<Check> checks{check_module(facts)};
  if (!facts.settings_error.empty()) {
    checks.push_back(failed("settings", facts.settings_error, "what the sentence says"));
    return checks;
  }
  if (facts.devices.empty()) {
    checks.push_back(warning("devices", "CLUSTAR_DPDK_DEVICES names none",
                             "CLUSTAR_DPDK_DEVICES=0000:65:00.0@10.0.0.1/24, or net_af_packet0,iface=eth1"));
  }
  const auto specs = transport::io::dpdk::parse_devices(facts.devices);
  if (!facts.devices.empty() && !specs) {
    checks.push_back(failed("devices", "CLUSTAR_DPDK_DEVICES: " + specs.error().message, "what the sentence allows"));
  }
  const std::vector<DeviceSpec> named = specs.value_or(std::vector<DeviceSpec>());
  const auto takes_vfio = [&](const DeviceSpec& spec) {
    const auto port = std::ranges::find(facts.ports, full_address(spec.name), &PciPort::address);
    return spec.pci && (port == facts.ports.end() || std::ranges::find(kShared, port->driver) == kShared.end());
  };
  checks.push_back(check_huge_pages(facts, std::ranges::any_of(named, &DeviceSpec::pci)));
  if (std::ranges::any_of(named, takes_vfio)) checks.push_back(check_vfio(facts));
  for (const DeviceSpec& spec : named) {
    checks.push_back(check_device(facts, spec, named));
  }
  if (!named.empty()) {
    checks.push_back(check_control(facts, named));
    return checks;
  }
  for (const PciPort& port : facts.ports) {
    checks.push_back(
        ok(port.address, fmt::format("a NIC that may be named; driver {}{}", port.driver.empty() ? "none" : port.driver,
                                     port.interface.empty() ? "" : ", interface " + port.interface)));
  }
  return checks;
}

std::string dpdk_text(const std::vector<Check>& checks) {
  return "Can CLUSTAR_IO=dpdk be used here?\n" + to_text(checks) + "\n" + counts(checks) + ".\n";
}

}  // namespace clustar::bench::doctor
