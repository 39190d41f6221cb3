// The listening side up to a whole hello: takes connections, and lets nobody on who does not show the token. A stranger
// costs a descriptor for at most kHelloTimeout and never delays a peer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/net/socket.h"

namespace clustar::transport::handshake {

struct Newcomer {
  net::Socket socket;
  net::Address from;
  TimePoint deadline{};
  std::vector<std::byte> said{};      // as long as what is awaited of it
  std::size_t have = 0;               // of `said`
  std::vector<std::byte> answered{};  // by Reception::answer()
};

class Reception {
 public:
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  static constexpr std::size_t kMaxNewcomers = 256;

  // What its transport gives; outlives it.
  struct Host {
    std::string transport;  // begins every message: "tcp"
    const Clock& clock;
    const Log& log;
    std::function<void()> count_stranger;
  };

  // Listens on those of `addresses` that find room in a handle (`room`: bytes for endpoints), with a new token. The
  // error of the last address when there is none.
  static Result<Reception> open(Host host, const HelloFormat& hello, std::span<const net::Address> addresses,
                                const net::SocketOptions& options, std::size_t room);

  // For the handle.
  Invitation invitation(const ChannelOptions& channel) const {
    return {token_, SharedConfig::of(channel), channel.reads_identity, endpoints_};
  }
  const Token& token() const { return token_; }

  // Those who have said all that is awaited: a whole hello with the token, or what answer() asked for; each once.
  // Error: no descriptors, and no stranger who could give one up.
  Result<std::vector<Newcomer>> hear();
  // Says it to somebody who was heard, and awaits `more` bytes behind what it said.
  void answer(Newcomer newcomer, std::span<const std::byte> words, std::size_t more, Duration limit);
  // It showed the token but not all that the transport wants to see. `why`: in the log, behind "dropped a connection
  // from <address>: ".
  void drop(
      const Newcomer& newcomer,
      std::string_view why = "it showed the token, but the rest of what it said does not fit this listener") const;

 private:
  enum class Fate : std::uint8_t { kWaits, kStranger, kHeard };
  struct Hearing {
    Fate fate = Fate::kWaits;
    std::string why{};  // of a stranger
  };

  Reception(Host host, const HelloFormat& hello) : host_(std::move(host)), hello_(hello) {}

  Result<void> take(const net::Socket& listening);
  void hear_into(std::vector<Newcomer>& heard);
  Hearing hear(Newcomer& newcomer) const;
  std::string fault_of(const Newcomer& newcomer) const;
  void drop_oldest(const std::string& why);

  Host host_;
  HelloFormat hello_;
  Token token_{};
  std::vector<net::Endpoint> endpoints_;
  std::vector<net::Socket> listening_;
  std::vector<Newcomer> newcomers_;
};

}  // namespace clustar::transport::handshake
