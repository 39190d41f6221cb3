// A kernel that refuses eBPF, for one process.
#pragma once

namespace clustar::bench::fabric {

// From then on the calling process and its children have no bpf(). False when the kernel has no seccomp.
bool forbid_bpf();

}  // namespace clustar::bench::fabric
