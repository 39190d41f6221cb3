// In builds without libbpf, clang or bpftool: says so.
#include "bench/fabric/switch/switch_program.h"

namespace clustar::bench::fabric {
namespace {

tl::unexpected<Error> absent() {
  return fail(ErrorCode::kUnavailable,
              "this build has no switch program; build it where libbpf-dev, bpftool and clang are installed "
              "(scripts/setup) and CLUSTAR_WITH_BPF is ON");
}

}  // namespace

Result<void> attach_switch(std::span<const PortPlan>) { return absent(); }
Result<std::vector<ProgramPort>> read_switch() { return std::vector<ProgramPort>(); }
Result<void> change_port(const std::string&, const PortRules&) { return absent(); }
Result<void> reset_counters() { return absent(); }

}  // namespace clustar::bench::fabric
