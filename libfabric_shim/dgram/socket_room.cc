#include "libfabric_shim/dgram/socket_room.h"

#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace clustar::transport::ofi {
namespace {

int option_of(int socket, int name) {
  int value = 0;
  socklen_t length = sizeof value;
  return ::getsockopt(socket, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

// With the right to do so past the system's limit, otherwise up to it; never less than there is.
void widen(int socket, int forced, int usual, std::size_t bytes) {
  const int wanted = static_cast<int>(std::min<std::size_t>(bytes, 1 << 30));
  if (option_of(socket, usual) >= 2 * wanted) return;
  if (::setsockopt(socket, SOL_SOCKET, forced, &wanted, sizeof wanted) == 0) return;
  ::setsockopt(socket, SOL_SOCKET, usual, &wanted, sizeof wanted);
}

}  // namespace

std::size_t widen_sockets(int wait_descriptor, std::size_t bytes) {
  // proc(5): a line "tfd: NUMBER events: ..." for each descriptor of an epoll.
  std::ifstream lines("/proc/self/fdinfo/" + std::to_string(wait_descriptor));
  std::size_t least = 0;
  for (std::string word; lines >> word;) {
    int socket = -1;
    if (word != "tfd:" || !(lines >> socket) || option_of(socket, SO_TYPE) != SOCK_DGRAM) continue;
    const int domain = option_of(socket, SO_DOMAIN);
    if (domain != AF_INET && domain != AF_INET6) continue;
    widen(socket, SO_RCVBUFFORCE, SO_RCVBUF, bytes);
    widen(socket, SO_SNDBUFFORCE, SO_SNDBUF, bytes);
    const auto has = static_cast<std::size_t>(std::max(option_of(socket, SO_RCVBUF), 0));
    least = least == 0 ? has : std::min(least, has);
  }
  return least;
}

}  // namespace clustar::transport::ofi
