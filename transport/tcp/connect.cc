#include "transport/tcp/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/tcp/send_channel.h"

namespace clustar::transport::tcp {
namespace {

Result<void> compare_setting(const char* name, std::uint32_t here, std::uint32_t there, const net::Address& peer) {
  if (here == there) return {};
  return fail(ErrorCode::kInvalidUsage, fmt::format("tcp: {} is {} here and {} at {}; set it to the same on all ranks",
                                                    name, here, there, peer.to_string()));
}

}  // namespace

Result<std::unique_ptr<TcpPendingConnect>> TcpPendingConnect::start(Nic& nic, const Handle& handle,
                                                                    const ChannelOptions& channel) {
  auto info = HandleInfo::parse(handle);
  if (!info) {
    return fail(
        ErrorCode::kInvalidArgument,
        "tcp: this is not a handle of clustar's tcp transport of this version; do all ranks load the same plugin "
        "with the same CLUSTAR_TRANSPORT?");
  }
  const auto& addresses = nic.interface().addresses;
  const std::string offered = net::Address(info->endpoints.front()).to_string();
  if (const auto differs = difference(SharedConfig::of(channel), addresses.front().to_string(), info->config, offered,
                                      Config::shared_keys())) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("tcp: connect to {}: {}", offered, *differs));
  }
  const auto reachable = [&](const Endpoint& endpoint) {
    return std::any_of(addresses.begin(), addresses.end(),
                       [&](const net::Address& address) { return address.ipv6() == endpoint.ipv6; });
  };
  std::erase_if(info->endpoints, [&](const Endpoint& endpoint) { return !reachable(endpoint); });
  if (info->endpoints.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("tcp: {} has no address of the family to reach {}; see CLUSTAR_SOCKET_FAMILY",
                            nic.interface().name, offered));
  }
  const SharedSettings& here = nic.context().settings.shared;
  const net::Address peer(info->endpoints.front());
  if (const auto same = compare_setting("CLUSTAR_TCP_EAGER_BYTES", here.eager_bytes, info->settings.eager_bytes, peer);
      !same) {
    return tl::unexpected(same.error());
  }
  if (const auto same =
          compare_setting("CLUSTAR_TCP_WINDOW_BYTES", here.window_bytes, info->settings.window_bytes, peer);
      !same) {
    return tl::unexpected(same.error());
  }
  return std::unique_ptr<TcpPendingConnect>(new TcpPendingConnect(nic, std::move(*info)));
}

