#include "bench/perf/socket_hook.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>

namespace {

// Read by every thread that makes a socket; written before there are any (set_congestion_control).
std::array<char, 32> g_congestion{};

using SocketFunction = int (*)(int, int, int);
SocketFunction libc_socket() {
  static const auto function = reinterpret_cast<SocketFunction>(dlsym(RTLD_NEXT, "socket"));
  return function;
}

bool is_tcp(int domain, int type, int protocol) {
  return (domain == AF_INET || domain == AF_INET6) && (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM &&
         (protocol == 0 || protocol == IPPROTO_TCP);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int socket(int domain, int type, int protocol) noexcept {
  if (libc_socket() == nullptr) return errno = ENOSYS, -1;
  const int fd = libc_socket()(domain, type, protocol);
  if (fd >= 0 && g_congestion[0] != '\0' && is_tcp(domain, type, protocol)) {
    const int before = errno;
    // Was possible when it was set; should it fail now, the worker's report of its sockets shows it.
    setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, g_congestion.data(),
               static_cast<socklen_t>(std::strlen(g_congestion.data())));
    errno = before;
  }
  return fd;
}

namespace clustar::bench::perf {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

int int_option(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

}  // namespace

Result<void> set_congestion_control(const std::string& name) {
  g_congestion.fill('\0');
  if (name.empty()) return {};
  const auto refused = [&](const char* why) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("congestion control '{}': {}; this kernel offers {}", name, why,
                            first_line("/proc/sys/net/ipv4/tcp_available_congestion_control")));
  };
  if (name.size() >= g_congestion.size()) return refused("no such name");
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return refused(std::strerror(errno));
  const bool set = setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), static_cast<socklen_t>(name.size())) == 0;
  const int error = errno;
  close(fd);
  if (!set) return refused(std::strerror(error));
  std::memcpy(g_congestion.data(), name.data(), name.size());
  return {};
}

std::string default_congestion_control() { return first_line("/proc/sys/net/ipv4/tcp_congestion_control"); }

TcpSockets tcp_sockets(int skip) {
  TcpSockets found;
  const std::unique_ptr<DIR, DirCloser> dir(opendir("/proc/self/fd"));
  std::set<std::string> controls;
  while (const dirent* entry = dir ? readdir(dir.get()) : nullptr) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == skip || fd == dirfd(dir.get())) continue;
    const int domain = int_option(fd, SO_DOMAIN);
    if ((domain != AF_INET && domain != AF_INET6) || int_option(fd, SO_PROTOCOL) != IPPROTO_TCP) continue;
    std::array<char, 32> name{};
    socklen_t length = name.size() - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) continue;
    ++found.count;
    controls.insert(name.data());
  }
  found.controls.assign(controls.begin(), controls.end());
  return found;
}

}  // namespace clustar::bench::perf
