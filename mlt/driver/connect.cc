#include "mlt/driver/connect.h"

#include <fmt/format.h>

#include <utility>

#include "mlt/driver/send_channel.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<MltPendingConnect>> MltPendingConnect::start(Engine& engine, const net::Address& local,
                                                                    const transport::Handle& handle,
                                                                    const transport::ChannelOptions& channel) {
  const auto info = HandleInfo::parse(handle);
  if (!info) {
    return fail(
        ErrorCode::kInvalidArgument,
        "mlt: this is not a handle of clustar's mlt transport of this version; do all ranks load the same plugin "
        "with the same CLUSTAR_TRANSPORT?");
  }
  const net::Address remote(info->endpoint);
  if (const auto differs = difference(transport::SharedConfig::of(channel), local.to_string(), info->config,
                                      remote.to_string(), Config::shared_keys())) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("mlt: connect to {}: {}", remote.to_string(), *differs));
  }
  if (local.ipv6() != remote.ipv6()) {
    return fail(ErrorCode::kUnavailable, fmt::format("mlt: {} has the address {}, which cannot reach {}; see "
                                                     "CLUSTAR_SOCKET_FAMILY",
                                                     engine.name(), local.to_string(), remote.to_string()));
  }
  const Protection* protection = engine.context().protection.get();
  const bool same_psk = info->psk_mode == (protection == nullptr ? PskMode::kNone : protection->mode());
  // With another pre-shared key segments may differ, too; the handshake tells both sides which setting it is.
  const auto here = SharedSettings::of(engine.options(), channel.max_tolerance_ppm, engine.datapath());
  if (const auto differs = same_psk ? difference(here, info->settings) : std::nullopt) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: connect to {}: {}", remote.to_string(), *differs));
  }
  return std::unique_ptr<MltPendingConnect>(new MltPendingConnect(engine, local, *info, channel));
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::poll() {
  if (state_ == State::kIdle) {
    const TimePoint now = engine_.context().clock.now();
    if (first_error_ && now < next_try_) return nullptr;
    try_began_ = now;
    if (const auto opened = open(); !opened) return on_failure(opened.error());
    state_ = State::kConnecting;
  }
  if (state_ == State::kConnecting) {
    const auto done = connected();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    state_ = State::kGreeting;
  }
  if (state_ == State::kGreeting) {
    const auto done = greeted();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    state_ = State::kWaiting;
  }
  if (state_ == State::kWaiting) {
    const auto done = welcomed();
    if (!done) return on_failure(done.error());
    if (!*done) return nullptr;
    if (engine_.context().protection == nullptr) return attach();
    if (const auto said = confirm(); !said) return on_failure(said.error());
    state_ = State::kConfirmed;
  }
  const auto done = ready();
  if (!done) return on_failure(done.error());
  if (!*done) return nullptr;
  return attach();
}

Result<void> MltPendingConnect::open() {
  sent_ = have_ = 0;
  if (const auto filled = net::fill_random(std::as_writable_bytes(std::span(&connection_id_, 1))); !filled) {
    return filled;
  }
  auto socket = net::start_connect(local_, remote_, {});
  if (!socket) return tl::unexpected(socket.error());
  socket_ = std::move(*socket);
  net::detect_dead_host(socket_);
  return write_hello();
}

