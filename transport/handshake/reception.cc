#include "transport/handshake/reception.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace clustar::transport::handshake {
namespace {

std::string full() {
  return fmt::format("it was the oldest of {} that were still to say their hello, and others came",
                     Reception::kMaxNewcomers);
}

std::string too_late(const Newcomer& newcomer) {
  if (newcomer.have == 0) {
    return fmt::format("it said nothing for {} s",
                       std::chrono::duration_cast<std::chrono::seconds>(Reception::kHelloTimeout).count());
  }
  return fmt::format("it said {} of {} bytes and no more in time", newcomer.have, newcomer.said.size());
}

}  // namespace

Result<Reception> Reception::open(Host host, const HelloFormat& hello, std::span<const net::Address> addresses,
                                  const net::SocketOptions& options, std::size_t room) {
  Reception reception(std::move(host), hello);
  Invitation offered;
  Error last_error;
  for (const net::Address& address : addresses) {
    auto socket = net::listen_on(address, options);
    if (!socket) {
      // An address may have gone since the interfaces were listed; the others are used.
      reception.host_.log.info(fmt::format("{}: {}", reception.host_.transport, socket.error().message));
      last_error = socket.error();
      continue;
    }
    const net::Endpoint endpoint = net::local_address(*socket).endpoint();
    if (!offered.has_room(endpoint, room)) break;
    offered.endpoints.push_back(endpoint);
    reception.listening_.push_back(std::move(*socket));
  }
  if (offered.endpoints.empty()) return tl::unexpected(last_error);
  reception.endpoints_ = std::move(offered.endpoints);
  if (const auto filled = net::fill_random(reception.token_); !filled) return tl::unexpected(filled.error());
  return reception;
}

// Those who are here are heard first: only who had the time to speak may have to make room for others.
Result<std::vector<Newcomer>> Reception::hear() {
  std::vector<Newcomer> heard;
  hear_into(heard);
  Result<void> taken;
  for (const net::Socket& listening : listening_) {
    if (auto from_here = take(listening); !from_here) taken = std::move(from_here);
    hear_into(heard);
  }
  if (!taken && heard.empty()) return tl::unexpected(taken.error());
  return heard;
}

Result<void> Reception::take(const net::Socket& listening) {
  const TimePoint deadline = host_.clock.now() + kHelloTimeout;
  for (std::size_t taken = 0; taken < kMaxNewcomers; ++taken) {
    net::Address from;
    auto socket = net::accept_from(listening, &from);
    // Out of descriptors, or a flood of silent connections: the oldest stranger makes room, no peer is turned away.
    if (!socket && newcomers_.empty()) return tl::unexpected(socket.error());
    if (socket && !*socket) break;
    if (!socket) {
      drop_oldest(fmt::format("it was the oldest that was still to say its hello, and room was needed: {}",
                              socket.error().message));
      continue;
    }
    if (newcomers_.size() >= kMaxNewcomers) drop_oldest(full());
    newcomers_.push_back({std::move(*socket), from, deadline, std::vector<std::byte>(hello_.size)});
  }
  return {};
}

void Reception::hear_into(std::vector<Newcomer>& heard) {
  const TimePoint now = host_.clock.now();
  std::erase_if(newcomers_, [&](Newcomer& newcomer) {
    const Hearing hearing = hear(newcomer);
    if (hearing.fate == Fate::kWaits && now < newcomer.deadline) return false;
    if (hearing.fate == Fate::kHeard) {
      heard.push_back(std::move(newcomer));
    } else {
      drop(newcomer, hearing.fate == Fate::kWaits ? too_late(newcomer) : hearing.why);
    }
    return true;
  });
}

Reception::Hearing Reception::hear(Newcomer& newcomer) const {
  while (newcomer.have < newcomer.said.size()) {
    const net::IoResult got = net::read_some(newcomer.socket.fd(), std::span(newcomer.said).subspan(newcomer.have));
    if (got.kind == net::IoResult::Kind::kWouldBlock) return {Fate::kWaits};
    if (got.kind == net::IoResult::Kind::kError) {
      return {Fate::kStranger,
              fmt::format("after {} of {} bytes: {}", newcomer.have, newcomer.said.size(), describe_errno(got.error))};
    }
    if (got.kind != net::IoResult::Kind::kBytes) {
      return {Fate::kStranger,
              fmt::format("it closed the connection after {} of {} bytes", newcomer.have, newcomer.said.size())};
    }
    const bool shown = newcomer.have >= HelloFormat::kFrontSize;
    newcomer.have += got.bytes;
    if (shown || newcomer.have < HelloFormat::kFrontSize) continue;
    if (std::string fault = fault_of(newcomer); !fault.empty()) return {Fate::kStranger, std::move(fault)};
  }
  return {Fate::kHeard};
}

// Empty: it shows the token.
std::string Reception::fault_of(const Newcomer& newcomer) const {
  const auto front = std::span(newcomer.said).first<HelloFormat::kFrontSize>();
  switch (hello_.judge(front, token_)) {
    case Front::kShowsToken: break;
    case Front::kOtherProtocol: return fmt::format("it does not speak clustar's {} protocol", host_.transport);
    case Front::kOtherVersion:
      return fmt::format("it speaks version {} of the {} protocol, allowed is {}; load the same plugin on all ranks",
                         HelloFormat::version_of(front), host_.transport, hello_.version);
    case Front::kOtherToken: return "it showed another token than this listener's";
  }
  return "";
}

void Reception::answer(Newcomer newcomer, std::span<const std::byte> words, std::size_t more, Duration limit) {
  // The first bytes on a fresh socket fit its buffer; if the connector is gone, the next read tells.
  net::write_some(newcomer.socket.fd(), words);
  newcomer.answered.assign(words.begin(), words.end());
  newcomer.said.resize(newcomer.said.size() + more);
  newcomer.deadline = host_.clock.now() + limit;
  if (newcomers_.size() >= kMaxNewcomers) drop_oldest(full());
  newcomers_.push_back(std::move(newcomer));
}

void Reception::drop(const Newcomer& newcomer, std::string_view why) const {
  host_.count_stranger();
  host_.log.info(fmt::format("{}: dropped a connection from {}: {}", host_.transport, newcomer.from.to_string(), why));
}

// A peer that was answered has shown the token: it goes only where all have.
void Reception::drop_oldest(const std::string& why) {
  auto oldest = std::ranges::find_if(newcomers_, [](const Newcomer& one) { return one.answered.empty(); });
  if (oldest == newcomers_.end()) oldest = newcomers_.begin();
  drop(*oldest, why);
  newcomers_.erase(oldest);
}

}  // namespace clustar::transport::handshake
