// A stranger at the port of a real listener on loopback: whatever it sends, it is not let in unless it shows the token,
// and the listener goes on serving.
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace {

using namespace clustar;
using namespace clustar::transport;
using namespace clustar::transport::tcp;

struct Target {
  SystemClock clock;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Listener> listener;
  HandleInfo info;

  Target() {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<NetworkSettings>()->family_name = "ipv4";
    transport = std::move(TcpTransport::create({config, clock}).value());
    listener = std::move(transport->listen(0, {}).value());
    info = HandleInfo::parse(listener->handle()).value();
  }
};

// A blocking connect that libFuzzer's own timer signal interrupts goes on in the background: wait for its end.
bool connect_fully(int fd, const net::Address& remote) {
  if (::connect(fd, remote.raw(), remote.length()) == 0) return true;
  if (errno != EINTR) return false;
  pollfd writable{fd, POLLOUT, 0};
  while (::poll(&writable, 1, -1) < 0) {
    if (errno != EINTR) return false;
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return false;
  errno = error;
  return error == 0;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Target target;
  if (size == 0) return 0;
  std::vector<std::byte> bytes(size - 1);
  if (size > 1) std::memcpy(bytes.data(), data + 1, size - 1);
  bool token_shown = false;
  if (data[0] % 2 == 1) {  // a hello that is right but for what the input changes behind the token
    Hello hello;
    hello.token = target.info.invitation.token;
    hello.settings = target.info.settings;
    hello.data_sockets = 2;
    std::array<std::byte, Hello::kSize> right;
    hello.serialize_to(right);
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 16); ++i) right[24 + i] ^= bytes[i];
    right[6] = static_cast<std::byte>(data[0] / 2 % 4);
    bytes.assign(right.begin(), right.end());
    token_shown = true;
  }
  const net::Address remote(target.info.invitation.endpoints.front());
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Closing by reset leaves no TIME_WAIT behind, of which thousands would use up the ports.
  const linger reset{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  // Each stranger from another loopback address: one address has 28,000 ports, and a socket that the listener closed
  // first keeps its port for a while.
  static std::uint32_t strangers = 0;
  sockaddr_in from{};
  from.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1 + strangers++ % 60000);
  if (::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from) != 0 || !connect_fully(fd, remote)) {
    std::perror("the machine gives no connection on loopback");
    std::abort();
  }
  if (!bytes.empty()) ::send(fd, bytes.data(), std::min<std::size_t>(bytes.size(), 1024), MSG_NOSIGNAL);
  const auto polled = target.listener->poll_accept();
  if (!polled) std::abort();
  // Even the right token on one socket is not a connection of three.
  if (*polled != nullptr && !token_shown) std::abort();
  ::close(fd);
  if (!target.listener->poll_accept()) std::abort();
  return 0;
}
