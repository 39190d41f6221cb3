#include "transport/verbs/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/verbs/recv_channel.h"

namespace clustar::transport::verbs {

Result<std::unique_ptr<VerbsListener>> VerbsListener::open(Nic& nic, const ChannelOptions& channel) {
  std::unique_ptr<VerbsListener> listener(new VerbsListener(nic, channel.traffic_class));
  HandleInfo info;
  Error last_error;
  info.config = SharedConfig::of(channel);
  for (const net::Address& address : nic.control().addresses) {
    auto socket = net::listen_on(address, {});
    if (!socket) {
      // An address may have gone since the interfaces were listed; the others serve.
      nic.context().log.info("verbs: " + socket.error().message);
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

Result<std::unique_ptr<RecvChannel>> VerbsListener::poll_accept() {
  if (const auto taken = take_newcomers(); !taken) return tl::unexpected(taken.error());
  hear_newcomers();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto fate = advance(*guest);
    if (fate && *fate == Fate::kWaits) {
      ++guest;
      continue;
    }
    Guest served = std::move(*guest);
    guest = guests_.erase(guest);
    if (!fate) return tl::unexpected(fate.error());
    if (*fate == Fate::kGone) continue;
    const std::string peer = fmt::format("{} (to {})", served.from.to_string(), nic_.name());
    auto channel = VerbsRecvChannel::make(nic_, std::move(served.wiring), std::move(served.socket), peer);
    if (!channel) return tl::unexpected(channel.error());
    return std::move(*channel);
  }
  return nullptr;
}

Result<void> VerbsListener::take_newcomers() {
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

void VerbsListener::hear_newcomers() {
  const TimePoint now = nic_.context().clock.now();
  std::erase_if(newcomers_, [&](Newcomer& newcomer) {
    const Fate fate = hear(newcomer);
    // Of who is refused, the log says why already.
    if (fate == Fate::kJoined || fate == Fate::kRefused) return true;
    if (fate == Fate::kWaits && now < newcomer.deadline) return false;
    ++nic_.counters().strangers;
    nic_.context().log.info(fmt::format("verbs: dropped a connection from {} that did not show this listener's token",
                                        newcomer.from.to_string()));
    return true;
  });
}

VerbsListener::Fate VerbsListener::hear(Newcomer& newcomer) {
  bool proven = false;
  while (newcomer.have < newcomer.bytes.size()) {
    const net::IoResult got = net::read_some(newcomer.socket.fd(), std::span(newcomer.bytes).subspan(newcomer.have));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return Fate::kWaits;
    if (got.kind != net::IoResult::Kind::kBytes) return Fate::kGone;
    newcomer.have += got.bytes;
    if (newcomer.have < Hello::kProofSize || proven) continue;
    proven = Hello::proves(std::span(newcomer.bytes).first<Hello::kProofSize>(), token_);
    if (!proven) return Fate::kGone;
  }
  const auto hello = Hello::parse(newcomer.bytes);
  if (!hello) return Fate::kGone;
  return admit(newcomer, *hello);
}

VerbsListener::Fate VerbsListener::admit(Newcomer& newcomer, const Hello& hello) {
  if (guests_.size() == kMaxGuests) {
    if (!std::exchange(told_full_, true)) {
      nic_.context().log.warn(fmt::format(
          "verbs: {}: {} connections to one listener are being made and none is accepted; more are refused meanwhile "
          "(the first is from {})",
          nic_.name(), kMaxGuests, newcomer.from.to_string()));
    }
    return Fate::kRefused;
  }
  const std::size_t pairs = std::min(hello.contact.queue_pairs.size(), Wiring::pairs_of(nic_));
  auto wiring = Wiring::make(nic_, Side::kReceiver, pairs);
  if (wiring) {
    if (const auto started = (*wiring)->start(hello.contact, traffic_class_); !started) {
      wiring = tl::unexpected(started.error());
    }
  }
  if (!wiring) {
    nic_.context().log.warn(
        fmt::format("{} (a connection from {} is refused)", wiring.error().message, newcomer.from.to_string()));
    return Fate::kRefused;
  }
  net::detect_dead_host(newcomer.socket);
  guests_.push_back({std::move(newcomer.socket), newcomer.from, std::move(*wiring)});
  return Fate::kJoined;
}

Result<VerbsListener::Fate> VerbsListener::advance(Guest& guest) {
  const auto wired = guest.wiring->poll();
  if (!wired) return tl::unexpected(wired.error());
  if (!*wired) return Fate::kWaits;
  if (!guest.welcomed) {
    std::array<std::byte, Welcome::kSize> bytes;
    Welcome{guest.wiring->contact()}.serialize_to(bytes);
    // The first bytes on a fresh socket fit its buffer; if the connector is gone, the next read tells.
    net::write_some(guest.socket.fd(), std::span<const std::byte>(bytes));
    guest.welcomed = true;
  }
  std::byte ready{};
  const net::IoResult got = net::read_some(guest.socket.fd(), std::span(&ready, 1));
  if (got.kind == net::IoResult::Kind::kWouldBlock) return Fate::kWaits;
  if (got.kind == net::IoResult::Kind::kBytes && ready == kReady) return Fate::kJoined;
  nic_.context().log.info(fmt::format("verbs: {} gave its connection up before it was ready", guest.from.to_string()));
  return Fate::kGone;
}

}  // namespace clustar::transport::verbs
