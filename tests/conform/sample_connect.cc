// The sample plugin's communicators and connections.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "tests/conform/sample_state.h"

namespace clustar::sample {
namespace {

constexpr std::size_t kPendingLimit = 64;

struct PendingConnect {
  int fd = -1;
  std::size_t sent = 0;
};
struct Handle {  // what listen gives out; `state` is null until the connecting side's first call
  std::uint64_t magic, token;
  sockaddr_in address;
  PendingConnect* state;
};
static_assert(sizeof(Handle) <= abi::kHandleBytes);

struct PendingAccept {
  int fd;
  Hello hello;
  std::size_t got;
  Clock::time_point since;
};
struct Listener {
  int fd = -1;
  std::uint64_t token = 0;
  std::list<PendingAccept> pending;
  std::vector<int> accepted;  // used by a defect only
  bool used = false;
};
struct Context {
  std::uint64_t comm_id;
};

// connect() keeps its state behind a pointer in the handle, and handles come from outside: only pointers in this set
// are followed.
std::mutex g_mutex;
std::set<PendingConnect*> g_connecting;  // guarded by g_mutex
std::atomic<int> g_inits{0};
std::atomic<int> g_comms{0};
std::atomic<bool> g_torn_down{false};

}  // namespace

int init(std::uint64_t comm_id, const abi::CommConfig* config, void** ctx) {
  if (defect("rejects_class") && config != nullptr && config->traffic_class != abi::kTrafficClassUndefined) {
    return abi::kInvalidArgument;
  }
  if (defect("single_load") && std::getenv("SAMPLE_WAS_LOADED") != nullptr) return abi::kSystemError;
  if (defect("single_load")) setenv("SAMPLE_WAS_LOADED", "1", 1);
  if (defect("changes_signals")) signal(SIGPIPE, SIG_IGN);
  if (defect("init_once") && g_inits > 0) return abi::kInvalidUsage;
  if (defect("thread_leak")) {
    pthread_t thread;
    pthread_create(
        &thread, nullptr, [](void*) -> void* { return usleep(20'000'000), nullptr; }, nullptr);
  }
  ++g_inits;
  if (ctx != nullptr) *ctx = new Context{comm_id};
  return abi::kSuccess;
}

int finalize(void* ctx) {
  if (defect("finalize_crash")) static_cast<volatile Context*>(ctx)->comm_id = 0;
  if (defect("finalize_global")) g_torn_down = true;
  delete static_cast<Context*>(ctx);
  if (ctx != nullptr && --g_inits > 0) return abi::kSuccess;
  std::lock_guard lock(g_mutex);
  for (PendingConnect* pending : g_connecting) {
    close(pending->fd);
    delete pending;
  }
  g_connecting.clear();
  return abi::kSuccess;
}

int devices(int* count) {
  *count = defect("no_devices") ? 0 : plain_devices() + virtual_devices();
  return abi::kSuccess;
}

bool has_device(int dev) {
  const int usable = plain_devices() + (defect("fuse_unusable") ? 0 : virtual_devices());
  return dev >= 0 && dev < usable;
}

int listen_on(int dev, void* opaque, void** listen_comm) {
  if ((!has_device(dev) && !defect("any_device")) || opaque == nullptr) return abi::kInvalidArgument;
  if (defect("blocking_listen")) block_for_a_while();
  if (g_torn_down) return abi::kInternalError;
  auto* listener = new Listener;
  listener->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  Handle handle{};
  handle.magic = kMagic;
  handle.address.sin_family = AF_INET;
  const char* address = std::getenv("SAMPLE_IFADDR");
  inet_pton(AF_INET, address != nullptr ? address : "127.0.0.1", &handle.address.sin_addr);
  socklen_t length = sizeof(handle.address);
  auto* name = reinterpret_cast<sockaddr*>(&handle.address);
  if (getrandom(&listener->token, sizeof(listener->token), 0) != sizeof(listener->token) ||
      bind(listener->fd, name, length) != 0 || listen(listener->fd, 128) != 0 ||
      getsockname(listener->fd, name, &length) != 0) {
    if (listener->fd >= 0) close(listener->fd);
    delete listener;
    return abi::kSystemError;
  }
  handle.token = listener->token;
  if (defect("handle_overflow")) std::memset(opaque, 0x5a, abi::kHandleBytes + 16);
  std::memcpy(opaque, &handle, sizeof(handle));
  // A peer can connect all the same: what is wrong shows at accept only, and in every run.
  if (defect("null_listen")) delete std::exchange(listener, nullptr);
  *listen_comm = listener;
  return abi::kSuccess;
}

namespace {

// Adds what defects do to a connection.
void spoil(Comm& comm) {
  if (defect("descriptor_leak")) fcntl(comm.fd, F_DUPFD_CLOEXEC, 0);
  if (defect("isend_blocks") && comm.sender) fcntl(comm.fd, F_SETFL, 0);
  comm.owner = syscall(SYS_gettid);
}

Comm* make_comm(int fd, bool sender) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  auto* comm = new Comm;
  comm->fd = fd;
  comm->sender = sender;
  ++g_comms;
  spoil(*comm);
  return comm;
}

PendingConnect* start_connect(const Handle& handle) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  const auto* address = reinterpret_cast<const sockaddr*>(&handle.address);
  if (::connect(fd, address, sizeof(handle.address)) != 0 && errno != EINPROGRESS) {
    close(fd);
    return nullptr;
  }
  auto* pending = new PendingConnect{fd, 0};
  std::lock_guard lock(g_mutex);
  g_connecting.insert(pending);
  return pending;
}

}  // namespace

