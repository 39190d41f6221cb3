#include "mlt/driver/connect.h"

#include <fmt/format.h>

#include <utility>

#include "mlt/driver/send_channel.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<MltPendingConnect>> MltPendingConnect::start(Engine& engine, const net::Address& local,
                                                                    const transport::Handle& handle) {
  const auto info = HandleInfo::parse(handle);
  if (!info) {
    return fail(
        ErrorCode::kInvalidArgument,
        "mlt: this is not a handle of clustar's mlt transport of this version; do all ranks load the same plugin "
        "with the same CLUSTAR_TRANSPORT?");
  }
  const net::Address remote(info->endpoint);
  if (local.ipv6() != remote.ipv6()) {
    return fail(ErrorCode::kUnavailable, fmt::format("mlt: {} has the address {}, which cannot reach {}; see "
                                                     "CLUSTAR_SOCKET_FAMILY",
                                                     engine.name(), local.to_string(), remote.to_string()));
  }
  if (const auto differs = difference(SharedSettings::of(engine.options()), info->settings)) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: connect to {}: {}", remote.to_string(), *differs));
  }
  return std::unique_ptr<MltPendingConnect>(new MltPendingConnect(engine, local, *info));
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::poll() {
  if (state_ == State::kIdle) {
    const TimePoint now = engine_.context().clock.now();
    if (first_error_ && now < next_try_) return nullptr;
    try_began_ = now;
    if (const auto opened = open(); !opened) return on_failure(opened.error());
    state_ = State::kConnecting;
  }
  if (state_ == State::kConnecting) {
    const auto done = connected();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    state_ = State::kGreeting;
  }
  if (state_ == State::kGreeting) {
    const auto done = greeted();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    state_ = State::kWaiting;
  }
  return await_welcome();
}

Result<void> MltPendingConnect::open() {
  sent_ = have_ = 0;
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&connection_id_, 1))); !filled) {
    return filled;
  }
  auto socket = net::start_connect(local_, remote_, {});
  if (!socket) return tl::unexpected(socket.error());
  socket_ = std::move(*socket);
  net::detect_dead_host(socket_);
  Hello{info_.token, connection_id_, info_.settings, engine_.ports()}.serialize_to(hello_);
  return {};
}

Result<bool> MltPendingConnect::connected() {
  int error = 0;
  switch (net::connect_result(socket_, &error)) {
    case net::ConnectState::kConnected: return true;
    case net::ConnectState::kPending: break;
    case net::ConnectState::kFailed:
      return fail(ErrorCode::kRemote, fmt::format("mlt: connect to {} from {}: {}", remote_.to_string(), engine_.name(),
                                                  describe_errno(error)));
  }
  if (engine_.context().clock.now() - try_began_ <= kConnectTimeout) return false;
  return fail(ErrorCode::kRemote,
              fmt::format("mlt: connect to {} from {}: no answer within {} s; check routes and firewalls between the "
                          "hosts, or choose the interface by CLUSTAR_SOCKET_IFNAME",
                          remote_.to_string(), engine_.name(),
                          std::chrono::duration_cast<std::chrono::seconds>(kConnectTimeout).count()));
}

Result<bool> MltPendingConnect::greeted() {
  const net::IoResult sent = net::write_some(socket_.fd(), std::span<const std::byte>(hello_).subspan(sent_));
  if (sent.kind == net::IoResult::Kind::kError) {
    return fail(ErrorCode::kRemote,
                fmt::format("mlt: greeting {}: {}", remote_.to_string(), describe_errno(sent.error)));
  }
  sent_ += sent.bytes;
  return sent_ == hello_.size();
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::await_welcome() {
  while (have_ < welcome_.size()) {
    const net::IoResult got = net::read_some(socket_.fd(), std::span(welcome_).subspan(have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return nullptr;
    if (got.kind != net::IoResult::Kind::kBytes) {
      return on_failure(
          {ErrorCode::kRemote, fmt::format("mlt: {} closed the connection before accepting it: {}", remote_.to_string(),
                                           got.kind == net::IoResult::Kind::kClosed
                                               ? "the listener was closed, its process ended, or it refused the token"
                                               : describe_errno(got.error))});
    }
    have_ += got.bytes;
  }
  const auto welcome = Welcome::parse(welcome_);
  if (!welcome || welcome->ports.count != engine_.ports().count) {
    return fail(ErrorCode::kRemote, fmt::format("mlt: {} answered with another protocol", remote_.to_string()));
  }
  const std::string peer = fmt::format("{} (from {})", remote_.to_string(), engine_.name());
  auto channel = std::make_unique<MltSendChannel>(engine_, std::move(socket_), peer);
  const auto attached =
      channel->attach(Engine::End::kSends, remote_, welcome->ports, secret_of(info_.token, connection_id_));
  if (!attached) return tl::unexpected(attached.error());
  return channel;
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::on_failure(const Error& error) {
  if (error.code != ErrorCode::kRemote) return tl::unexpected(error);
  socket_.close();
  state_ = State::kIdle;
  const TimePoint now = engine_.context().clock.now();
  if (!first_error_) {
    first_error_ = error;
    first_failure_ = now;
  }
  if (now - first_failure_ >= kRetryTimeout) return tl::unexpected(*first_error_);
  next_try_ = now + kRetryInterval;
  return nullptr;
}

}  // namespace clustar::mlt::driver
