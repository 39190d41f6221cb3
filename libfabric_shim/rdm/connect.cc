#include "libfabric_shim/rdm/connect.h"

#include <fmt/format.h>

#include <utility>

#include "libfabric_shim/rdm/send_channel.h"

namespace clustar::transport::ofi {

Result<std::unique_ptr<OfiPendingConnect>> OfiPendingConnect::start(Nic& nic, const Handle& handle,
                                                                    const ChannelOptions& channel) {
  handshake::Caller caller{.transport = "ofi",
                           .interface = nic.control().name,
                           .addresses = nic.control().addresses,
                           .refusal = "it could not open its end: see its log",
                           .purpose = ", where the peers meet before they use the fabric"};
  const auto invitation = handshake::Invitation::parse(kHandleFormat, handle);
  if (!invitation) return tl::unexpected(caller.not_a_handle());
  auto dial = handshake::Dial::to(nic.context().clock, std::move(caller), *invitation, SharedConfig::of(channel));
  if (!dial) return tl::unexpected(dial.error());
  const std::lock_guard lock(nic.engine().mutex());
  auto exchange = nic.exchange();
  if (!exchange) return tl::unexpected(exchange.error());
  std::unique_ptr<OfiPendingConnect> made(
      new OfiPendingConnect(nic, std::move(*exchange), *invitation, channel, std::move(*dial)));
  const Contact contact{nic.provider(), made->exchange_->address()};
  Hello{invitation->token, channel.rank, contact}.serialize_to(made->hello_);
  return made;
}

OfiPendingConnect::~OfiPendingConnect() {
  const std::lock_guard lock(nic_.engine().mutex());
  exchange_->forget(*this);
}

Result<std::unique_ptr<SendChannel>> OfiPendingConnect::poll() {
  if (given_) return nullptr;
  if (!welcome_) {
    const auto done = welcomed();
    if (!done) return dial_.failed(done.error());
    if (!*done) return nullptr;
  }
  const auto done = greeted();
  if (!done) return tl::unexpected(done.error());
  if (!*done) return nullptr;
  given_ = true;
  net::Socket control = std::move(dial_.take_sockets().front());
  const net::Address remote = dial_.remote();
  OfiSendChannel::Facts facts{.connection = {remote.host_number(), channel_.job},
                              .peer = {remote.host(), invitation_.config.rank},
                              .shown = fmt::format("{} (from {})", remote.to_string(), nic_.name()),
                              .traffic_class = channel_.traffic_class,
                              .identify = invitation_.reads_identity,
                              .address = address_,
                              .channel = welcome_->channel,
                              .settings = welcome_->settings};
  return std::make_unique<OfiSendChannel>(nic_, exchange_, std::move(facts), std::move(control));
}

Result<bool> OfiPendingConnect::welcomed() {
  if (dial_.begin_try()) {
    if (const auto opened = dial_.open(hello_); !opened) return tl::unexpected(opened.error());
  }
  const auto heard = dial_.hear(answer_);
  if (!heard || !*heard) return heard;
  auto welcome = Welcome::parse(answer_);
  if (!welcome) return tl::unexpected(dial_.another_protocol());
  if (welcome->contact.provider != nic_.provider()) {
    return fail(
        ErrorCode::kInvalidUsage,
        fmt::format("ofi: the provider is {} here and {} at {}; set CLUSTAR_OFI_PROVIDER to the same on all ranks",
                    nic_.provider(), welcome->contact.provider, dial_.remote().to_string()));
  }
  welcome_ = std::move(*welcome);
  began_ = nic_.context().clock.now();
  return true;
}

// What failed is known under the lock only: any thread that polls the exchange may tell.
Result<bool> OfiPendingConnect::greeted() {
  const std::unique_lock lock(nic_.engine().mutex(), std::try_to_lock);
  if (!lock) return false;
  if (failed_) return tl::unexpected(*failed_);
  auto done = greet();
  if (!done) failed_ = done.error();
  return done;
}

Result<bool> OfiPendingConnect::greet() {
  if (address_ == FI_ADDR_UNSPEC) {
    const auto inserted = exchange_->insert(welcome_->contact.address);
    if (!inserted) return tl::unexpected(inserted.error());
    address_ = *inserted;
  }
  if (!posted_) {
    std::array<std::byte, FrameHead::kSize> head;
    FrameHead{FrameHead::Kind::kHello, welcome_->channel, 0}.serialize_to(head);
    const auto posted = exchange_->post_frame(address_, head, {}, *this, 0);
    if (!posted) return tl::unexpected(posted.error());
    posted_ = *posted;
  }
  exchange_->poll();
  if (failed_) return tl::unexpected(*failed_);
  if (sent_ || nic_.context().clock.now() - began_ < kFirstFrame) return sent_;
  return fail(ErrorCode::kRemote,
              fmt::format("ofi: {} answers by TCP, but no message of {} reaches it within {} s; check firewalls and "
                          "security groups between the hosts, and that fi_pingpong -p '{}' works",
                          dial_.remote().to_string(), nic_.domain().name(),
                          std::chrono::duration_cast<std::chrono::seconds>(kFirstFrame).count(), nic_.provider()));
}

}  // namespace clustar::transport::ofi
