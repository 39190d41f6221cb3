#include "transport/handshake/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace clustar::transport::handshake {

Result<void> Caller::compare(const SharedConfig& here, const SharedConfig& there, const net::Address& remote) const {
  const std::string offered = remote.to_string();
  const auto differs = difference(here, addresses.front().to_string(), there, offered);
  if (!differs) return {};
  return fail(ErrorCode::kInvalidArgument, fmt::format("{}: connect to {}: {}", transport, offered, *differs));
}

Result<std::vector<net::Endpoint>> Caller::reachable(const std::vector<net::Endpoint>& endpoints) const {
  std::vector<net::Endpoint> kept;
  std::ranges::copy_if(endpoints, std::back_inserter(kept), [this](const net::Endpoint& endpoint) {
    return std::ranges::any_of(addresses, [&](const net::Address& own) { return own.ipv6() == endpoint.ipv6; });
  });
  if (!kept.empty()) return kept;
  return fail(ErrorCode::kUnavailable,
              fmt::format("{}: {} has no address of the family to reach {}{}; see CLUSTAR_SOCKET_FAMILY", transport,
                          interface, net::Address(endpoints.front()).to_string(), purpose));
}

Error Caller::not_a_handle() const {
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("{0}: this is not a handle of clustar's {0} transport of this version; do all ranks load the same "
                  "plugin with the same CLUSTAR_TRANSPORT?",
                  transport)};
}

Result<Dial> Dial::to(const Clock& clock, Caller caller, const Invitation& invitation, const SharedConfig& here) {
  const net::Address offered(invitation.endpoints.front());
  if (const auto alike = caller.compare(here, invitation.config, offered); !alike) {
    return tl::unexpected(alike.error());
  }
  auto endpoints = caller.reachable(invitation.endpoints);
  if (!endpoints) return tl::unexpected(endpoints.error());
  return Dial(clock, std::move(caller), std::move(*endpoints));
}

Dial::Dial(const Clock& clock, Caller caller, std::vector<net::Endpoint> endpoints)
    : clock_(clock), caller_(std::move(caller)), endpoints_(std::move(endpoints)), plan_(endpoints_.size()) {}

bool Dial::begin_try() {
  const TimePoint now = clock_.now();
  if (final_ || trying_ || !plan_.due(now)) return false;
  trying_ = true;
  plan_.begin(now);
  return true;
}

Result<void> Dial::open(std::span<const std::byte> hello) {
  if (final_) return tl::unexpected(*final_);
  const auto local = std::ranges::find_if(
      caller_.addresses, [this](const net::Address& address) { return address.ipv6() == remote().ipv6(); });
  auto socket = net::start_connect(*local, remote(), caller_.options);
  if (!socket) return tl::unexpected(socket.error());
  if (lines_.empty()) net::detect_dead_host(*socket);
  lines_.push_back({std::move(*socket), {hello.begin(), hello.end()}});
  return {};
}

Result<bool> Dial::connected() {
  bool all = true;
  for (Line& line : lines_) {
    if (line.connected) continue;
    int error = 0;
    switch (net::connect_result(line.socket, &error)) {
      case net::ConnectState::kConnected: line.connected = true; break;
      case net::ConnectState::kPending: all = false; break;
      case net::ConnectState::kFailed:
        return fail(ErrorCode::kRemote, fmt::format("{}: connect to {} from {}: {}", caller_.transport,
                                                    remote().to_string(), caller_.interface, describe_errno(error)));
    }
  }
  if (all || !plan_.too_late(clock_.now())) return all;
  return fail(ErrorCode::kRemote,
              fmt::format("{}: connect to {} from {}: no answer within {} s; check routes and firewalls between the "
                          "hosts, or choose the interface by CLUSTAR_SOCKET_IFNAME",
                          caller_.transport, remote().to_string(), caller_.interface,
                          std::chrono::duration_cast<std::chrono::seconds>(RetryPlan::kConnectTimeout).count()));
}

Result<bool> Dial::greeted() {
  bool all = true;
  for (Line& line : lines_) {
    if (line.said == line.hello.size()) continue;
    const net::IoResult sent =
        net::write_some(line.socket.fd(), std::span(std::as_const(line.hello)).subspan(line.said));
    if (sent.kind == net::IoResult::Kind::kError) {
      return fail(ErrorCode::kRemote, fmt::format("{}: greeting {}: {}", caller_.transport, remote().to_string(),
                                                  describe_errno(sent.error)));
    }
    line.said += sent.bytes;
    all = all && line.said == line.hello.size();
  }
  return all;
}

Result<bool> Dial::hear(std::span<std::byte> into) {
  if (final_) return tl::unexpected(*final_);
  if (lines_.empty()) return false;
  if (const auto all = connected(); !all || !*all) return all;
  if (const auto all = greeted(); !all || !*all) return all;
  while (have_ < into.size()) {
    const net::IoResult got = net::read_some(control().fd(), into.subspan(have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return false;
    if (got.kind != net::IoResult::Kind::kBytes) {
      return fail(
          ErrorCode::kRemote,
          fmt::format("{}: {} closed the connection before accepting it: {}", caller_.transport, remote().to_string(),
                      got.kind == net::IoResult::Kind::kClosed
                          ? "the listener was closed, its process ended, or " + caller_.refusal
                          : describe_errno(got.error)));
    }
    have_ += got.bytes;
  }
  have_ = 0;
  return true;
}

Result<std::unique_ptr<SendChannel>> Dial::failed(const Error& error) {
  trying_ = false;
  lines_.clear();
  have_ = 0;
  if (!final_) final_ = plan_.on_failure(error, clock_.now());
  if (final_) return tl::unexpected(*final_);
  return nullptr;
}

std::vector<net::Socket> Dial::take_sockets() {
  std::vector<net::Socket> sockets;
  for (Line& line : lines_) sockets.push_back(std::move(line.socket));
  lines_.clear();
  return sockets;
}

Error Dial::another_protocol() const {
  return {ErrorCode::kInvalidUsage,
          fmt::format("{}: {} answered with another protocol", caller_.transport, remote().to_string())};
}

}  // namespace clustar::transport::handshake