int connect_to(int dev, void* opaque, void** send_comm) {
  *send_comm = nullptr;
  Handle handle;
  std::memcpy(&handle, opaque, sizeof(handle));
  if (defect("bad_handle_crash") && handle.state != nullptr) handle.state->sent += 0;
  if (defect("bad_handle_crash") && handle.magic != kMagic) std::abort();
  if (defect("few_connections") && g_comms >= 32) return abi::kSystemError;
  if (!has_device(dev) || handle.magic != kMagic || handle.address.sin_family != AF_INET) return abi::kInvalidArgument;
  if (handle.state == nullptr) {
    if (defect("blocking_connect")) block_for_a_while();
    handle.state = start_connect(handle);
    if (handle.state == nullptr) return abi::kSystemError;
    std::memcpy(opaque, &handle, sizeof(handle));
  } else {
    std::lock_guard lock(g_mutex);
    if (g_connecting.count(handle.state) == 0) return abi::kInvalidArgument;
  }
  PendingConnect* pending = handle.state;
  const Hello hello{kMagic, handle.token, getpid()};
  const ssize_t n = send(pending->fd, reinterpret_cast<const char*>(&hello) + pending->sent,
                         sizeof(hello) - pending->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN)) return abi::kSuccess;
  if (n >= 0 && (pending->sent += static_cast<std::size_t>(n)) < sizeof(hello)) return abi::kSuccess;
  handle.state = nullptr;
  std::memcpy(opaque, &handle, sizeof(handle));
  {
    std::lock_guard lock(g_mutex);
    g_connecting.erase(pending);
  }
  const int fd = pending->fd;
  delete pending;
  if (n < 0 && defect("absent_blocks")) block_for_a_while();
  if (n < 0) return close(fd), abi::kRemoteError;
  *send_comm = make_comm(fd, true);
  return abi::kSuccess;
}

namespace {

// True once the whole hello is in; drops `peer` (fd closed and set to -1) when it is not one of ours.
bool read_hello(const Listener& listener, PendingAccept& peer) {
  auto* bytes = reinterpret_cast<char*>(&peer.hello);
  const ssize_t n = recv(peer.fd, bytes + peer.got, sizeof(Hello) - peer.got, MSG_DONTWAIT);
  if (n > 0) peer.got += static_cast<std::size_t>(n);
  if (defect("garbage_accepted") && peer.got > 0) return true;
  const bool waits = n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
  const bool complete = peer.got == sizeof(Hello);
  const bool stranger = defect("same_process_only") && complete && peer.hello.pid != getpid();
  if (complete && peer.hello.magic == kMagic && peer.hello.token == listener.token && !stranger) return true;
  if (complete || !waits || Clock::now() - peer.since > std::chrono::seconds(10)) {
    close(peer.fd);
    peer.fd = -1;
  }
  return false;
}

}  // namespace

int accept_from(void* listen_comm, void** recv_comm) {
  auto& listener = *static_cast<Listener*>(listen_comm);
  *recv_comm = nullptr;
  pollfd waiting{listener.fd, POLLIN, 0};
  if (defect("blocking_accept") && listener.pending.empty()) poll(&waiting, 1, 3000);
  for (int i = 0; i < 16 && listener.pending.size() < kPendingLimit; ++i) {
    if (defect("one_at_a_time") && !listener.pending.empty()) break;
    const int fd = accept4(listener.fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) break;
    listener.pending.push_back({fd, {}, 0, Clock::now()});
  }
  for (auto it = listener.pending.begin(); it != listener.pending.end();) {
    const bool ready = read_hello(listener, *it);
    const int fd = it->fd;
    if (ready || fd < 0)
      it = listener.pending.erase(it);
    else
      ++it;
    if (fd < 0 && defect("stranger_is_error")) return abi::kRemoteError;
    if (!ready) continue;
    listener.used = true;
    *recv_comm = make_comm(fd, false);
    if (defect("listen_owns_peers")) listener.accepted.push_back(dup(fd));
    break;
  }
  return abi::kSuccess;
}

int close_comm(void* opaque) {
  auto* comm = static_cast<Comm*>(opaque);
  if (comm == nullptr) return abi::kSuccess;
  if (defect("close_crash") && !comm->queue.empty()) std::abort();
  char byte;
  const bool peer_closed = recv(comm->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
  if (defect("peer_close_crash") && comm->sender && peer_closed) std::abort();
  const linger drop{1, 0};
  if (defect("close_drops_data") && comm->sender) setsockopt(comm->fd, SOL_SOCKET, SO_LINGER, &drop, sizeof(drop));
  close(comm->fd);
  --g_comms;
  delete comm;
  return abi::kSuccess;
}

int close_listen(void* opaque) {
  auto* listener = static_cast<Listener*>(opaque);
  if (listener == nullptr) return abi::kSuccess;
  if (defect("unused_listen_crash") && !listener->used) std::abort();
  for (const PendingAccept& peer : listener->pending) close(peer.fd);
  for (const int fd : listener->accepted) shutdown(fd, SHUT_RDWR), close(fd);
  close(listener->fd);
  delete listener;
  return abi::kSuccess;
}

}  // namespace clustar::sample
