#include "bench/conform/process.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fmt/format.h>
#include <malloc.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <sstream>

namespace clustar::bench::conform {
namespace {

struct DirCloser {
  void operator()(DIR* dir) const { closedir(dir); }
};

std::set<unsigned long> own_socket_inodes() {
  std::set<unsigned long> inodes;
  for (const auto& [fd, target] : open_descriptors()) {
    unsigned long inode = 0;
    if (std::sscanf(target.c_str(), "socket:[%lu]", &inode) == 1) inodes.insert(inode);
  }
  return inodes;
}

// `hex` is the kernel's form: 32-bit words in host order, then :PORT.
bool parse_address(const std::string& hex, OwnSocket* out) {
  const auto colon = hex.find(':');
  if (colon != 8 && colon != 32) return false;
  const auto port = htons(static_cast<std::uint16_t>(std::strtoul(hex.c_str() + colon + 1, nullptr, 16)));
  std::array<std::uint32_t, 4> words{};
  bool any = true;
  for (std::size_t i = 0; i < colon / 8; ++i) {
    words[i] = static_cast<std::uint32_t>(std::strtoul(hex.substr(i * 8, 8).c_str(), nullptr, 16));
    any = any && words[i] == 0;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (colon == 8) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = port;
    address.sin_addr.s_addr = any ? htonl(INADDR_LOOPBACK) : words[0];
    std::memcpy(&out->address, &address, out->length = sizeof(address));
    inet_ntop(AF_INET, &address.sin_addr, text.data(), text.size());
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = port;
    if (any)
      address.sin6_addr = in6addr_loopback;
    else
      std::memcpy(&address.sin6_addr, words.data(), sizeof(address.sin6_addr));
    std::memcpy(&out->address, &address, out->length = sizeof(address));
    inet_ntop(AF_INET6, &address.sin6_addr, text.data(), text.size());
  }
  out->text = fmt::format("{}:{}", text.data(), ntohs(port));
  return port != 0;
}

// Rows of /proc/net/{tcp,udp}*: "sl local remote state ... inode"; state 0A is LISTEN.
std::vector<OwnSocket> own_sockets(const char* table, const char* wanted_state) {
  const std::set<unsigned long> inodes = own_socket_inodes();
  std::vector<OwnSocket> found;
  for (const char* suffix : {"", "6"}) {
    std::ifstream in(fmt::format("/proc/net/{}{}", table, suffix));
    for (std::string line; std::getline(in, line);) {
      std::istringstream fields(line);
      std::string slot, local, remote, state, skipped;
      unsigned long inode = 0;
      fields >> slot >> local >> remote >> state;
      for (int i = 0; i < 5; ++i) fields >> skipped;
      fields >> inode;
      OwnSocket socket;
      if (!fields || inodes.count(inode) == 0 || (wanted_state != nullptr && state != wanted_state)) continue;
      if (parse_address(local, &socket)) found.push_back(socket);
    }
  }
  return found;
}

}  // namespace

std::map<int, std::string> open_descriptors() {
  std::map<int, std::string> found;
  const std::unique_ptr<DIR, DirCloser> dir(opendir("/proc/self/fd"));
  if (!dir) return found;
  while (const dirent* entry = readdir(dir.get())) {
    const int fd = std::atoi(entry->d_name);
    if (entry->d_name[0] == '.' || fd == dirfd(dir.get())) continue;
    std::array<char, 256> target{};
    const ssize_t n = readlinkat(dirfd(dir.get()), entry->d_name, target.data(), target.size() - 1);
    found[fd] = n > 0 ? std::string(target.data(), static_cast<std::size_t>(n)) : "?";
  }
  return found;
}

int thread_count() {
  const std::unique_ptr<DIR, DirCloser> dir(opendir("/proc/self/task"));
  int count = 0;
  while (const dirent* entry = dir ? readdir(dir.get()) : nullptr) count += entry->d_name[0] != '.' ? 1 : 0;
  return count;
}

std::size_t resident_bytes() {
  malloc_trim(0);
  std::ifstream in("/proc/self/statm");
  std::size_t total = 0, resident = 0;
  in >> total >> resident;
  return in ? resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) : 0;
}

bool resident_bytes_are_meaningful() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
  return false;
#else
  return resident_bytes() > 0;
#endif
#else
  return resident_bytes() > 0;
#endif
}

std::vector<OwnSocket> own_tcp_listeners() { return own_sockets("tcp", "0A"); }
std::vector<OwnSocket> own_udp_sockets() { return own_sockets("udp", nullptr); }

}  // namespace clustar::bench::conform
