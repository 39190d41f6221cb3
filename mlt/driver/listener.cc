#include "mlt/driver/listener.h"

#include <fmt/format.h>

#include <utility>

#include "mlt/driver/recv_channel.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<MltListener>> MltListener::open(Engine& engine, const net::Address& address) {
  std::unique_ptr<MltListener> listener(new MltListener(engine));
  auto socket = net::listen_on(address, {});
  if (!socket) return tl::unexpected(socket.error());
  if (const auto filled = net::fill_random(listener->token_); !filled) return tl::unexpected(filled.error());
  HandleInfo info;
  info.token = listener->token_;
  info.settings = SharedSettings::of(engine.options());
  info.endpoint = net::local_address(*socket).endpoint();
  listener->listening_ = std::move(*socket);
  listener->handle_ = info.serialize();
  return listener;
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::poll_accept() {
  if (const auto taken = take_newcomers(); !taken) return tl::unexpected(taken.error());
  const TimePoint now = engine_.context().clock.now();
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    const Fate fate = hear(*newcomer);
    if (fate == Fate::kWaits && now < newcomer->deadline) {
      ++newcomer;
      continue;
    }
    Newcomer heard = std::move(*newcomer);
    newcomer = newcomers_.erase(newcomer);
    if (fate == Fate::kPeer) return welcome(heard, *Hello::parse(heard.bytes));
    drop(heard);
  }
  return nullptr;
}

Result<void> MltListener::take_newcomers() {
  const TimePoint deadline = engine_.context().clock.now() + kHelloTimeout;
  for (std::size_t taken = 0; taken < kMaxNewcomers; ++taken) {
    Newcomer newcomer;
    auto socket = net::accept_from(listening_, &newcomer.from);
    // Out of descriptors, or a flood of silent connections: the oldest stranger makes room, no peer is turned away.
    if (!socket && newcomers_.empty()) return tl::unexpected(socket.error());
    if (socket && !*socket) break;
    if (!socket || newcomers_.size() == kMaxNewcomers) {
      drop(newcomers_.front());
      newcomers_.erase(newcomers_.begin());
    }
    if (!socket) continue;
    newcomer.socket = std::move(*socket);
    newcomer.deadline = deadline;
    newcomers_.push_back(std::move(newcomer));
  }
  return {};
}

MltListener::Fate MltListener::hear(Newcomer& newcomer) const {
  while (newcomer.have < newcomer.bytes.size()) {
    const net::IoResult got = net::read_some(newcomer.socket.fd(), std::span(newcomer.bytes).subspan(newcomer.have));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return Fate::kWaits;
    if (got.kind != net::IoResult::Kind::kBytes) return Fate::kGone;
    newcomer.have += got.bytes;
  }
  const auto hello = Hello::parse(newcomer.bytes);
  if (!hello || hello->token != token_ || hello->ports.count != engine_.ports().count) return Fate::kGone;
  if (const auto differs = difference(SharedSettings::of(engine_.options()), hello->settings)) {
    engine_.context().log.warn(fmt::format("mlt: refused {}: {}", newcomer.from.to_string(), *differs));
    return Fate::kGone;
  }
  return Fate::kPeer;
}

void MltListener::drop(const Newcomer& newcomer) {
  engine_.count_stranger();
  engine_.context().log.info(fmt::format("mlt: dropped a connection from {} that did not show this listener's token",
                                         newcomer.from.to_string()));
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::welcome(Newcomer& newcomer, const Hello& hello) {
  net::detect_dead_host(newcomer.socket);
  const std::string peer = fmt::format("{} (to {})", newcomer.from.to_string(), engine_.name());
  auto channel = std::make_unique<MltRecvChannel>(engine_, std::move(newcomer.socket), peer);
  const auto attached =
      channel->attach(Engine::End::kReceives, newcomer.from, hello.ports, secret_of(token_, hello.connection_id));
  if (!attached) return tl::unexpected(attached.error());
  std::array<std::byte, Welcome::kSize> bytes;
  Welcome{engine_.ports()}.serialize_to(bytes);
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the channel reports that.
  net::write_some(channel->control().fd(), std::span<const std::byte>(bytes));
  return channel;
}

}  // namespace clustar::mlt::driver
