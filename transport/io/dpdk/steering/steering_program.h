// The program for the kernel by which net_af_xdp leaves an interface's other packets to the kernel (steer.bpf.c).
#pragma once

#include <string>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::transport::io::dpdk {

// A file of this process alone, which DPDK loads the program from.
class SteeringProgram {
 public:
  SteeringProgram() = default;
  // Error kUnavailable: this build has none (it lacked clang, libbpf or bpftool).
  static Result<SteeringProgram> make();
  // Valid as long as this object.
  std::string path() const;

 private:
  FileDescriptor file_{};
};

}  // namespace clustar::transport::io::dpdk
