#include "mlt/driver/listener.h"

#include <fmt/format.h>

#include <utility>

#include "mlt/driver/recv_channel.h"

namespace clustar::mlt::driver {

Result<std::unique_ptr<MltListener>> MltListener::open(Engine& engine, const net::Address& address,
                                                       const transport::ChannelOptions& channel) {
  std::unique_ptr<MltListener> listener(new MltListener(engine, channel));
  auto socket = net::listen_on(address, {});
  if (!socket) return tl::unexpected(socket.error());
  if (const auto filled = net::fill_random(listener->token_); !filled) return tl::unexpected(filled.error());
  HandleInfo info;
  info.token = listener->token_;
  info.settings = listener->settings();
  info.psk_mode = listener->psk_mode();
  info.config = transport::SharedConfig::of(channel);
  info.endpoint = net::local_address(*socket).endpoint();
  listener->listening_ = std::move(*socket);
  listener->handle_ = info.serialize();
  return listener;
}

// Those who are here are heard first: only who had the time to speak may have to make room for others.
Result<std::unique_ptr<transport::RecvChannel>> MltListener::poll_accept() {
  if (auto heard = hear_all(); !heard || *heard != nullptr) return heard;
  if (const auto taken = take_newcomers(); !taken) return tl::unexpected(taken.error());
  return hear_all();
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::hear_all() {
  const TimePoint now = engine_.context().clock.now();
  for (auto newcomer = newcomers_.begin(); newcomer != newcomers_.end();) {
    const Fate fate = hear(*newcomer);
    if (fate == Fate::kWaits && now < newcomer->deadline) {
      ++newcomer;
      continue;
    }
    Newcomer heard = std::move(*newcomer);
    newcomer = newcomers_.erase(newcomer);
    if (fate == Fate::kPeer) return admit(heard);
    if (fate == Fate::kRefused) return tl::unexpected(refuse(heard));
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

PskMode MltListener::psk_mode() const {
  const auto& protection = engine_.context().protection;
  return protection == nullptr ? PskMode::kNone : protection->mode();
}

// kPeer: `into` is full.
MltListener::Fate MltListener::read(Newcomer& newcomer, std::span<std::byte> into) {
  while (newcomer.have < into.size()) {
    const net::IoResult got = net::read_some(newcomer.socket.fd(), into.subspan(newcomer.have));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return Fate::kWaits;
    if (got.kind != net::IoResult::Kind::kBytes) return Fate::kGone;
    newcomer.have += got.bytes;
  }
  newcomer.have = 0;
  return Fate::kPeer;
}

MltListener::Fate MltListener::hear(Newcomer& newcomer) const {
  if (!newcomer.welcomed) {
    if (const Fate fate = read(newcomer, newcomer.hello); fate != Fate::kPeer) return fate;
    const auto hello = Hello::parse(newcomer.hello);
    if (!hello || !crypto::equal_in_constant_time(hello->token, token_) ||
        hello->ports.count != engine_.ports().count) {
      return Fate::kGone;
    }
    newcomer.verdict = judge(newcomer, *hello);
    if (newcomer.verdict != Verdict::kFine) return Fate::kRefused;
    if (const auto differs = difference(settings(), hello->settings)) {
      engine_.context().log.warn(fmt::format("mlt: refused {}: {}", newcomer.from.to_string(), *differs));
      return Fate::kGone;
    }
    if (engine_.context().protection == nullptr) return Fate::kPeer;
    if (const Fate fate = challenge(newcomer); fate != Fate::kPeer) return fate;
  }
  if (const Fate fate = read(newcomer, newcomer.confirm); fate != Fate::kPeer) return fate;
  const bool proven =
      engine_.context().protection->proves(newcomer.confirm, Protection::kConfirm, {newcomer.hello, newcomer.welcome});
  return proven ? Fate::kPeer : Fate::kGone;
}

Verdict MltListener::judge(const Newcomer& newcomer, const Hello& hello) const {
  const Verdict verdict = compare(psk_mode(), hello.psk.mode);
  if (verdict == Verdict::kPskFile || psk_mode() == PskMode::kNone) return verdict;
  const auto said = std::span(newcomer.hello).first<Hello::kProofAt>();
  // What the hello says of its mode counts only if it is genuine.
  if (!engine_.context().protection->proves(hello.psk.proof, Protection::kHello, {said})) return Verdict::kPskSecret;
  return verdict;
}

// Nothing is opened yet: this hello may be one of yesterday that somebody plays again.
MltListener::Fate MltListener::challenge(Newcomer& newcomer) const {
  const Protection& protection = *engine_.context().protection;
  Welcome welcome;
  welcome.ports = engine_.ports();
  welcome.psk.mode = protection.mode();
  if (!net::fill_random(welcome.psk.nonce)) return Fate::kGone;
  welcome.serialize_to(newcomer.welcome);
  const auto proof =
      protection.prove(Protection::kWelcome, {newcomer.hello, std::span(newcomer.welcome).first<Welcome::kProofAt>()});
  if (!proof) return Fate::kGone;
  welcome.psk.proof = *proof;
  welcome.serialize_to(newcomer.welcome);
  net::write_some(newcomer.socket.fd(), std::span<const std::byte>(newcomer.welcome));
  newcomer.welcomed = true;
  newcomer.deadline = engine_.context().clock.now() + kConfirmTimeout;
  return Fate::kPeer;
}

void MltListener::drop(const Newcomer& newcomer) {
  engine_.count_stranger();
  engine_.context().log.info(
      fmt::format("mlt: dropped a connection from {} that did not show this listener's token, or not in "
                  "time",
                  newcomer.from.to_string()));
}

// It showed the token, so it was given the handle: the communicator is configured in two ways, and both sides are told.
Error MltListener::refuse(const Newcomer& newcomer) const {
  Welcome answer;
  answer.ports = engine_.ports();
  answer.verdict = newcomer.verdict;
  answer.psk.mode = psk_mode();
  std::array<std::byte, Welcome::kSize> bytes;
  answer.serialize_to(bytes);
  net::write_some(newcomer.socket.fd(), std::span<const std::byte>(bytes));
  const PskMode theirs = Hello::parse(newcomer.hello)->psk.mode;
  return {ErrorCode::kInvalidUsage, fmt::format("mlt: accept from {} on {}: {}", newcomer.from.to_string(),
                                                engine_.name(), explain(newcomer.verdict, psk_mode(), theirs))};
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::admit(Newcomer& newcomer) {
  const auto hello = Hello::parse(newcomer.hello);
  const Protection* protection = engine_.context().protection.get();
  std::array<std::byte, Welcome::kSize> welcome;
  std::span<const std::byte> answer = welcome;
  std::optional<Session> session;
  Proof ready;
  if (protection == nullptr) {
    Welcome{engine_.ports(), Verdict::kFine, {}}.serialize_to(welcome);
  } else {
    const auto derived = protection->session(*hello, *Welcome::parse(newcomer.welcome));
    const auto proof = protection->prove(Protection::kReady, {newcomer.hello, newcomer.welcome});
    if (!derived || !proof) return tl::unexpected(derived ? proof.error() : derived.error());
    session = *derived;
    ready = *proof;
    answer = ready;
  }
  net::detect_dead_host(newcomer.socket);
  const std::string peer = fmt::format("{} (to {})", newcomer.from.to_string(), engine_.name());
  auto channel = std::make_unique<MltRecvChannel>(engine_, std::move(newcomer.socket), peer);
  const auto attached =
      channel->attach(Engine::End::kReceives, newcomer.from, hello->ports, secret_of(token_, hello->connection_id),
                      channel_, session ? &*session : nullptr);
  if (!attached) return tl::unexpected(attached.error());
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the channel reports that.
  net::write_some(channel->control().fd(), answer);
  return channel;
}

}  // namespace clustar::mlt::driver
