#include "transport/verbs/connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/verbs/send_channel.h"

namespace clustar::transport::verbs {

Result<std::unique_ptr<VerbsPendingConnect>> VerbsPendingConnect::start(Nic& nic, const Handle& handle,
                                                                        const ChannelOptions& channel) {
  auto info = HandleInfo::parse(handle);
  if (!info) {
    return fail(ErrorCode::kInvalidArgument,
                "verbs: this is not a handle of clustar's verbs transport of this version; do all ranks load the same "
                "plugin with the same CLUSTAR_TRANSPORT?");
  }
  const auto& addresses = nic.control().addresses;
  const std::string offered = net::Address(info->endpoints.front()).to_string();
  if (const auto differs = difference(SharedConfig::of(channel), addresses.front().to_string(), info->config, offered,
                                      Config::shared_keys())) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("verbs: connect to {}: {}", offered, *differs));
  }
  std::erase_if(info->endpoints, [&](const Endpoint& endpoint) {
    return std::none_of(addresses.begin(), addresses.end(),
                        [&](const net::Address& address) { return address.ipv6() == endpoint.ipv6; });
  });
  if (info->endpoints.empty()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("verbs: {} has no address of the family to reach {}, where the peers meet before they use "
                            "RDMA; see CLUSTAR_SOCKET_FAMILY",
                            nic.control().name, offered));
  }
  return std::unique_ptr<VerbsPendingConnect>(new VerbsPendingConnect(nic, std::move(*info), channel.traffic_class));
}

Result<std::unique_ptr<SendChannel>> VerbsPendingConnect::poll() {
  if (state_ == State::kIdle) {
    if (failures_ > 0 && nic_.context().clock.now() < next_try_) return nullptr;
    try_began_ = nic_.context().clock.now();
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
  if (state_ == State::kWaiting) {
    const auto done = welcomed();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    state_ = State::kWiring;
  }
  const auto wired = wiring_->poll();
  if (!wired) return tl::unexpected(wired.error());
  if (!*wired) return nullptr;
  // One byte always fits; if the listener is gone, the channel reports that.
  net::write_some(control_.fd(), std::span(&kReady, 1));
  const std::string peer = fmt::format("{} (from {})", remote().to_string(), nic_.name());
  return std::make_unique<VerbsSendChannel>(nic_, std::move(wiring_), std::move(control_), peer);
}

Result<void> VerbsPendingConnect::open() {
  hello_sent_ = welcome_have_ = 0;
  if (!wiring_) {
    auto wiring = Wiring::make(nic_, Side::kSender, Wiring::pairs_of(nic_));
    if (!wiring) return tl::unexpected(wiring.error());
    wiring_ = std::move(*wiring);
    Hello{info_.token, wiring_->contact()}.serialize_to(hello_);
  }
  const auto& addresses = nic_.control().addresses;
  const auto local = std::find_if(addresses.begin(), addresses.end(),
                                  [this](const net::Address& address) { return address.ipv6() == remote().ipv6(); });
  auto socket = net::start_connect(*local, remote(), {});
  if (!socket) return tl::unexpected(socket.error());
  net::detect_dead_host(*socket);
  control_ = std::move(*socket);
  return {};
}

Result<bool> VerbsPendingConnect::connected() {
  int error = 0;
  switch (net::connect_result(control_, &error)) {
    case net::ConnectState::kConnected: return true;
    case net::ConnectState::kPending: break;
    case net::ConnectState::kFailed:
      return fail(ErrorCode::kRemote, fmt::format("verbs: connect to {} from {}: {}", remote().to_string(),
                                                  nic_.control().name, describe_errno(error)));
  }
  if (nic_.context().clock.now() - try_began_ > kConnectTimeout) {
    return fail(ErrorCode::kRemote,
                fmt::format("verbs: connect to {} from {}: no answer within {} s; check routes and firewalls between "
                            "the hosts, or choose the interface by CLUSTAR_SOCKET_IFNAME",
                            remote().to_string(), nic_.control().name,
                            std::chrono::duration_cast<std::chrono::seconds>(kConnectTimeout).count()));
  }
  return false;
}

Result<bool> VerbsPendingConnect::greeted() {
  const net::IoResult sent = net::write_some(control_.fd(), std::span<const std::byte>(hello_).subspan(hello_sent_));
  if (sent.kind == net::IoResult::Kind::kError) {
    return fail(ErrorCode::kRemote,
                fmt::format("verbs: greeting {}: {}", remote().to_string(), describe_errno(sent.error)));
  }
  hello_sent_ += sent.bytes;
  return hello_sent_ == hello_.size();
}

Result<bool> VerbsPendingConnect::welcomed() {
  while (welcome_have_ < welcome_.size()) {
    const net::IoResult got = net::read_some(control_.fd(), std::span(welcome_).subspan(welcome_have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return false;
    if (got.kind != net::IoResult::Kind::kBytes) {
      return fail(ErrorCode::kRemote,
                  fmt::format("verbs: {} closed the connection before accepting it: {}", remote().to_string(),
                              got.kind == net::IoResult::Kind::kClosed
                                  ? "the listener was closed, its process ended, or it could not connect its queue "
                                    "pairs: see its log"
                                  : describe_errno(got.error)));
    }
    welcome_have_ += got.bytes;
  }
  const auto welcome = Welcome::parse(welcome_);
  if (!welcome || welcome->contact.queue_pairs.size() > Wiring::pairs_of(nic_)) {
    return fail(ErrorCode::kInternal, fmt::format("verbs: {} answered with another protocol", remote().to_string()));
  }
  if (const auto started = wiring_->start(welcome->contact, traffic_class_); !started) {
    return tl::unexpected(started.error());
  }
  return true;
}

Result<std::unique_ptr<SendChannel>> VerbsPendingConnect::on_failure(const Error& error) {
  if (error.code != ErrorCode::kRemote) return tl::unexpected(error);
  control_.close();
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

}  // namespace clustar::transport::verbs
