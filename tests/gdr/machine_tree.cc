#include "tests/gdr/machine_tree.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <vector>

#include "tests/temp_path.h"

namespace clustar::tests {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

void link(const fs::path& to, const fs::path& from) {
  fs::create_directories(from.parent_path());
  fs::create_symlink(to, from);
}

std::string load32(std::uint32_t value) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

// Behind 256 bytes: error reporting (AER), then ACS with this control register.
std::string config(const std::string& acs) {
  if (acs == "hidden") return std::string(64, '\0');
  std::string bytes(4096, '\0');
  if (acs.empty()) return bytes;
  constexpr std::uint32_t kAcsAt = 0x148;
  const auto control = static_cast<std::uint32_t>(std::stoul(acs, nullptr, 16));
  bytes.replace(0x100, 4, load32(0x0001 | 2u << 16 | kAcsAt << 20));
  bytes.replace(kAcsAt, 4, load32(0x000d | 1u << 16));
  bytes.replace(kAcsAt + 4, 4, load32(0x005f | control << 16));
  return bytes;
}

void write_ids(const fs::path& folder, const std::string& ids, const std::string& prefix) {
  write(folder / (prefix + "vendor"), "0x" + ids.substr(0, 4) + "\n");
  write(folder / (prefix + "device"), "0x" + ids.substr(5) + "\n");
}

}  // namespace

fs::path machines_folder() { return CLUSTAR_MACHINES; }

MachineTree::MachineTree(const std::string& name) : root_(temp_path("machine_" + name)) {
  fs::remove_all(root_);
  fs::create_directories(sysfs());
  fs::create_directories(procfs());
  if (name.empty()) return;
  std::ifstream in(machines_folder() / (name + ".txt"));
  EXPECT_TRUE(in) << name;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line[0] != '#') add(line);
  }
}

MachineTree::~MachineTree() { fs::remove_all(root_); }

void MachineTree::add(const std::string& line) {
  std::istringstream words(line);
  std::string what;
  std::string name;
  std::string path;
  std::string ids;
  words >> what;
  if (what == "file") {
    words >> path >> std::ws;
    std::string text;
    std::getline(words, text);
    return write(root_ / path, text + "\n");
  }
  if (what == "rdma" || what == "net" || what == "virtual-rdma") words >> name;
  if (what == "virtual-rdma") {
    fs::create_directories(device("virtual/infiniband/" + name));
    return link(device("virtual/infiniband/" + name), sysfs() / "class/infiniband" / name);
  }
  words >> path >> ids;
  std::map<std::string, std::string> options;
  for (std::string word; words >> word;) options[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
  const fs::path folder = device(path);
  const std::string address = folder.filename();
  write_ids(folder, ids, "");
  if (options.count("subsystem") != 0) write_ids(folder, options["subsystem"], "subsystem_");
  write(folder / "class", what == "bridge" ? "0x060400\n" : what == "gpu" ? "0x030200\n" : "0x020000\n");
  write(folder / "numa_node", (options.count("numa") != 0 ? options["numa"] : "-1") + "\n");
  if (what == "bridge") write(folder / "config", config(options["acs"]));
  fs::create_directories(sysfs() / "bus/pci");
  link(sysfs() / "bus/pci", folder / "subsystem");
  link(folder, sysfs() / "bus/pci/devices" / address);
  if (options.count("iommu") != 0) {
    const std::string group = options["iommu"].substr(0, options["iommu"].find(':'));
    write(sysfs() / "kernel/iommu_groups" / group / "type", options["iommu"].substr(group.size() + 1) + "\n");
    link(sysfs() / "kernel/iommu_groups" / group, folder / "iommu_group");
  }
  if (what == "rdma") {
    link(folder, folder / "infiniband" / name / "device");
    link(folder / "infiniband" / name, sysfs() / "class/infiniband" / name);
    name = options["net"];
  }
  if (name.empty()) return;
  const fs::path below = options.count("kind") != 0 ? folder / (options["kind"] + "0") : folder;
  if (below != folder) {
    fs::create_directories(sysfs() / "bus" / options["kind"]);
    fs::create_directories(below);
    link(sysfs() / "bus" / options["kind"], below / "subsystem");
  }
  link(below, below / "net" / name / "device");
  link(below / "net" / name, sysfs() / "class/net" / name);
}

}  // namespace clustar::tests
