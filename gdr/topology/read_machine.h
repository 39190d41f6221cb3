// This machine's GPUs, NICs and bridges, read from sysfs and procfs.
#pragma once

#include <string>

#include "gdr/core/machine.h"

namespace clustar::gdr {

struct Roots {
  std::string sysfs = "/sys";
  std::string procfs = "/proc";  // empty: not asked
};

// Never fails: what cannot be read is missing, and said in Machine::problems.
Machine read_machine(const Roots& roots);

// The file of `sysfs` that shows nvidia_peermem, or nv_peer_mem; empty: neither is loaded.
std::string peermem_file(const std::string& sysfs = "/sys");

}  // namespace clustar::gdr
