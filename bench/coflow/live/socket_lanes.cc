#include "bench/coflow/live/socket_lanes.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::coflow::live {
namespace {

constexpr std::uint64_t kBlock = 256 * 1024;
constexpr std::uint64_t kControl = ~std::uint64_t{0};  // of epoll

Error errno_error(const std::string& what) {
  return Error{ErrorCode::kSystem, fmt::format("{}: {}", what, std::strerror(errno))};
}

struct Lane {
  FileDescriptor listener, socket;
  bool connecting = false;
  std::deque<std::uint64_t> flows;  // bytes that are left of each
};

class SocketLanes final : public Lanes {
 public:
  SocketLanes(std::string address, std::string congestion_control)
      : address_(std::move(address)),
        congestion_control_(std::move(congestion_control)),
        epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

  Result<void> check() {
    if (!epoll_) return tl::unexpected(errno_error("epoll_create1"));
    return {};
  }

  Result<LaneHandle> listen(LaneId id) override {
    FileDescriptor listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    socklen_t length = sizeof name;
    if (!listener || inet_pton(AF_INET, address_.c_str(), &name.sin_addr) != 1 ||
        bind(listener.fd(), reinterpret_cast<sockaddr*>(&name), length) != 0 || ::listen(listener.fd(), 1) != 0 ||
        getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&name), &length) != 0) {
      return tl::unexpected(errno_error("a socket that listens on " + address_));
    }
    LaneHandle handle{};
    std::memcpy(handle.data(), &name, sizeof name);
    receiving_[id].listener = std::move(listener);
    return handle;
  }

  Result<void> connect(LaneId id, const LaneHandle& handle) override {
    sockaddr_in name;
    std::memcpy(&name, handle.data(), sizeof name);
    FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd) return tl::unexpected(errno_error("a socket"));
    if (!congestion_control_.empty() && setsockopt(fd.fd(), IPPROTO_TCP, TCP_CONGESTION, congestion_control_.data(),
                                                   static_cast<socklen_t>(congestion_control_.size())) != 0) {
      return tl::unexpected(errno_error("congestion control " + congestion_control_));
    }
    const int one = 1;
    (void)setsockopt(fd.fd(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (::connect(fd.fd(), reinterpret_cast<sockaddr*>(&name), sizeof name) != 0 && errno != EINPROGRESS) {
      return tl::unexpected(errno_error("connect"));
    }
    Lane& lane = sending_[id];
    lane.socket = std::move(fd);
    lane.connecting = true;
    return {};
  }

  Result<bool> open() override {
    bool all = true;
    for (auto& [id, lane] : sending_) {
      if (!lane.connecting) continue;
      const auto done = connected(lane);
      if (!done) return tl::unexpected(done.error());
      all = all && *done;
    }
    for (auto& [id, lane] : receiving_) {
      if (lane.socket) continue;
      lane.socket = FileDescriptor(accept4(lane.listener.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!lane.socket && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        return tl::unexpected(errno_error("accept"));
      }
      if (lane.socket) lane.listener.close();
      all = all && static_cast<bool>(lane.socket);
    }
    return all;
  }

  void send(LaneId id, const FlowToSend& flow) override {
    Lane& lane = sending_.at(id);
    lane.flows.push_back(flow.bytes);
    if (lane.flows.size() == 1) watch(lane, id, EPOLLOUT, EPOLL_CTL_ADD);
  }

  void receive(LaneId id, std::uint64_t bytes) override {
    Lane& lane = receiving_.at(id);
    lane.flows.push_back(bytes);
    if (lane.flows.size() == 1) watch(lane, id, EPOLLIN, EPOLL_CTL_ADD);
  }

  Result<void> move(std::vector<LaneId>& arrived) override {
    if (failed_) return tl::unexpected(*failed_);
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.fd(), events.data(), events.size(), 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
      if (id == kControl) continue;
      const auto lane = static_cast<LaneId>(id);
      const auto sends = sending_.find(lane);
      if (const auto ok = sends != sending_.end() ? push_out(sends->second, lane) : take_in(lane, arrived); !ok)
        return ok;
    }
    return {};
  }

  void wait(int wake, Duration at_most) override {
    if (!watches_control_) {
      epoll_event event{.events = EPOLLIN, .data = {.u64 = kControl}};
      (void)epoll_ctl(epoll_.fd(), EPOLL_CTL_ADD, wake, &event);
      watches_control_ = true;
    }
    epoll_event event;  // it stays ready: the next move() sees it, too
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most).count();
    (void)epoll_wait(epoll_.fd(), &event, 1, static_cast<int>(ms));
  }

 private:
  static Result<bool> connected(Lane& lane) {
    if (!proxy::wait_for(lane.socket.fd(), EPOLLOUT, std::chrono::steady_clock::now())) return false;
    int error = 0;
    socklen_t length = sizeof error;
    (void)getsockopt(lane.socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
    errno = error;
    if (error != 0) return tl::unexpected(errno_error("connect"));
    lane.connecting = false;
    return true;
  }

  void watch(const Lane& lane, LaneId id, std::uint32_t what, int how) {
    epoll_event event{.events = what, .data = {.u64 = id}};
    if (epoll_ctl(epoll_.fd(), how, lane.socket.fd(), &event) != 0) failed_ = errno_error("epoll_ctl");
  }

  Result<void> push_out(Lane& lane, LaneId id) {
    while (!lane.flows.empty()) {
      const std::uint64_t length = std::min(lane.flows.front(), kBlock);
      const ssize_t sent = ::send(lane.socket.fd(), memory_.data(), length, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (sent < 0) return tl::unexpected(errno_error("send"));
      lane.flows.front() -= static_cast<std::uint64_t>(sent);
      if (lane.flows.front() == 0) lane.flows.pop_front();
    }
    watch(lane, id, 0, EPOLL_CTL_DEL);
    return {};
  }

  Result<void> take_in(LaneId id, std::vector<LaneId>& arrived) {
    Lane& lane = receiving_.at(id);
    while (!lane.flows.empty()) {
      const std::uint64_t length = std::min(lane.flows.front(), kBlock);
      const ssize_t got = ::recv(lane.socket.fd(), memory_.data(), length, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
      if (got < 0) return tl::unexpected(errno_error("recv"));
      if (got == 0) return fail(ErrorCode::kRemote, "a peer closed its connection");
      lane.flows.front() -= static_cast<std::uint64_t>(got);
      if (lane.flows.front() > 0) continue;
      lane.flows.pop_front();
      arrived.push_back(id);
    }
    watch(lane, id, 0, EPOLL_CTL_DEL);
    return {};
  }

  const std::string address_, congestion_control_;
  const FileDescriptor epoll_;
  bool watches_control_ = false;
  std::optional<Error> failed_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBlock);  // of all lanes: nobody reads what is sent
  std::map<LaneId, Lane> sending_, receiving_;
};

}  // namespace

Result<std::unique_ptr<Lanes>> socket_lanes(const std::string& address, const std::string& congestion_control) {
  auto lanes = std::make_unique<SocketLanes>(address, congestion_control);
  if (const auto ok = lanes->check(); !ok) return tl::unexpected(ok.error());
  return lanes;
}

}  // namespace clustar::bench::coflow::live
