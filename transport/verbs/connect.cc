#include "transport/verbs/connect.h"

#include <fmt/format.h>

#include <utility>

#include "transport/verbs/send_channel.h"

namespace clustar::transport::verbs {

Result<std::unique_ptr<VerbsPendingConnect>> VerbsPendingConnect::start(Nic& nic, const Handle& handle,
                                                                        const ChannelOptions& channel) {
  handshake::Caller caller{.transport = "verbs",
                           .interface = nic.control().name,
                           .addresses = nic.control().addresses,
                           .refusal = "it could not connect its queue pairs: see its log",
                           .purpose = ", where the peers meet before they use RDMA"};
  const auto invitation = handshake::Invitation::parse(kHandleFormat, handle);
  if (!invitation) return tl::unexpected(caller.not_a_handle());
  auto dial = handshake::Dial::to(nic.context().clock, std::move(caller), *invitation, SharedConfig::of(channel));
  if (!dial) return tl::unexpected(dial.error());
  return std::unique_ptr<VerbsPendingConnect>(new VerbsPendingConnect(nic, *invitation, channel, std::move(*dial)));
}

Result<std::unique_ptr<SendChannel>> VerbsPendingConnect::poll() {
  if (!welcomed_) {
    const auto done = welcomed();
    if (!done) return dial_.failed(done.error());
    if (!*done) return nullptr;
    welcomed_ = true;
  }
  const auto wired = wiring_->poll();
  if (!wired) return tl::unexpected(wired.error());
  if (!*wired) return nullptr;
  welcomed_ = false;
  // One byte always fits; if the listener is gone, the channel reports that.
  net::Socket control = std::move(dial_.take_sockets().front());
  net::write_some(control.fd(), std::span(&kReady, 1));
  const net::Address remote = dial_.remote();
  VerbsSendChannel::Facts facts{.connection = {remote.host_number(), channel_.job},
                                .peer = {remote.host(), invitation_.config.rank},
                                .shown = fmt::format("{} (from {})", remote.to_string(), nic_.name()),
                                .traffic_class = channel_.traffic_class,
                                .identify = invitation_.reads_identity};
  return std::make_unique<VerbsSendChannel>(nic_, std::move(facts), std::move(wiring_), std::move(control));
}

Result<bool> VerbsPendingConnect::welcomed() {
  if (dial_.begin_try()) {
    if (const auto opened = open(); !opened) return tl::unexpected(opened.error());
  }
  const auto heard = dial_.hear(welcome_);
  if (!heard || !*heard) return heard;
  const auto welcome = Welcome::parse(welcome_);
  if (!welcome || welcome->contact.queue_pairs.size() > Wiring::pairs_of(nic_)) {
    return tl::unexpected(dial_.another_protocol());
  }
  if (const auto started = wiring_->start(welcome->contact, channel_.traffic_class); !started) {
    return tl::unexpected(started.error());
  }
  return true;
}

Result<void> VerbsPendingConnect::open() {
  if (!wiring_) {
    auto wiring = Wiring::make(nic_, Side::kSender, Wiring::pairs_of(nic_));
    if (!wiring) return tl::unexpected(wiring.error());
    wiring_ = std::move(*wiring);
    Hello{invitation_.token, channel_.rank, wiring_->contact()}.serialize_to(hello_);
  }
  return dial_.open(hello_);
}

}  // namespace clustar::transport::verbs
