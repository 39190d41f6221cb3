#include "bench/doctor/dpdk_facts.h"

#include <linux/capability.h>
#include <linux/if_ether.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "transport/base/config.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/own_folder.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/huge_pages.h"
#include "transport/io/dpdk/settings.h"
#include "transport/module.h"
#include "transport/transport_tables.h"

namespace clustar::bench::doctor {
namespace {

namespace fs = std::filesystem;

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

const std::vector<transport::io::dpdk::DeviceSpec> kNone;

// Attaching wants CAP_NET_ADMIN; loading wants CAP_BPF, which older kernels had in CAP_SYS_ADMIN.
bool may_load_xdp() {
  std::ifstream status("/proc/self/status");
  std::uint64_t effective = 0;
  for (std::string word; status >> word;) {
    if (word == "CapEff:") status >> std::hex >> effective;
  }
  const auto has = [&](unsigned capability) { return (effective >> capability & 1) != 0; };
  return has(CAP_NET_ADMIN) && (has(CAP_BPF) || has(CAP_SYS_ADMIN));
}

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
  } else {
    facts.settings_error = config.error().message;
  }
  facts.free_huge_mb = transport::io::dpdk::free_huge_pages_mb();
  facts.has_iommu = !is_empty("/sys/class/iommu");
  std::error_code ignored;
  facts.has_vfio = fs::exists("/sys/bus/pci/drivers/vfio-pci", ignored);
  facts.unsafe_vfio = first_word("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode") == "Y";
  const FileDescriptor packets(::socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL)));
  facts.raw_sockets = packets.fd() >= 0;
  facts.may_load_xdp = facts.raw_sockets && may_load_xdp();
  facts.ports = pci_ports("/sys", "/dev");
  for (const auto& device : transport::io::dpdk::parse_devices(facts.devices).value_or(kNone)) {
    const std::string name = device.argument("iface").value_or("");
    if (const auto found = transport::io::dpdk::kernel_interface(name)) facts.interfaces[name] = *found;
  }
  return facts;
}

}  // namespace clustar::bench::doctor
