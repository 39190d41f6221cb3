#include "libfabric_shim/rdm/connect.h"

#include <fmt/format.h>

#include <algorithm>
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
  auto rails = nic.exchanges();
  if (!rails) return tl::unexpected(rails.error());
  std::unique_ptr<OfiPendingConnect> made(
      new OfiPendingConnect(nic, std::move(*rails), *invitation, channel, std::move(*dial)));
  Contact contact{nic.provider(), {}};
  for (const auto& exchange : made->rails_) contact.addresses.push_back(exchange->address());
  Hello{invitation->token, channel.rank, contact}.serialize_to(made->hello_);
  return made;
}

OfiPendingConnect::~OfiPendingConnect() {
  const std::lock_guard lock(nic_.engine().mutex());
  for (const auto& exchange : rails_) exchange->forget(*this);
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
                              .settings = welcome_->settings};
  for (std::size_t rail = 0; rail < rails_.size(); ++rail) {
    facts.ends.push_back({addresses_[rail], welcome_->channels[rail]});
  }
  return std::make_unique<OfiSendChannel>(nic_, rails_, std::move(facts), std::move(control));
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
  if (welcome->channels.size() > rails_.size()) return tl::unexpected(dial_.another_protocol());
  rails_.resize(welcome->channels.size());
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
  while (addresses_.size() < rails_.size()) {
    const std::size_t rail = addresses_.size();
    const auto inserted = rails_[rail]->insert(welcome_->contact.addresses[rail]);
    if (!inserted) return tl::unexpected(inserted.error());
    addresses_.push_back(*inserted);
  }
  if (posted_ < rails_.size()) {
    std::array<std::byte, FrameHead::kSize> head;
    FrameHead{FrameHead::Kind::kHello, welcome_->channels[posted_], 0}.serialize_to(head);
    const auto posted = rails_[posted_]->post_frame(addresses_[posted_], head, {}, *this, 0);
    if (!posted) return tl::unexpected(posted.error());
    posted_ += *posted ? 1 : 0;
  }
  for (const auto& exchange : rails_) exchange->poll();
  if (failed_) return tl::unexpected(*failed_);
  const bool all_sent = sent_ == rails_.size();
  if (all_sent || nic_.context().clock.now() - began_ < kFirstFrame) return all_sent;
  return fail(ErrorCode::kRemote,
              fmt::format("ofi: {} answers by TCP, but no message of {} reaches it within {} s; check firewalls and "
                          "security groups between the hosts, and that fi_pingpong -p '{}' works",
                          dial_.remote().to_string(), nic_.domain(std::min(sent_, rails_.size() - 1)).name(),
                          std::chrono::duration_cast<std::chrono::seconds>(kFirstFrame).count(), nic_.provider()));
}

}  // namespace clustar::transport::ofi
