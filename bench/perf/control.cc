#include "bench/perf/control.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

namespace clustar::bench::perf {

using nlohmann::json;

Control::Control(FileDescriptor fd) : fd_(std::move(fd)) { fcntl(fd_.fd(), F_SETFL, O_NONBLOCK); }

bool Control::send(const json& message) {
  // A plugin's text may hold anything; what is not UTF-8 is replaced.
  const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(send_mutex_);
  bool timed_out = false;
  return proxy::write_all(fd_.fd(), std::as_bytes(std::span(line)),
                          std::chrono::steady_clock::now() + std::chrono::seconds(10), timed_out);
}

Control::State Control::poll(json* message) {
  for (;;) {
    if (const auto end = unread_.find('\n'); end != std::string::npos) {
      *message = json::parse(unread_.begin(), unread_.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
      unread_.erase(0, end + 1);
      return message->is_object() ? State::kMessage : State::kClosed;
    }
    if (unread_.size() > kMaxLine) return State::kClosed;
    std::array<char, 65536> block;
    const ssize_t n = recv(fd_.fd(), block.data(), block.size(), MSG_DONTWAIT);
    if (n > 0) {
      unread_.append(block.data(), static_cast<std::size_t>(n));
    } else if (n < 0 && errno == EINTR) {
      continue;
    } else {
      return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? State::kNothing : State::kClosed;
    }
  }
}

Control::State Control::wait(json* message, proxy::Deadline deadline) {
  for (;;) {
    const State state = poll(message);
    if (state != State::kNothing) return state;
    if (!proxy::wait_for(fd_.fd(), POLLIN, deadline)) return State::kNothing;
  }
}

json to_json(const Error& error) { return {{"error", error.message}, {"code", static_cast<int>(error.code)}}; }

Error error_from(const json& message) {
  const int code = message.value("code", -1);
  const bool known = code >= 0 && code <= static_cast<int>(ErrorCode::kInternal);
  return {known ? static_cast<ErrorCode>(code) : ErrorCode::kInternal, message.value("error", "no reason given")};
}

namespace {

struct Name {
  std::string host;
  std::string address;
};

Name name_of(int fd) {
  sockaddr_storage local{};
  socklen_t length = sizeof local;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) return {};
  if (local.ss_family == AF_INET) {
    const auto* in4 = reinterpret_cast<const sockaddr_in*>(&local);
    inet_ntop(AF_INET, &in4->sin_addr, text.data(), text.size());
    return {text.data(), fmt::format("{}:{}", text.data(), ntohs(in4->sin_port))};
  }
  if (local.ss_family != AF_INET6) return {};
  const auto* in6 = reinterpret_cast<const sockaddr_in6*>(&local);
  // A dual-stack listener sees IPv4 peers as mapped addresses.
  if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
    inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], text.data(), text.size());
    return {text.data(), fmt::format("{}:{}", text.data(), ntohs(in6->sin6_port))};
  }
  inet_ntop(AF_INET6, &in6->sin6_addr, text.data(), text.size());
  return {text.data(), fmt::format("[{}]:{}", text.data(), ntohs(in6->sin6_port))};
}

}  // namespace

std::string local_address(int fd) {
  const Name name = name_of(fd);
  return name.host.empty() ? "127.0.0.1" : name.host;
}

Result<Listening> listen_on_any_port(const std::string& host) {
  auto fd = proxy::tcp_listen({host, "0"});
  if (!fd) return fail(fd.error().code, fmt::format("cannot listen on {}: {}", host, fd.error().message));
  std::string address = name_of(fd->fd()).address;
  return Listening{std::move(*fd), std::move(address)};
}

}  // namespace clustar::bench::perf
