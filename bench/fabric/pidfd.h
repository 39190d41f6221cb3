// A descriptor for a process: it names that process forever, while its number may pass to another. By system call,
// because glibc 2.36 declares its wrappers without C linkage.
#pragma once

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

namespace clustar::bench::fabric {

inline int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }
inline bool signal_pidfd(int fd, int signal) { return syscall(SYS_pidfd_send_signal, fd, signal, nullptr, 0) == 0; }

}  // namespace clustar::bench::fabric
