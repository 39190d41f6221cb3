// handshake.*: garbage in handles, on listening ports and on data ports; nobody but the peer gets in.
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "bench/conform/process.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

// How long a stranger is given to be taken for a peer.
constexpr milliseconds kQuiet{200};

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// Connects by a handle that no listener gave out. `may_connect`: the changed bytes might not matter to the plugin.
void try_bad_handle(Session& session, const proxy::Handle& bad, const std::string& what, bool may_connect) {
  note_step("connecting by " + what);
  proxy::Handle handle = bad;
  void* comm = nullptr;
  for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(60);) {
    if (session.try_connect(&handle, &comm) != nccl_abi::kSuccess) return;
    if (comm != nullptr) break;
    sched_yield();
  }
  if (comm == nullptr) return;
  if (!may_connect) fail_check(fmt::format("connect by {} gave a comm", what));
  session.must(session.net().close_send(comm), "closeSend");
}

std::string check_garbage_handle(const Env& env) {
  Session session(env);
  Listening listening = session.listen();
  proxy::Handle handle;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    std::memcpy(handle.data(), random_bytes(handle.size(), seed).data(), handle.size());
    try_bad_handle(session, handle, fmt::format("128 random bytes (seed {})", seed), false);
  }
  handle.fill(std::byte{0});
  try_bad_handle(session, handle, "128 zero bytes", false);
  handle.fill(std::byte{0xff});
  try_bad_handle(session, handle, "128 bytes of 0xff", false);
  for (const std::size_t kept : {4, 8, 16, 24, 32, 64}) {
    handle.fill(std::byte{0});
    std::copy_n(listening.handle.begin(), kept, handle.begin());
    try_bad_handle(session, handle, fmt::format("a handle cut after {} bytes", kept), kept > 4);
  }
  handle = listening.handle;
  for (std::size_t i = 0; i < 8; ++i) handle[i] = ~handle[i];
  try_bad_handle(session, handle, "a handle with its first 8 bytes inverted", false);
  // What got as far as the listener is not a peer; the real one still comes through.
  Listening fresh = session.listen();
  Link link = session.link_to(fresh);
  exchange(session, link, 4096, 1);
  session.close_listen(fresh.comm);
  session.close_listen(listening.comm);
  return "random, zero, 0xff, cut and inverted handles: errors or no connection";
}

std::string check_absent_peer(const Env& env) {
  Session session(env);
  Listening listening = session.listen();
  proxy::Handle handle = listening.handle;
  session.close_listen(listening.comm);
  note_step("connecting to a listener that is closed");
  for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(500);) {
    void* comm = nullptr;
    const int result = session.try_connect(&handle, &comm);
    if (result != nccl_abi::kSuccess) return fmt::format("connect gives {}", result_name(result));
    if (comm != nullptr) fail_check("connect gave a comm although the listener is closed");
    usleep(1000);
  }
  return "connect keeps giving a NULL comm";
}

class Stranger {
 public:
  explicit Stranger(const OwnSocket& target) : fd_(socket(target.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&target.address), target.length) != 0) {
      fail_check(fmt::format("cannot connect to the plugin's own listening port {}", target.text));
    }
  }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() { hang_up(); }

  void say(const std::string& bytes) {
    [[maybe_unused]] const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void hang_up() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    hang_up();
  }

 private:
  int fd_;
};

std::vector<OwnSocket> ports_or_skip() {
  auto ports = own_tcp_listeners();
  if (ports.empty()) skip_check("the plugin listens on no TCP port of this process");
  return ports;
}

std::string port_list(const std::vector<OwnSocket>& ports) {
  std::string text;
  for (const OwnSocket& port : ports) text += (text.empty() ? "" : ", ") + port.text;
  return text;
}

