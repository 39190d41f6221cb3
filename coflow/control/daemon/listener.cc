#include "coflow/control/daemon/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

namespace clustar::coflow::control {
namespace {

constexpr std::chrono::milliseconds kPauseWithoutMemory{50};

FileDescriptor spare_descriptor() { return FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(boost::asio::io_context& io, const Tcp::endpoint& endpoint,
                                                 const std::string& option, Take take) {
  std::unique_ptr<Listener> made(new Listener(io, std::move(take)));
  boost::system::error_code error;
  Tcp::acceptor& acceptor = made->acceptor_;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(boost::asio::socket_base::max_listen_connections, error);
  if (!error) acceptor.non_blocking(true, error);
  if (!error) made->local_ = acceptor.local_endpoint(error);
  if (error) {
    const bool used = error == boost::asio::error::address_in_use;
    return fail(ErrorCode::kSystem,
                fmt::format("{}: cannot listen on {}: {}{}", option, to_text(endpoint), error.message(),
                            used ? "; another process has this port: `ss -ltnp` names it" : ""));
  }
  // They are the daemon's alone, though Asio opens them for its children, too.
  fcntl(acceptor.native_handle(), F_SETFD, FD_CLOEXEC);
  made->spare_ = spare_descriptor();
  made->wait();
  return made;
}

void Listener::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
  pause_.cancel();
}

void Listener::wait() {
  acceptor_.async_wait(Tcp::acceptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) accept();
  });
}

void Listener::accept() {
  for (int i = 0; i < kMostInARow; ++i) {
    if (!accept_one()) return;
  }
  wait();
}

bool Listener::accept_one() {
  Tcp::endpoint peer;
  socklen_t length = static_cast<socklen_t>(peer.capacity());
  const int fd = ::accept4(acceptor_.native_handle(), peer.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) {
    peer.resize(length);
    if (!take_(fd, peer)) ::close(fd);
    return true;
  }
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    wait();
    return false;
  }
  ++failures_;
  if (errno == EINTR || errno == ECONNABORTED || errno == EPROTO) return true;
  if ((errno == EMFILE || errno == ENFILE) && spare_) {
    spare_.close();
    if (const int sent_away = ::accept(acceptor_.native_handle(), nullptr, nullptr); sent_away >= 0) ::close(sent_away);
    spare_ = spare_descriptor();
    if (spare_) return true;
  }
  if (!spare_) spare_ = spare_descriptor();
  pause_.expires_after(kPauseWithoutMemory);
  pause_.async_wait([this](const boost::system::error_code& error) {
    if (!error) wait();
  });
  return false;
}

}  // namespace clustar::coflow::control
