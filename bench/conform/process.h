// What this process holds, as the kernel sees it (/proc/self): for the checks that look for leaks and for open ports.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace clustar::bench::conform {

// Descriptor -> what it points to ("socket:[123]", a path); without the one used for looking.
std::map<int, std::string> open_descriptors();
int thread_count();
// Resident memory in bytes, without what malloc keeps of what was freed; 0 when unknown.
std::size_t resident_bytes();
// False under a sanitizer, whose allocator keeps what was freed.
bool resident_bytes_are_meaningful();

// A socket of this process: TCP in LISTEN, or UDP bound to a port. A wildcard address is given as loopback.
struct OwnSocket {
  sockaddr_storage address{};
  socklen_t length = 0;
  std::string text;  // 127.0.0.1:4711
};
std::vector<OwnSocket> own_tcp_listeners();
std::vector<OwnSocket> own_udp_sockets();

}  // namespace clustar::bench::conform