Result<std::unique_ptr<SendChannel>> TcpPendingConnect::poll() {
  if (state_ == State::kIdle) {
    const TimePoint now = nic_.context().clock.now();
    if (failures_ > 0 && now < next_try_) return nullptr;
    try_began_ = now;
    if (const auto opened = open_lines(); !opened) return on_failure(opened.error());
    state_ = State::kConnecting;
  }
  if (state_ == State::kConnecting) {
    const auto connected = lines_connected();
    if (!connected) return on_failure(connected.error());
    if (!*connected) return nullptr;
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

Result<void> TcpPendingConnect::open_lines() {
  lines_.clear();
  welcome_have_ = 0;
  Hello hello;
  hello.token = info_.token;
  hello.settings = nic_.context().settings.shared;
  hello.data_sockets = nic_.context().settings.data_sockets;
  std::array<std::byte, 8> id;
  if (const auto filled = net::fill_random(id); !filled) return filled;
  std::copy(id.begin(), id.end(), reinterpret_cast<std::byte*>(&hello.connection_id));
  const auto& addresses = nic_.interface().addresses;
  const auto local = std::find_if(addresses.begin(), addresses.end(),
                                  [this](const net::Address& address) { return address.ipv6() == remote().ipv6(); });
  for (std::uint8_t role = 0; role <= hello.data_sockets; ++role) {
    auto socket = net::start_connect(*local, remote(), nic_.context().settings.socket);
    if (!socket) return tl::unexpected(socket.error());
    if (role == 0) net::detect_dead_host(*socket);
    Line& line = lines_.emplace_back();
    line.socket = std::move(*socket);
    hello.role = role;
    hello.serialize_to(line.hello);
  }
  return {};
}

Result<bool> TcpPendingConnect::lines_connected() {
  bool all = true;
  for (Line& line : lines_) {
    if (line.connected) continue;
    int error = 0;
    switch (net::connect_result(line.socket, &error)) {
      case net::ConnectState::kConnected: line.connected = true; break;
      case net::ConnectState::kPending: all = false; break;
      case net::ConnectState::kFailed:
        return fail(ErrorCode::kRemote, fmt::format("tcp: connect to {} from {}: {}", remote().to_string(),
                                                    nic_.interface().name, describe_errno(error)));
    }
  }
  if (!all && nic_.context().clock.now() - try_began_ > kConnectTimeout) {
    return fail(ErrorCode::kRemote,
                fmt::format("tcp: connect to {} from {}: no answer within {} s; check routes and firewalls between the "
                            "hosts, or choose the interface by CLUSTAR_SOCKET_IFNAME",
                            remote().to_string(), nic_.interface().name,
                            std::chrono::duration_cast<std::chrono::seconds>(kConnectTimeout).count()));
  }
  return all;
}

Result<bool> TcpPendingConnect::greeted() {
  bool all = true;
  for (Line& line : lines_) {
    if (line.sent == line.hello.size()) continue;
    const net::IoResult sent =
        net::write_some(line.socket.fd(), std::span<const std::byte>(line.hello).subspan(line.sent));
    if (sent.kind == net::IoResult::Kind::kError) {
      return fail(ErrorCode::kRemote,
                  fmt::format("tcp: greeting {}: {}", remote().to_string(), describe_errno(sent.error)));
    }
    line.sent += sent.bytes;
    all = all && line.sent == line.hello.size();
  }
  return all;
}

Result<std::unique_ptr<SendChannel>> TcpPendingConnect::await_welcome() {
  while (welcome_have_ < welcome_.size()) {
    const net::IoResult got = net::read_some(lines_.front().socket.fd(), std::span(welcome_).subspan(welcome_have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return nullptr;
    if (got.kind != net::IoResult::Kind::kBytes) {
      return on_failure({ErrorCode::kRemote,
                         fmt::format("tcp: {} closed the connection before accepting it: {}", remote().to_string(),
                                     got.kind == net::IoResult::Kind::kClosed
                                         ? "the listener was closed, its process ended, or it refused the token"
                                         : describe_errno(got.error))});
    }
    welcome_have_ += got.bytes;
  }
  if (!Welcome::parse(welcome_)) {
    return fail(ErrorCode::kRemote, fmt::format("tcp: {} answered with another protocol", remote().to_string()));
  }
  std::vector<net::Socket> data;
  for (std::size_t i = 1; i < lines_.size(); ++i) data.push_back(std::move(lines_[i].socket));
  const std::string peer = fmt::format("{} (from {})", remote().to_string(), nic_.interface().name);
  return std::make_unique<TcpSendChannel>(nic_, std::move(lines_.front().socket), std::move(data), peer);
}

Result<std::unique_ptr<SendChannel>> TcpPendingConnect::on_failure(const Error& error) {
  if (error.code != ErrorCode::kRemote) return tl::unexpected(error);
  lines_.clear();
  state_ = State::kIdle;
  const TimePoint now = nic_.context().clock.now();
  if (!first_error_) {
    first_error_ = error;
    first_failure_ = now;
  }
  ++failures_;
  const bool all_tried = failures_ >= info_.endpoints.size();
  if (all_tried && now - first_failure_ >= kRetryTimeout) return tl::unexpected(*first_error_);
  endpoint_ = (endpoint_ + 1) % info_.endpoints.size();
  next_try_ = all_tried ? now + kRetryInterval : now;
  return nullptr;
}

}  // namespace clustar::transport::tcp
