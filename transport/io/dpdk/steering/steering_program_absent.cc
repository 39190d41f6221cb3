#include "transport/io/dpdk/steering/steering_program.h"

namespace clustar::transport::io::dpdk {

Result<SteeringProgram> SteeringProgram::make() {
  return fail(ErrorCode::kUnavailable,
              "dpdk: this build cannot share an interface's address with the kernel by net_af_xdp (it was made without "
              "clang, libbpf-dev or bpftool); give the device an address that the kernel does not have "
              "(@ADDRESS/PREFIX), or use net_af_packet");
}

std::string SteeringProgram::path() const { return {}; }

}  // namespace clustar::transport::io::dpdk
