#include "transport/io/dpdk/steering/steering_program.h"

#include <fmt/format.h>
#include <steer.skel.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace clustar::transport::io::dpdk {

Result<SteeringProgram> SteeringProgram::make() {
  SteeringProgram program;
  program.file_ = FileDescriptor(::memfd_create("clustar-steer", MFD_CLOEXEC));
  std::size_t bytes = 0;
  const void* const object = steer_bpf__elf_bytes(&bytes);
  if (program.file_.fd() < 0 || ::write(program.file_.fd(), object, bytes) != static_cast<ssize_t>(bytes)) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("dpdk: no file for the program that steers packets: {}", describe_errno(errno)));
  }
  return program;
}

std::string SteeringProgram::path() const { return fmt::format("/proc/self/fd/{}", file_.fd()); }

}  // namespace clustar::transport::io::dpdk
