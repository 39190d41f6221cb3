// A folder with sys and proc of a machine that tests/gdr/machines describes. Gone with the object.
#pragma once

#include <filesystem>
#include <string>

#include "gdr/core/machine.h"
#include "gdr/topology/read_machine.h"

namespace clustar::tests {

std::filesystem::path machines_folder();

class MachineTree {
 public:
  // `name` of a file in tests/gdr/machines, without .txt. Empty: a tree with nothing in it.
  explicit MachineTree(const std::string& name = "");
  ~MachineTree();
  MachineTree(const MachineTree&) = delete;
  MachineTree& operator=(const MachineTree&) = delete;

  // One more line of such a file.
  void add(const std::string& line);
  // Where a PATH of such a line is.
  std::filesystem::path device(const std::string& path) const { return sysfs() / "devices" / path; }
  std::filesystem::path sysfs() const { return root_ / "sys"; }
  std::filesystem::path procfs() const { return root_ / "proc"; }
  gdr::Machine read() const { return gdr::read_machine({sysfs(), procfs()}); }

 private:
  std::filesystem::path root_;
};

}  // namespace clustar::tests
