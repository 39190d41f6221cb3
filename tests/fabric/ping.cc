#include "tests/fabric/ping.h"

#include <netinet/ip_icmp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "tests/fabric/fabric_under_test.h"

namespace clustar::bench::fabric {

std::optional<std::chrono::steady_clock::duration> ping(const Fabric& fabric, int from, int to) {
  std::optional<std::chrono::steady_clock::duration> trip;
  on_host(fabric, from, [&] {
    const int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
    const timeval bound{2, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &bound, sizeof(bound));
    const sockaddr_in address = address_of_host(to, 0);
    icmphdr echo{};
    echo.type = ICMP_ECHO;
    echo.un.echo.id = htons(static_cast<std::uint16_t>(from * 256 + to));
    echo.checksum = static_cast<std::uint16_t>(~((ICMP_ECHO + echo.un.echo.id) % 0xffff));
    const auto begin = std::chrono::steady_clock::now();
    sendto(fd, &echo, sizeof(echo), 0, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    std::array<char, 256> packet{};
    while (std::chrono::steady_clock::now() < begin + std::chrono::seconds(2)) {
      const ssize_t n = recv(fd, packet.data(), packet.size(), 0);
      icmphdr answer{};
      if (n < static_cast<ssize_t>(20 + sizeof(answer))) break;
      std::memcpy(&answer, packet.data() + 20, sizeof(answer));
      if (answer.type != ICMP_ECHOREPLY || answer.un.echo.id != echo.un.echo.id) continue;
      trip = std::chrono::steady_clock::now() - begin;
      break;
    }
    close(fd);
  });
  return trip;
}

}  // namespace clustar::bench::fabric
