#include "transport/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/tcp/recv_channel.h"

namespace clustar::transport::tcp {

Result<std::unique_ptr<TcpListener>> TcpListener::open(Nic& nic, const ChannelOptions& channel) {
  const Context& context = nic.context();
  auto reception = handshake::Reception::open(
      {"tcp", context.clock, context.log, [&nic] { ++nic.counters().strangers; }}, Hello::kFormat,
      nic.interface().addresses, context.settings.socket, HandleInfo::kFormat.room());
  if (!reception) return tl::unexpected(reception.error());
  std::unique_ptr<TcpListener> listener(new TcpListener(nic, channel.traffic_class, std::move(*reception)));
  const HandleInfo info{listener->reception_.invitation(channel), context.settings.shared};
  listener->handle_ = info.serialize();
  return listener;
}

Result<std::unique_ptr<RecvChannel>> TcpListener::poll_accept() {
  auto heard = reception_.hear();
  if (!heard) return tl::unexpected(heard.error());
  for (handshake::Newcomer& newcomer : *heard) {
    if (const auto admitted = admit(newcomer); !admitted) reception_.drop(newcomer, admitted.error().message);
  }
  drop_dead_gatherings();
  for (auto gathering = gatherings_.begin(); gathering != gatherings_.end(); ++gathering) {
    const bool whole = std::all_of(gathering->sockets.begin(), gathering->sockets.end(),
                                   [](const net::Socket& socket) { return static_cast<bool>(socket); });
    if (!whole) continue;
    Gathering complete = std::move(*gathering);
    gatherings_.erase(gathering);
    return welcome(complete);
  }
  return nullptr;
}

Result<void> TcpListener::admit(handshake::Newcomer& newcomer) {
  const auto refuse = [](const char* why) { return fail(ErrorCode::kRemote, why); };
  const auto parsed = Hello::parse(std::span(newcomer.said).first<Hello::kSize>());
  if (!parsed) return refuse("its hello has fields that this version does not know");
  const SharedSettings& here = nic_.context().settings.shared;
  if (parsed->settings.eager_bytes > here.eager_bytes || parsed->settings.window_bytes != here.window_bytes) {
    return refuse("its CLUSTAR_TCP_EAGER_BYTES or CLUSTAR_TCP_WINDOW_BYTES is not this rank's; set them alike");
  }
  const Hello& hello = *parsed;
  auto gathering = std::find_if(gatherings_.begin(), gatherings_.end(),
                                [&](const Gathering& known) { return known.connection_id == hello.connection_id; });
  const std::size_t wanted = hello.data_sockets + std::size_t{1};
  if (gathering == gatherings_.end()) {
    if (gatherings_.size() == kMaxGatherings) return refuse("too many others have not opened all their sockets yet");
    gathering = gatherings_.emplace(gatherings_.end());
    gathering->connection_id = hello.connection_id;
    gathering->from = newcomer.from;
    gathering->rank = hello.rank;
    gathering->settings = hello.settings;
    gathering->sockets.resize(wanted);
  }
  if (gathering->sockets.size() != wanted || gathering->sockets[hello.role]) {
    return refuse("it is not the socket that its connection still lacks");
  }
  gathering->sockets[hello.role] = std::move(newcomer.socket);
  return {};
}

// A connector that died half-way would otherwise be kept for as long as the listener lives.
void TcpListener::drop_dead_gatherings() {
  std::erase_if(gatherings_, [](const Gathering& gathering) {
    return std::any_of(gathering.sockets.begin(), gathering.sockets.end(), [](const net::Socket& socket) {
      if (!socket) return false;
      std::byte next;
      const ssize_t got = ::recv(socket.fd(), &next, 1, MSG_PEEK | MSG_DONTWAIT);
      return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    });
  });
}

Result<std::unique_ptr<RecvChannel>> TcpListener::welcome(Gathering& gathering) {
  std::array<std::byte, Welcome::kSize> bytes;
  Welcome::serialize_to(bytes);
  net::Socket control = std::move(gathering.sockets.front());
  net::detect_dead_host(control);
  // Of clear-to-sends, and of acknowledgements.
  const int own_class = traffic_class_ >= 0 ? traffic_class_ : nic_.context().settings.classes.traffic_class(0);
  net::set_traffic_class(control, own_class);
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the channel reports that.
  net::write_some(control.fd(), std::span<const std::byte>(bytes));
  std::vector<net::Socket> data(std::make_move_iterator(gathering.sockets.begin() + 1),
                                std::make_move_iterator(gathering.sockets.end()));
  for (const net::Socket& socket : data) {
    net::probe_when_idle(socket);
    net::set_traffic_class(socket, own_class);
  }
  const PeerInfo peer{gathering.from.host(), gathering.rank};
  const std::string shown = fmt::format("{} (to {})", gathering.from.to_string(), nic_.interface().name);
  return std::make_unique<TcpRecvChannel>(nic_, gathering.settings, std::move(control), std::move(data), peer, shown,
                                          traffic_class_);
}

}  // namespace clustar::transport::tcp