// Lets strangers at a fresh listener, sees that none is accepted, then lets the real peer in.
std::string run_strangers(const Env& env, const std::function<void(const OwnSocket&, std::vector<Stranger>&)>& visit) {
  Session session(env);
  Listening listening = session.listen();
  const auto ports = ports_or_skip();
  std::vector<Stranger> strangers;
  note_step("strangers at the listening port " + port_list(ports));
  for (const OwnSocket& port : ports) visit(port, strangers);
  for (const auto begin = Clock::now(); Clock::now() - begin < kQuiet;) {
    void* comm = nullptr;
    const int result = session.try_accept(listening.comm, &comm);
    if (result != nccl_abi::kSuccess) {
      fail_check(fmt::format("accept returned {} because of a stranger on the port{}", result_name(result),
                             session.warning()));
    }
    if (comm != nullptr) fail_check("a stranger on the listening port was accepted as a peer");
    usleep(500);
  }
  note_step("the real peer connects after the strangers");
  const auto begin = Clock::now();
  Link link = session.link_to(listening);
  const double seconds = seconds_since(begin);
  exchange(session, link, 65536, 1);
  session.close_listen(listening.comm);
  exchange(session, link, 65536, 2);
  return fmt::format("{}: strangers kept out, the peer in after {:.0f} ms", port_list(ports), seconds * 1e3);
}

std::string check_silent(const Env& env) {
  return run_strangers(env, [](const OwnSocket& port, std::vector<Stranger>& strangers) {
    for (int i = 0; i < 4; ++i) strangers.emplace_back(port);
  });
}

std::string check_junk(const Env& env) {
  return run_strangers(env, [](const OwnSocket& port, std::vector<Stranger>& strangers) {
    const std::string junk[] = {"GET / HTTP/1.0\r\n\r\n", std::string(1, '\0'), std::string(256, '\0'),
                                random_bytes(7, 1),       random_bytes(64, 2),  random_bytes(4096, 3),
                                std::string(300, '\xff')};
    for (const std::string& bytes : junk) strangers.emplace_back(port).say(bytes);
  });
}

std::string check_hang_up(const Env& env) {
  return run_strangers(env, [](const OwnSocket& port, std::vector<Stranger>&) {
    for (int i = 0; i < 8; ++i) {
      Stranger stranger(port);
      if (i % 2 == 0) stranger.say(random_bytes(5, static_cast<std::uint64_t>(i)));
      if (i % 4 < 2) stranger.reset();
    }
  });
}

std::string check_junk_during_transfer(const Env& env) {
  Session session(env);
  Listening other = session.listen();  // so that there is a port while the link is in use
  Link link = session.link();
  const auto tcp = own_tcp_listeners();
  const auto udp = own_udp_sockets();
  if (tcp.empty() && udp.empty()) skip_check("the plugin has no TCP listener and no UDP socket");
  note_step("transferring while strangers send to every port of the process");
  const int sender4 = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const int sender6 = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<Stranger> strangers;
    for (const OwnSocket& port : tcp) strangers.emplace_back(port).say(random_bytes(100, round));
    for (const OwnSocket& port : udp) {
      const std::string junk = random_bytes(1 + round * 70, round);
      const int fd = port.address.ss_family == AF_INET ? sender4 : sender6;
      sendto(fd, junk.data(), junk.size(), MSG_DONTWAIT, reinterpret_cast<const sockaddr*>(&port.address), port.length);
    }
    exchange(session, link, 200000, round);
  }
  close(sender4);
  close(sender6);
  Link late = session.link_to(other);
  exchange(session, late, 4096, 99);
  session.close_listen(other.comm);
  return fmt::format("{} TCP and {} UDP ports were sent junk during 20 messages", tcp.size(), udp.size());
}

constexpr Check kChecks[] = {
    {"handshake.garbage_handle", "A handle that no listener gave out is an error or no connection, never a crash.",
     "transport/net.cc:851", false, check_garbage_handle},
    {"handshake.absent_peer", "Connecting to a listener that is gone is an error or a NULL comm, at once.",
     "transport/net.cc:851-860", false, check_absent_peer},
    {"handshake.silent_stranger", "A port scanner that connects and says nothing neither blocks nor is a peer.",
     "nccl#1808; transport/net.cc:1019", false, check_silent},
    {"handshake.junk_stranger", "A stranger that sends junk to the listening port is not a peer.",
     "nccl#1808; transport/net.cc:1019", false, check_junk},
    {"handshake.hang_up", "Strangers that connect and hang up do not disturb the peer.",
     "nccl#1808; transport/net.cc:1019", false, check_hang_up},
    {"handshake.junk_during_transfer", "Junk at any open port does not disturb connections that are up.", "nccl#1808",
     false, check_junk_during_transfer},
};

}  // namespace

std::span<const Check> handshake_checks() { return kChecks; }

}  // namespace clustar::bench::conform
