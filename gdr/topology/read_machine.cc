#include "gdr/topology/read_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>

#include "gdr/topology/pci.h"
#include "gdr/topology/small_file.h"

namespace clustar::gdr {
namespace {

constexpr std::uint16_t kNvidia = 0x10de;
constexpr std::uint32_t kDisplay = 0x03;  // base class

class Reader {
 public:
  explicit Reader(const Roots& roots) : roots_(roots) {}

  Machine read() {
    read_gpus();
    read_rdma_nics();
    read_other_nics();
    read_bridges();
    read_system();
    const auto place = [](const PciDevice& device) { return std::make_tuple(device.address.empty(), device.address); };
    std::sort(machine_.gpus.begin(), machine_.gpus.end(),
              [&](const Gpu& a, const Gpu& b) { return place(a.pci) < place(b.pci); });
    std::stable_sort(machine_.nics.begin(), machine_.nics.end(),
                     [&](const Nic& a, const Nic& b) { return place(a.pci) < place(b.pci); });
    return std::move(machine_);
  }

 private:
  void problem(std::string text) { machine_.problems.push_back(std::move(text)); }

  // Names in a folder of sysfs; none, and a word about it if it should be there, when it cannot be listed.
  std::vector<std::string> list(const std::string& folder, bool expected) {
    const auto names = names_in(roots_.sysfs + folder);
    if (names) return *names;
    if (expected || is_there(roots_.sysfs + folder)) problem(names.error().message);
    return {};
  }

  void read_gpus() {
    const std::string devices = "/bus/pci/devices";
    const std::size_t before = machine_.problems.size();
    for (const std::string& name : list(devices, false)) {
      if (!is_pci_address(name)) continue;
      const auto path = real_path(roots_.sysfs + devices + "/" + name);
      if (!path) {
        problem(path.error().message);
        continue;
      }
      const auto device = read_pci_device(*path);
      if (!device) {
        problem(device.error().message);
        continue;
      }
      if (device->ids.vendor == kNvidia && device->class_code >> 16 == kDisplay) machine_.gpus.push_back({*device});
    }
    machine_.gpus_certain = machine_.problems.size() == before;
  }

  // The PCI device that `link` leads to, as NCCL asks: its subsystem must be pci.
  void read_nic_device(const std::string& link, Nic& nic) {
    if (!is_there(link)) {
      nic.no_pci = is_link(link) ? "its link `device` leads nowhere" : "it has no device in sysfs, so it is virtual";
      return;
    }
    const auto path = real_path(link);
    if (!path) {
      nic.no_pci = path.error().message;
      return;
    }
    const auto subsystem = real_path(*path + "/subsystem");
    const std::string kind = subsystem ? printable(subsystem->substr(subsystem->rfind('/') + 1)) : "unknown";
    if (kind != "pci" || !is_pci_address(std::string_view(*path).substr(path->rfind('/') + 1))) {
      nic.no_pci = fmt::format("its device is of the kind {}, not pci", kind);
      return;
    }
    auto device = read_pci_device(*path);
    if (!device) {
      nic.no_pci = device.error().message;
      return;
    }
    nic.pci = std::move(*device);
  }

  void read_rdma_nics() {
    for (const std::string& name : list("/class/infiniband", false)) {
      const std::string folder = roots_.sysfs + "/class/infiniband/" + name;
      if (!is_there(folder)) {
        problem(printable(folder) + ": the link leads nowhere");
        continue;
      }
      Nic nic{.name = printable(name), .rdma = true};
      read_nic_device(folder + "/device", nic);
      if (const auto interfaces = names_in(folder + "/device/net")) {
        for (const std::string& interface : *interfaces) {
          nic.interfaces.push_back(printable(interface));
          taken_.insert(interface);
        }
      }
      machine_.nics.push_back(std::move(nic));
    }
  }

  // Network interfaces that no RDMA device has. Without a device they are virtual (lo, bridges, veth) and no NIC.
  void read_other_nics() {
    for (const std::string& name : list("/class/net", false)) {
      const std::string device = roots_.sysfs + "/class/net/" + name + "/device";
      if (taken_.count(name) != 0 || !is_there(device)) continue;
      Nic nic{.name = printable(name), .rdma = false};
      read_nic_device(device, nic);
      nic.interfaces.push_back(nic.name);
      machine_.nics.push_back(std::move(nic));
    }
  }

  void read_bridges_above(const PciDevice& device) {
    std::string path = device.path;
    for (auto address = device.bridges.rbegin(); address != device.bridges.rend(); ++address) {
      path.resize(path.rfind('/'));
      if (machine_.bridges.count(*address) == 0) machine_.bridges[*address] = read_bridge(path);
    }
  }

  void read_bridges() {
    for (const Gpu& gpu : machine_.gpus) read_bridges_above(gpu.pci);
    for (const Nic& nic : machine_.nics) read_bridges_above(nic.pci);
  }

  void read_system() {
    System& system = machine_.system;
    system.driver_version = first_line(roots_.sysfs + "/module/nvidia/version");
    system.peermem = peermem_file(roots_.sysfs);
    system.gdrcopy_module = is_there(roots_.sysfs + "/module/gdrdrv") ? Known::kYes : Known::kNo;
    if (roots_.procfs.empty()) return;
    system.kernel_release = first_line(roots_.procfs + "/sys/kernel/osrelease");
    const std::string version = first_line(roots_.procfs + "/driver/nvidia/version");
    if (version.empty()) return;
    system.open_modules = version.find("Open Kernel Module") != std::string::npos ? Known::kYes : Known::kNo;
    system.open_evidence = "/proc/driver/nvidia/version: " + version;
  }

  const Roots& roots_;
  Machine machine_;
  std::set<std::string> taken_;  // interfaces of RDMA devices
};

}  // namespace

std::string peermem_file(const std::string& sysfs) {
  for (const char* file : {"/kernel/mm/memory_peers/nv_mem/version", "/kernel/mm/memory_peers/nv_mem_nc/version",
                           "/module/nvidia_peermem/version"}) {
    if (is_there(sysfs + file)) return sysfs + file;
  }
  return {};
}

Machine read_machine(const Roots& roots) { return Reader(roots).read(); }

}  // namespace clustar::gdr