Result<void> MltPendingConnect::write_hello() {
  const auto settings = SharedSettings::of(engine_.options(), channel_.max_tolerance_ppm, engine_.datapath());
  Hello hello{info_.token, connection_id_, settings, engine_.ports(), {}};
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

Result<bool> MltPendingConnect::connected() {
  int error = 0;
  switch (net::connect_result(socket_, &error)) {
    case net::ConnectState::kConnected: return true;
    case net::ConnectState::kPending: break;
    case net::ConnectState::kFailed:
      return fail(ErrorCode::kRemote, fmt::format("mlt: connect to {} from {}: {}", remote_.to_string(), engine_.name(),
                                                  describe_errno(error)));
  }
  if (engine_.context().clock.now() - try_began_ <= kConnectTimeout) return false;
  return fail(ErrorCode::kRemote,
              fmt::format("mlt: connect to {} from {}: no answer within {} s; check routes and firewalls between the "
                          "hosts, or choose the interface by CLUSTAR_SOCKET_IFNAME",
                          remote_.to_string(), engine_.name(),
                          std::chrono::duration_cast<std::chrono::seconds>(kConnectTimeout).count()));
}

Result<bool> MltPendingConnect::greeted() {
  const net::IoResult sent = net::write_some(socket_.fd(), std::span<const std::byte>(hello_).subspan(sent_));
  if (sent.kind == net::IoResult::Kind::kError) {
    return fail(ErrorCode::kRemote,
                fmt::format("mlt: greeting {}: {}", remote_.to_string(), describe_errno(sent.error)));
  }
  sent_ += sent.bytes;
  return sent_ == hello_.size();
}

Result<bool> MltPendingConnect::read_exactly(std::span<std::byte> into) {
  while (have_ < into.size()) {
    const net::IoResult got = net::read_some(socket_.fd(), into.subspan(have_));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return false;
    if (got.kind != net::IoResult::Kind::kBytes) {
      return fail(ErrorCode::kRemote,
                  fmt::format("mlt: {} closed the connection before accepting it: {}", remote_.to_string(),
                              got.kind == net::IoResult::Kind::kClosed
                                  ? "the listener was closed, its process ended, or it refused the token"
                                  : describe_errno(got.error)));
    }
    have_ += got.bytes;
  }
  have_ = 0;
  return true;
}

Result<bool> MltPendingConnect::welcomed() {
  const auto read = read_exactly(welcome_);
  if (!read || !*read) return read;
  const auto welcome = Welcome::parse(welcome_);
  if (!welcome) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: {} answered with another protocol", remote_.to_string()));
  }
  if (const auto checked = check(*welcome); !checked) return tl::unexpected(checked.error());
  return true;
}

Result<void> MltPendingConnect::check(const Welcome& welcome) const {
  const Protection* protection = engine_.context().protection.get();
  const PskMode mode = protection == nullptr ? PskMode::kNone : protection->mode();
  const auto refuse = [&](const std::string& why) {
    return fail(ErrorCode::kInvalidUsage,
                fmt::format("mlt: connect to {} from {}: {}", remote_.to_string(), engine_.name(), why));
  };
  Verdict verdict = welcome.verdict;
  if (verdict == Verdict::kFine) verdict = compare(mode, welcome.psk.mode);
  if (verdict != Verdict::kFine) return refuse(explain(verdict, mode, welcome.psk.mode));
  if (welcome.ports.count != engine_.ports().count) return refuse("it answered with another protocol");
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
  const net::IoResult sent = net::write_some(socket_.fd(), std::span<const std::byte>(*proof));
  if (sent.kind == net::IoResult::Kind::kBytes && sent.bytes == proof->size()) return {};
  return fail(ErrorCode::kRemote,
              fmt::format("mlt: {} closed the connection before accepting it", remote_.to_string()));
}

Result<bool> MltPendingConnect::ready() {
  const auto read = read_exactly(ready_);
  if (!read || !*read) return read;
  if (engine_.context().protection->proves(ready_, Protection::kReady, {hello_, welcome_})) return true;
  return fail(ErrorCode::kInvalidUsage, fmt::format("mlt: connect to {} from {}: the answer is not from somebody who "
                                                    "has the secret of psk_file",
                                                    remote_.to_string(), engine_.name()));
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::attach() {
  const auto welcome = Welcome::parse(welcome_);
  std::optional<Session> session;
  if (const auto& protection = engine_.context().protection) {
    const auto derived = protection->session(*Hello::parse(hello_), *welcome);
    if (!derived) return tl::unexpected(derived.error());
    session = *derived;
  }
  const std::string peer = fmt::format("{} (from {})", remote_.to_string(), engine_.name());
  auto channel = std::make_unique<MltSendChannel>(engine_, std::move(socket_), peer);
  const auto attached =
      channel->attach(Engine::End::kSends, remote_, welcome->ports, secret_of(info_.token, connection_id_), channel_,
                      session ? &*session : nullptr);
  if (!attached) return tl::unexpected(attached.error());
  return channel;
}

Result<std::unique_ptr<transport::SendChannel>> MltPendingConnect::on_failure(const Error& error) {
  if (error.code != ErrorCode::kRemote) return tl::unexpected(error);
  socket_.close();
  state_ = State::kIdle;
  const TimePoint now = engine_.context().clock.now();
  if (!first_error_) {
    first_error_ = error;
    first_failure_ = now;
  }
  if (now - first_failure_ >= kRetryTimeout) return tl::unexpected(*first_error_);
  next_try_ = now + kRetryInterval;
  return nullptr;
}

}  // namespace clustar::mlt::driver
