#include "bench/doctor/dpdk_facts.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "transport/base/config.h"
#include "transport/base/own_folder.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/huge_pages.h"
#include "transport/io/dpdk/kernel_side.h"
#include "transport/io/dpdk/settings.h"
#include "transport/module.h"
#include "transport/net/settings.h"
#include "transport/transport_tables.h"

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;
using namespace transport::io::dpdk;

std::string first_word(const fs::path& file) {
  std::string word;
  std::ifstream(file) >> word;
  return word;
}

// The last part of where a link points to; empty: there is none.
std::string target_of(const fs::path& link) {
  std::error_code error;
  const fs::path target = fs::read_symlink(link, error);
  return error ? std::string() : target.filename().string();
}

PciPort port_of(const fs::path& folder, const std::string& dev) {
  PciPort port{.address = folder.filename().string(), .driver = target_of(folder / "driver")};
  port.vendor = first_word(folder / "vendor");
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "net", ignored)) {
    port.interface = entry.path().filename().string();
    port.is_up = first_word(entry.path() / "operstate") == "up";
  }
  const std::string group = target_of(folder / "iommu_group");
  port.has_group = !group.empty();
  if (port.driver == "vfio-pci" && port.has_group) {
    // Without an IOMMU the kernel names it so.
    const std::string plain = dev + "/vfio/" + group;
    port.group_file = fs::exists(plain, ignored) ? plain : dev + "/vfio/noiommu-" + group;
    port.group_opens = ::access(port.group_file.c_str(), R_OK | W_OK) == 0;
  }
  return port;
}

bool is_empty(const std::string& folder) {
  std::error_code ignored;
  const fs::directory_iterator entries(folder, ignored);
  return entries == fs::directory_iterator();
}

void ask_module(DpdkFacts& facts) {
  const std::string library = installed_library("libclustar-dpdk.so");
  std::error_code ignored;
  if (library.empty() || !fs::exists(library, ignored)) return;
  const auto module = transport::Module::open(fs::path(library).parent_path().string(), "dpdk");
  facts.module = module.has_value();
  if (!module) facts.why = module.error().message;
}

const std::vector<DeviceSpec> kNone;

}  // namespace

std::vector<PciPort> pci_ports(const std::string& sysfs, const std::string& dev) {
  std::vector<PciPort> ports;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(sysfs + "/bus/pci/devices", ignored)) {
    // Class 0x02: network controllers.
    if (first_word(entry.path() / "class").starts_with("0x02")) ports.push_back(port_of(entry.path(), dev));
  }
  std::ranges::sort(ports, {}, &PciPort::address);
  return ports;
}

DpdkFacts dpdk_facts_here() {
  DpdkFacts facts;
  ask_module(facts);
  const auto tables = transport::setting_tables();
  if (const auto config = Config::load(tables)) {
    const auto settings = config->get<DpdkSettings>();
    facts.devices = settings.devices;
    facts.wanted_mb = settings.memory_mb;
    facts.huge_pages = settings.huge_pages;
    facts.queues = settings.queues;
    facts.xdp_memory = std::size_t{4096} * buffers_of_xdp_port(settings.queues, settings.descriptors, settings.held);
    facts.control_interfaces = config->get<NetworkSettings>().control_interfaces;
  } else {
    facts.settings_error = config.error().message;
  }
  facts.free_huge_mb = transport::io::dpdk::free_huge_pages_mb();
  facts.has_iommu = !is_empty("/sys/class/iommu");
  std::error_code ignored;
  facts.has_vfio = fs::exists("/sys/bus/pci/drivers/vfio-pci", ignored);
  facts.unsafe_vfio = first_word("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y";
  facts.rights = dpdk_rights_here(facts.xdp_memory);
  facts.ports = pci_ports("/sys", "/dev");
  for (const auto& device : parse_devices(facts.devices).value_or(kNone)) {
    if (device.subnet && kernel_has(device.subnet->address)) facts.kernel_has.insert(device.subnet->address);
    const std::string name = device.argument("iface").value_or("");
    if (const auto found = kernel_interface(name)) facts.interfaces[name] = *found;
  }
  return facts;
}

}  // namespace clustar::bench::doctor
