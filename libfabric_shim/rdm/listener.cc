#include "libfabric_shim/rdm/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::transport::ofi {

Result<std::unique_ptr<OfiListener>> OfiListener::open(Nic& nic, const ChannelOptions& channel) {
  const Context& context = nic.context();
  {
    // What is wrong with the device is said here, and not to the peers.
    const std::lock_guard lock(nic.engine().mutex());
    if (const auto rails = nic.exchanges(); !rails) return tl::unexpected(rails.error());
  }
  auto reception =
      handshake::Reception::open({"ofi", context.clock, context.log, [&nic] { ++nic.counters().strangers; }},
                                 Hello::kFormat, nic.control().addresses, {}, kHandleFormat.room());
  if (!reception) return tl::unexpected(reception.error());
  std::unique_ptr<OfiListener> listener(new OfiListener(nic, channel.traffic_class, std::move(*reception)));
  listener->handle_ = listener->reception_.invitation(channel).serialize(kHandleFormat);
  return listener;
}

Result<std::unique_ptr<RecvChannel>> OfiListener::poll_accept() {
  auto heard = reception_.hear();
  if (!heard) return tl::unexpected(heard.error());
  for (handshake::Newcomer& newcomer : *heard) {
    if (const auto admitted = admit(newcomer); !admitted) reception_.drop(newcomer, admitted.error().message);
  }
  const TimePoint now = nic_.context().clock.now();
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    const auto greeted = guest->channel->greeted();
    if (greeted && !*greeted && now < guest->deadline) {
      ++guest;
      continue;
    }
    std::unique_ptr<OfiRecvChannel> channel = std::move(guest->channel);
    guest = guests_.erase(guest);
    if (greeted && *greeted) return channel;
    nic_.context().log.info(greeted
                                ? fmt::format("ofi: nothing came by the fabric from {} in time", channel->peer().host)
                                : greeted.error().message);
  }
  return nullptr;
}

Result<void> OfiListener::admit(handshake::Newcomer& newcomer) {
  const auto hello = Hello::parse(std::span(newcomer.said).first<Hello::kSize>());
  if (!hello) return fail(ErrorCode::kRemote, "its hello has fields that this version does not know");
  if (guests_.size() == kMaxGuests) return fail(ErrorCode::kRemote, "too many others are still being connected");
  Rails rails;
  {
    const std::lock_guard lock(nic_.engine().mutex());
    auto open = nic_.exchanges();
    if (!open) return tl::unexpected(open.error());
    rails = std::move(*open);
    // The rails that both ends have, in their order.
    rails.resize(std::min(rails.size(), hello->contact.addresses.size()));
    // Some providers answer only who they know. Another provider's address means nothing here; the peer will say so.
    if (hello->contact.provider == nic_.provider()) {
      for (std::size_t rail = 0; rail < rails.size(); ++rail) {
        const auto known = rails[rail]->insert(hello->contact.addresses[rail]);
        if (!known) return tl::unexpected(known.error());
      }
    }
  }
  net::detect_dead_host(newcomer.socket);
  OfiRecvChannel::Facts facts{.peer = {newcomer.from.host(), hello->rank},
                              .shown = fmt::format("{} (to {})", newcomer.from.to_string(), nic_.name()),
                              .traffic_class = traffic_class_};
  Contact contact{nic_.provider(), {}};
  for (const auto& exchange : rails) contact.addresses.push_back(exchange->address());
  auto channel = OfiRecvChannel::open(nic_, std::move(rails), std::move(facts), std::move(newcomer.socket));
  if (!channel) return tl::unexpected(channel.error());
  std::array<std::byte, Welcome::kSize> words;
  Welcome{(*channel)->channels(), nic_.context().settings.receiving, contact}.serialize_to(words);
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the next read tells.
  net::write_some((*channel)->control().fd(), std::span<const std::byte>(words));
  guests_.push_back({std::move(*channel), nic_.context().clock.now() + kFirstFrame});
  return {};
}

}  // namespace clustar::transport::ofi
