#include "bench/perf/tcp_wire.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "bench/perf/control.h"

namespace clustar::bench::perf {

TcpWire::TcpWire(int rank, std::string address, int streams)
    : rank_(rank), address_(std::move(address)), streams_(static_cast<std::size_t>(streams)) {}

Result<std::vector<std::string>> TcpWire::listen(int count) {
  if (rank_ != 0) return std::vector<std::string>(static_cast<std::size_t>(count));
  auto listening = listen_on_any_port(address_);
  if (!listening) return tl::unexpected(listening.error());
  listener_ = std::move(listening->fd);
  return std::vector<std::string>(static_cast<std::size_t>(count), listening->address);
}

Result<void> TcpWire::connect(const std::vector<std::string>& handles, Clock::time_point deadline) {
  return rank_ == 0 ? accept_streams(deadline) : connect_streams(handles.at(0), deadline);
}

// Each connection says first which stream it is.
Result<void> TcpWire::accept_streams(Clock::time_point deadline) {
  const auto late = [] { return fail(ErrorCode::kRemote, "the sender of the TCP limit did not connect in time"); };
  for (std::size_t i = 0; i < streams_.size();) {
    if (!proxy::wait_for(listener_.fd(), POLLIN, deadline)) return late();
    FileDescriptor fd = proxy::tcp_accept(listener_.fd());
    if (!fd) continue;
    std::byte index{};
    bool timed_out = false;
    if (!proxy::read_all(fd.fd(), {&index, 1}, deadline, timed_out)) return late();
    const auto stream = std::to_integer<std::size_t>(index);
    if (stream >= streams_.size() || streams_[stream].fd) continue;  // a stranger
    streams_[stream].fd = std::move(fd);
    ++i;
  }
  listener_.close();
  return {};
}

Result<void> TcpWire::connect_streams(const std::string& address, Clock::time_point deadline) {
  const auto target = proxy::parse_host_port(address);
  if (!target) return tl::unexpected(target.error());
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    auto fd = proxy::tcp_connect(*target, deadline);
    if (!fd) return fail(fd.error().code, fmt::format("TCP limit, connect to {}: {}", address, fd.error().message));
    const auto index = static_cast<std::byte>(i);
    bool timed_out = false;
    if (!proxy::write_all(fd->fd(), {&index, 1}, deadline, timed_out)) {
      return fail(ErrorCode::kRemote, "TCP limit: the receiver closed the connection");
    }
    streams_[i].fd = std::move(*fd);
  }
  return {};
}

Result<void> TcpWire::attach(const Memory& send, const Memory& receive) {
  send_memory_ = send.data();
  receive_memory_ = receive.data();
  return {};
}

Result<void> TcpWire::close() {
  for (Stream& stream : streams_) stream.fd.close();
  listener_.close();
  return {};
}

Result<void*> TcpWire::post(bool sends, std::byte* data, std::size_t bytes) {
  const auto free = std::find_if(requests_.begin(), requests_.end(), [](const Request& r) { return !r.in_use; });
  if (free == requests_.end()) return nullptr;
  *free = Request{data, bytes, 0, sends, true};
  Stream& stream = streams_[(sends ? sent_++ : received_++) % streams_.size()];
  auto& queue = sends ? stream.sends : stream.receives;
  queue.push_back(&*free);
  // Its data cannot be there before the peer had time to send it; test() looks.
  if (sends && queue.size() == 1) {
    if (auto ok = progress(stream, true); !ok) return tl::unexpected(ok.error());
  }
  return static_cast<void*>(&*free);
}

Result<void*> TcpWire::post_send(int, std::size_t offset, std::size_t bytes) {
  return post(true, send_memory_ + offset, bytes);
}

Result<void*> TcpWire::post_receive(int, std::size_t offset, std::size_t bytes) {
  return post(false, receive_memory_ + offset, bytes);
}

Result<void> TcpWire::progress(Stream& stream, bool sends) {
  auto& queue = sends ? stream.sends : stream.receives;
  while (!queue.empty()) {
    std::array<iovec, 8> pieces;
    std::size_t used = 0;
    std::size_t room = kMaxPerCall;
    for (const Request* request : queue) {
      if (used == pieces.size() || room == 0) break;
      const std::size_t length = std::min(request->size - request->moved, room);
      pieces[used++] = {request->data + request->moved, length};
      room -= length;
    }
    msghdr message{};
    message.msg_iov = pieces.data();
    message.msg_iovlen = used;
    const ssize_t n = sends ? sendmsg(stream.fd.fd(), &message, MSG_DONTWAIT | MSG_NOSIGNAL)
                            : recvmsg(stream.fd.fd(), &message, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return {};
    if (n < 0) return fail(ErrorCode::kRemote, fmt::format("TCP limit: {}", std::strerror(errno)));
    if (n == 0) return fail(ErrorCode::kRemote, "TCP limit: the peer closed the connection");
    for (auto left = static_cast<std::size_t>(n); left > 0;) {
      Request& request = *queue.front();
      const std::size_t step = std::min(left, request.size - request.moved);
      request.moved += step;
      left -= step;
      if (request.moved == request.size) queue.pop_front();
    }
    // Less than asked for: the kernel has no more (room) now.
    if (static_cast<std::size_t>(n) < kMaxPerCall - room) return {};
    if (room == 0) return {};
  }
  return {};
}

Result<Tested> TcpWire::test(void* handle) {
  auto& request = *static_cast<Request*>(handle);
  if (request.moved < request.size) {
    for (Stream& stream : streams_) {
      if (auto ok = progress(stream, request.sends); !ok) return tl::unexpected(ok.error());
    }
    if (request.moved < request.size) return Tested{};
  }
  request.in_use = false;
  return Tested{true, request.size};
}

}  // namespace clustar::bench::perf
