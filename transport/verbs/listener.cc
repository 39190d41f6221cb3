#include "transport/verbs/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/verbs/recv_channel.h"

namespace clustar::transport::verbs {

Result<std::unique_ptr<VerbsListener>> VerbsListener::open(Nic& nic, const ChannelOptions& channel) {
  const Context& context = nic.context();
  auto reception =
      handshake::Reception::open({"verbs", context.clock, context.log, [&nic] { ++nic.counters().strangers; }},
                                 Hello::kFormat, nic.control().addresses, {}, kHandleFormat.room());
  if (!reception) return tl::unexpected(reception.error());
  std::unique_ptr<VerbsListener> listener(new VerbsListener(nic, channel.traffic_class, std::move(*reception)));
  listener->handle_ = listener->reception_.invitation(channel).serialize(kHandleFormat);
  return listener;
}

Result<std::unique_ptr<RecvChannel>> VerbsListener::poll_accept() {
  auto heard = reception_.hear();
  if (!heard) return tl::unexpected(heard.error());
  for (handshake::Newcomer& newcomer : *heard) admit(newcomer);
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
    const std::string shown = fmt::format("{} (to {})", served.from.to_string(), nic_.name());
    auto channel = VerbsRecvChannel::make(nic_, std::move(served.wiring), std::move(served.socket),
                                          {served.from.host(), served.rank}, shown, traffic_class_);
    if (!channel) return tl::unexpected(channel.error());
    return std::move(*channel);
  }
  return nullptr;
}

void VerbsListener::admit(handshake::Newcomer& newcomer) {
  const auto hello = Hello::parse(std::span(newcomer.said).first<Hello::kSize>());
  if (!hello) return reception_.drop(newcomer);
  if (guests_.size() == kMaxGuests) {
    if (!std::exchange(told_full_, true)) {
      nic_.context().log.warn(fmt::format(
          "verbs: {}: {} connections to one listener are being made and none is accepted; more are refused meanwhile "
          "(the first is from {})",
          nic_.name(), kMaxGuests, newcomer.from.to_string()));
    }
    return;
  }
  const std::size_t pairs = std::min(hello->contact.queue_pairs.size(), Wiring::pairs_of(nic_));
  auto wiring = Wiring::make(nic_, Side::kReceiver, pairs);
  if (wiring) {
    if (const auto started = (*wiring)->start(hello->contact, traffic_class_); !started) {
      wiring = tl::unexpected(started.error());
    }
  }
  if (!wiring) {
    nic_.context().log.warn(
        fmt::format("{} (a connection from {} is refused)", wiring.error().message, newcomer.from.to_string()));
    return;
  }
  net::detect_dead_host(newcomer.socket);
  guests_.push_back({std::move(newcomer.socket), newcomer.from, hello->rank, std::move(*wiring)});
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
  if (got.kind == net::IoResult::Kind::kBytes && ready == kReady) return Fate::kDone;
  nic_.context().log.info(fmt::format("verbs: {} gave its connection up before it was ready", guest.from.to_string()));
  return Fate::kGone;
}

}  // namespace clustar::transport::verbs
