#include "transport/tcp/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/tcp/recv_channel.h"

namespace clustar::transport::tcp {

Result<std::unique_ptr<TcpListener>> TcpListener::open(Nic& nic, const ChannelOptions& channel) {
  std::unique_ptr<TcpListener> listener(new TcpListener(nic));
  HandleInfo info;
  Error last_error;
  info.settings = nic.context().settings.shared;
  info.config = SharedConfig::of(channel);
  for (const net::Address& address : nic.interface().addresses) {
    auto socket = net::listen_on(address, nic.context().settings.socket);
    if (!socket) {
      // An address may have gone since the interfaces were listed; the others serve.
      nic.context().log.info("tcp: " + socket.error().message);
      last_error = socket.error();
      continue;
    }
    const Endpoint endpoint = net::local_address(*socket).endpoint();
    if (!info.has_room(endpoint)) break;
    info.endpoints.push_back(endpoint);
    listener->listening_.push_back(std::move(*socket));
  }
  if (info.endpoints.empty()) return tl::unexpected(last_error);
  if (const auto filled = net::fill_random(listener->token_); !filled) return tl::unexpected(filled.error());
  info.token = listener->token_;
  listener->handle_ = info.serialize();
  return listener;
}

Result<std::unique_ptr<RecvChannel>> TcpListener::poll_accept() {
  if (const auto taken = take_newcomers(); !taken) return tl::unexpected(taken.error());
  hear_newcomers();
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

Result<void> TcpListener::take_newcomers() {
  const TimePoint deadline = nic_.context().clock.now() + kHelloTimeout;
  for (const net::Socket& listening : listening_) {
    for (std::size_t taken = 0; taken < kMaxNewcomers; ++taken) {
      Newcomer newcomer;
      auto socket = net::accept_from(listening, &newcomer.from);
      if (!socket) {
        // Out of descriptors: strangers give theirs up before a peer is turned away.
        if (newcomers_.empty()) return tl::unexpected(socket.error());
        newcomers_.erase(newcomers_.begin());
        ++nic_.counters().strangers;
        continue;
      }
      if (!*socket) break;
      newcomer.socket = std::move(*socket);
      newcomer.deadline = deadline;
      if (newcomers_.size() == kMaxNewcomers) {
        // A flood of silent connections must not keep peers out: the oldest stranger makes room.
        newcomers_.erase(newcomers_.begin());
        ++nic_.counters().strangers;
      }
      newcomers_.push_back(std::move(newcomer));
    }
  }
  return {};
}

void TcpListener::hear_newcomers() {
  const TimePoint now = nic_.context().clock.now();
  std::erase_if(newcomers_, [&](Newcomer& newcomer) {
    const Fate fate = hear(newcomer);
    if (fate == Fate::kJoined) return true;
    if (fate == Fate::kWaits && now < newcomer.deadline) return false;
    ++nic_.counters().strangers;
    nic_.context().log.info(fmt::format("tcp: dropped a connection from {} that did not show this listener's token",
                                        newcomer.from.to_string()));
    return true;
  });
}

TcpListener::Fate TcpListener::hear(Newcomer& newcomer) {
  while (newcomer.have < newcomer.bytes.size()) {
    const net::IoResult got = net::read_some(newcomer.socket.fd(), std::span(newcomer.bytes).subspan(newcomer.have));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return Fate::kWaits;
    if (got.kind != net::IoResult::Kind::kBytes) return Fate::kGone;
    newcomer.have += got.bytes;
  }
  const auto hello = Hello::parse(newcomer.bytes);
  if (!hello || hello->token != token_ || hello->settings != nic_.context().settings.shared) return Fate::kGone;
  return admit(newcomer, *hello);
}

TcpListener::Fate TcpListener::admit(Newcomer& newcomer, const Hello& hello) {
  auto gathering = std::find_if(gatherings_.begin(), gatherings_.end(),
                                [&](const Gathering& known) { return known.connection_id == hello.connection_id; });
  const std::size_t wanted = hello.data_sockets + std::size_t{1};
  if (gathering == gatherings_.end()) {
    if (gatherings_.size() == kMaxGatherings) return Fate::kGone;
    gathering = gatherings_.emplace(gatherings_.end());
    gathering->connection_id = hello.connection_id;
    gathering->from = newcomer.from;
    gathering->sockets.resize(wanted);
  }
  if (gathering->sockets.size() != wanted || gathering->sockets[hello.role]) return Fate::kGone;
  gathering->sockets[hello.role] = std::move(newcomer.socket);
  return Fate::kJoined;
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
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the channel reports that.
  net::write_some(control.fd(), std::span<const std::byte>(bytes));
  std::vector<net::Socket> data(std::make_move_iterator(gathering.sockets.begin() + 1),
                                std::make_move_iterator(gathering.sockets.end()));
  for (const net::Socket& socket : data) net::probe_when_idle(socket);
  const std::string peer = fmt::format("{} (to {})", gathering.from.to_string(), nic_.interface().name);
  return std::make_unique<TcpRecvChannel>(nic_, std::move(control), std::move(data), peer);
}

}  // namespace clustar::transport::tcp
