#include "mlt/driver/connect.h"

#include <fmt/format.h>

#include <utility>

#include "mlt/driver/send_channel.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<MltPendingConnect>> MltPendingConnect::start(std::shared_ptr<Engine> engine,
                                                                    const net::Address& local,
                                                                    const transport::Handle& handle,
                                                                    const transport::ChannelOptions& channel) {
  handshake::Caller caller{"mlt", engine->name(), {local}};
  const auto info = HandleInfo::parse(handle);
  if (!info) return tl::unexpected(caller.not_a_handle());
  const net::Address remote(info->endpoint);
  auto dial =
      handshake::Dial::to(engine->context().clock, std::move(caller),
                          {info->token, info->config, false, {info->endpoint}}, transport::SharedConfig::of(channel));
  if (!dial) return tl::unexpected(dial.error());
  const Protection* protection = engine->context().protection.get();
  const bool same_psk = info->psk_mode == (protection == nullptr ? PskMode::kNone : protection->mode());
  // With another pre-shared key segments may differ, too; the handshake tells both sides which setting it is.
  const auto here = SharedSettings::of(engine->options(), channel.max_tolerance_ppm, engine->io_name());
  if (const auto differs = same_psk ? difference(here, info->settings) : std::nullopt) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: connect to {}: {}", remote.to_string(), *differs));
  }
  return std::unique_ptr<MltPendingConnect>(
      new MltPendingConnect(std::move(engine), info->token, info->config.rank, channel, std::move(*dial)));
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::poll() {
  const auto done = shaken();
  if (!done) return dial_.failed(done.error());
  if (!*done) return nullptr;
  return attach();
}

// All that is said before the first packet.
Result<bool> MltPendingConnect::shaken() {
  if (dial_.begin_try()) {
    confirmed_ = false;
    if (const auto opened = open(); !opened) return tl::unexpected(opened.error());
  }
  const Protection* protection = engine_.context().protection.get();
  if (!confirmed_) {
    if (const auto heard = dial_.hear(welcome_); !heard || !*heard) return heard;
    const auto welcome = Welcome::parse(welcome_);
    if (!welcome) return tl::unexpected(dial_.another_protocol());
    if (const auto checked = check(*welcome); !checked) return tl::unexpected(checked.error());
    if (protection == nullptr) return true;
    if (const auto said = confirm(); !said) return tl::unexpected(said.error());
    confirmed_ = true;
  }
  if (const auto heard = dial_.hear(ready_); !heard || !*heard) return heard;
  if (protection->proves(ready_, Protection::kReady, {hello_, welcome_})) return true;
  return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: connect to {} from {}: the answer is not from somebody who "
                                                    "has the secret of psk_file",
                                                    dial_.remote().to_string(), engine_.name()));
}

Result<void> MltPendingConnect::open() {
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&connection_id_, 1))); !filled) {
    return filled;
  }
  if (const auto written = write_hello(); !written) return written;
  return dial_.open(hello_);
}

Result<void> MltPendingConnect::write_hello() {
  const auto settings = SharedSettings::of(engine_.options(), channel_.max_tolerance_ppm, engine_.io_name());
  Hello hello{token_, connection_id_, settings, engine_.local_address(), channel_.rank, {}};
  const Protection* protection = engine_.context().protection.get();
  if (protection != nullptr) {
    hello.psk.mode = protection->mode();
    if (const auto filled = net::fill_random(hello.psk.nonce); !filled) return filled;
  }
  hello.serialize_to(hello_);
  if (protection == nullptr) return {};
  const auto proof = protection->prove(Protection::kHello, {std::span(hello_).first<Hello::kProofAt>()});
  if (!proof) return tl::unexpected(proof.error());
  hello.psk.proof = *proof;
  hello.serialize_to(hello_);
  return {};
}

Result<void> MltPendingConnect::check(const Welcome& welcome) const {
  const Protection* protection = engine_.context().protection.get();
  const PskMode mode = protection == nullptr ? PskMode::kNone : protection->mode();
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("mlt: connect to {} from {}: {}", dial_.remote().to_string(), engine_.name(), why));
  };
  Verdict verdict = welcome.verdict;
  if (verdict == Verdict::kFine) verdict = compare(mode, welcome.psk.mode);
  if (verdict != Verdict::kFine) return refuse(explain(verdict, mode, welcome.psk.mode));
  if (protection != nullptr && !protection->proves(welcome.psk.proof, Protection::kWelcome,
                                                   {hello_, std::span(welcome_).first<Welcome::kProofAt>()})) {
    return refuse("psk_file: the answer is not from somebody who has the secret");
  }
  return {};
}

Result<void> MltPendingConnect::confirm() {
  const auto proof = engine_.context().protection->prove(Protection::kConfirm, {hello_, welcome_});
  if (!proof) return tl::unexpected(proof.error());
  // Few bytes on a fresh socket fit its buffer.
  const net::IoResult sent = net::write_some(dial_.control().fd(), std::span<const std::byte>(*proof));
  if (sent.kind == net::IoResult::Kind::kBytes && sent.bytes == proof->size()) return {};
  return fail(ErrorCode::kRemote,
              fmt::format("mlt: {} closed the connection before accepting it", dial_.remote().to_string()));
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::attach() {
  const auto welcome = Welcome::parse(welcome_);
  std::optional<Session> session;
  if (const auto& protection = engine_.context().protection) {
    const auto derived = protection->session(*Hello::parse(hello_), *welcome);
    if (!derived) return tl::unexpected(derived.error());
    session = *derived;
  }
  const std::string peer = fmt::format("{} (from {})", dial_.remote().to_string(), engine_.name());
  const transport::PeerInfo far_end{dial_.remote().host(), rank_there_};
  auto channel = std::make_unique<MltSendChannel>(held_engine_, std::move(dial_.take_sockets().front()), far_end, peer);
  const auto attached =
      channel->attach(Engine::End::kSends, {dial_.remote(), welcome->address, rank_there_, welcome->parity},
                      secret_of(token_, connection_id_), channel_, session ? &*session : nullptr);
  if (!attached) return tl::unexpected(attached.error());
  return channel;
}

}  // namespace clustar::mlt::driver
