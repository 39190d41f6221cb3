#include "transport/tcp/connect.h"

#include <fmt/format.h>

#include <utility>
#include <vector>

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
  net::SocketOptions options = nic.context().settings.socket;
  options.traffic_class = channel.traffic_class;
  handshake::Caller caller{"tcp", nic.interface().name, nic.interface().addresses, options};
  const auto info = HandleInfo::parse(handle);
  if (!info) return tl::unexpected(caller.not_a_handle());
  auto dial = handshake::Dial::to(nic.context().clock, std::move(caller), info->invitation, SharedConfig::of(channel));
  if (!dial) return tl::unexpected(dial.error());
  const SharedSettings& here = nic.context().settings.shared;
  const net::Address peer = dial->remote();
  if (const auto same = compare_setting("CLUSTAR_TCP_EAGER_BYTES", here.eager_bytes, info->settings.eager_bytes, peer);
      !same) {
    return tl::unexpected(same.error());
  }
  if (const auto same =
          compare_setting("CLUSTAR_TCP_WINDOW_BYTES", here.window_bytes, info->settings.window_bytes, peer);
      !same) {
    return tl::unexpected(same.error());
  }
  return std::unique_ptr<TcpPendingConnect>(new TcpPendingConnect(nic, info->invitation, channel, std::move(*dial)));
}

Result<std::unique_ptr<SendChannel>> TcpPendingConnect::poll() {
  const auto done = welcomed();
  if (!done) return dial_.failed(done.error());
  if (!*done) return nullptr;
  std::vector<net::Socket> sockets = dial_.take_sockets();
  net::Socket control = std::move(sockets.front());
  sockets.erase(sockets.begin());
  const net::Address remote = dial_.remote();
  TcpSendChannel::Facts facts{.connection = {remote.host_number(), channel_.job},
                              .peer = {remote.host(), invitation_.config.rank},
                              .shown = fmt::format("{} (from {})", remote.to_string(), nic_.interface().name),
                              .traffic_class = channel_.traffic_class,
                              .identify = invitation_.reads_identity};
  return std::make_unique<TcpSendChannel>(nic_, std::move(facts), std::move(control), std::move(sockets));
}

Result<bool> TcpPendingConnect::welcomed() {
  if (dial_.begin_try()) {
    if (const auto opened = open_lines(); !opened) return tl::unexpected(opened.error());
  }
  const auto heard = dial_.hear(welcome_);
  if (!heard || !*heard) return heard;
  if (!Welcome::parse(welcome_)) return tl::unexpected(dial_.another_protocol());
  return true;
}

Result<void> TcpPendingConnect::open_lines() {
  Hello hello;
  hello.token = invitation_.token;
  hello.rank = channel_.rank;
  hello.settings = nic_.context().settings.sending();
  hello.data_sockets = nic_.context().settings.data_sockets;
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&hello.connection_id, 1))); !filled) {
    return filled;
  }
  for (std::uint8_t role = 0; role <= hello.data_sockets; ++role) {
    hello.role = role;
    std::array<std::byte, Hello::kSize> bytes;
    hello.serialize_to(bytes);
    if (const auto opened = dial_.open(bytes); !opened) return opened;
  }
  return {};
}

}  // namespace clustar::transport::tcp
