#include "mlt/driver/listener.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "mlt/driver/recv_channel.h"

namespace clustar::mlt::driver {
namespace {

std::span<const std::byte, Hello::kSize> hello_of(const handshake::Newcomer& newcomer) {
  return std::span(newcomer.said).first<Hello::kSize>();
}

}  // namespace

Result<std::unique_ptr<MltListener>> MltListener::open(std::shared_ptr<Engine> engine, const net::Address& address,
                                                       const transport::ChannelOptions& channel) {
  const Context& context = engine->context();
  auto reception =
      handshake::Reception::open({"mlt", context.clock, context.log, [engine] { engine->count_stranger(); }},
                                 Hello::kFormat, std::span(&address, 1), {}, handshake::kMaxEndpointSize);
  if (!reception) return tl::unexpected(reception.error());
  const auto invitation = reception->invitation(channel);
  std::unique_ptr<MltListener> listener(new MltListener(std::move(engine), channel, std::move(*reception)));
  HandleInfo info;
  info.token = invitation.token;
  info.settings = listener->settings();
  info.psk_mode = listener->psk_mode();
  info.config = invitation.config;
  info.endpoint = invitation.endpoints.front();
  listener->handle_ = info.serialize();
  return listener;
}

// One at a time: the others wait in heard_, as many as a reception hears at once.
Result<std::unique_ptr<transport::RecvChannel>> MltListener::poll_accept() {
  if (heard_.empty()) {
    auto heard = reception_.hear();
    if (!heard) return tl::unexpected(heard.error());
    std::ranges::move(*heard, std::back_inserter(heard_));
  }
  while (!heard_.empty()) {
    Newcomer newcomer = std::move(heard_.front());
    heard_.pop_front();
    auto made = newcomer.answered.empty() ? on_hello(std::move(newcomer)) : on_confirm(newcomer);
    if (!made || *made != nullptr) return made;
  }
  return nullptr;
}

PskMode MltListener::psk_mode() const {
  const auto& protection = engine_.context().protection;
  return protection == nullptr ? PskMode::kNone : protection->mode();
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::on_hello(Newcomer newcomer) {
  const auto hello = Hello::parse(hello_of(newcomer));
  if (!hello) {
    reception_.drop(newcomer);
    return nullptr;
  }
  if (const Verdict verdict = judge(newcomer, *hello); verdict != Verdict::kFine) {
    return tl::unexpected(refuse(newcomer, verdict, hello->psk.mode));
  }
  if (const auto differs = difference(settings(), hello->settings)) {
    engine_.context().log.warn(fmt::format("mlt: refused {}: {}", newcomer.from.to_string(), *differs));
    reception_.drop(newcomer);
    return nullptr;
  }
  if (engine_.context().protection == nullptr) return admit(newcomer);
  challenge(std::move(newcomer));
  return nullptr;
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::on_confirm(Newcomer& newcomer) {
  Proof confirm;
  std::ranges::copy(std::span(newcomer.said).subspan<Hello::kSize>(), confirm.begin());
  if (engine_.context().protection->proves(confirm, Protection::kConfirm, {hello_of(newcomer), newcomer.answered})) {
    return admit(newcomer);
  }
  reception_.drop(newcomer);
  return nullptr;
}

Verdict MltListener::judge(const Newcomer& newcomer, const Hello& hello) const {
  const Verdict verdict = compare(psk_mode(), hello.psk.mode);
  if (verdict == Verdict::kPskFile || psk_mode() == PskMode::kNone) return verdict;
  const auto said = hello_of(newcomer).first<Hello::kProofAt>();
  // What the hello says of its mode counts only if it is genuine.
  if (!engine_.context().protection->proves(hello.psk.proof, Protection::kHello, {said})) return Verdict::kPskSecret;
  return verdict;
}

// Nothing is opened yet: this hello may be one of yesterday that somebody plays again.
void MltListener::challenge(Newcomer newcomer) {
  const Protection& protection = *engine_.context().protection;
  Welcome welcome;
  welcome.address = engine_.local_address();
  welcome.parity = engine_.parity() != nullptr;
  welcome.psk.mode = protection.mode();
  if (!net::fill_random(welcome.psk.nonce)) return reception_.drop(newcomer);
  std::array<std::byte, Welcome::kSize> bytes;
  welcome.serialize_to(bytes);
  const auto proof =
      protection.prove(Protection::kWelcome, {hello_of(newcomer), std::span(bytes).first<Welcome::kProofAt>()});
  if (!proof) return reception_.drop(newcomer);
  welcome.psk.proof = *proof;
  welcome.serialize_to(bytes);
  reception_.answer(std::move(newcomer), bytes, std::tuple_size_v<Proof>, kConfirmTimeout);
}

// It showed the token, so it was given the handle: the communicator is configured in two ways, and both sides are told.
Error MltListener::refuse(const Newcomer& newcomer, Verdict verdict, PskMode theirs) const {
  Welcome answer;
  answer.address = engine_.local_address();
  answer.verdict = verdict;
  answer.psk.mode = psk_mode();
  std::array<std::byte, Welcome::kSize> bytes;
  answer.serialize_to(bytes);
  net::write_some(newcomer.socket.fd(), std::span<const std::byte>(bytes));
  return {ErrorCode::kInvalidUsage, fmt::format("mlt: accept from {} on {}: {}", newcomer.from.to_string(),
                                                engine_.name(), explain(verdict, psk_mode(), theirs))};
}

Result<std::unique_ptr<transport::RecvChannel>> MltListener::admit(Newcomer& newcomer) {
  const auto hello = Hello::parse(hello_of(newcomer));
  const Protection* protection = engine_.context().protection.get();
  std::array<std::byte, Welcome::kSize> welcome;
  std::span<const std::byte> answer = welcome;
  std::optional<Session> session;
  Proof ready;
  if (protection == nullptr) {
    Welcome{engine_.local_address(), Verdict::kFine, {}, engine_.parity() != nullptr}.serialize_to(welcome);
  } else {
    const auto derived =
        protection->session(*hello, *Welcome::parse(std::span(newcomer.answered).first<Welcome::kSize>()));
    const auto proof = protection->prove(Protection::kReady, {hello_of(newcomer), newcomer.answered});
    if (!derived || !proof) return tl::unexpected(derived ? proof.error() : derived.error());
    session = *derived;
    ready = *proof;
    answer = ready;
  }
  net::detect_dead_host(newcomer.socket);
  const std::string peer = fmt::format("{} (to {})", newcomer.from.to_string(), engine_.name());
  const transport::PeerInfo far_end{newcomer.from.host(), hello->rank};
  auto channel = std::make_unique<MltRecvChannel>(held_engine_, std::move(newcomer.socket), far_end, peer);
  const auto attached =
      channel->attach(Engine::End::kReceives, {newcomer.from, hello->address, hello->rank},
                      secret_of(reception_.token(), hello->connection_id), channel_, session ? &*session : nullptr);
  if (!attached) return tl::unexpected(attached.error());
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the channel reports that.
  net::write_some(channel->control().fd(), answer);
  return channel;
}

}  // namespace clustar::mlt::driver
