// Accepts connections: gathers the sockets of each connection, and lets nobody in who cannot show the handle's token.
// A stranger costs a descriptor for at most kHelloTimeout and never delays a peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/api/transport.h"
#include "transport/net/socket.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpListener final : public Listener {
 public:
  static Result<std::unique_ptr<TcpListener>> open(Nic& nic, const ChannelOptions& channel);

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override;

 private:
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  static constexpr std::size_t kMaxNewcomers = 256;
  static constexpr std::size_t kMaxGatherings = 256;

  struct Newcomer {  // has not said a whole hello yet
    net::Socket socket;
    net::Address from;
    TimePoint deadline;
    std::array<std::byte, Hello::kSize> bytes{};
    std::size_t have = 0;
  };
  struct Gathering {  // showed the token; some of its sockets are still to come
    std::uint64_t connection_id = 0;
    net::Address from;
    std::vector<net::Socket> sockets;  // [0] control, then data; empty until it came
  };
  enum class Fate : std::uint8_t { kWaits, kGone, kJoined };

  explicit TcpListener(Nic& nic) : nic_(nic) {}

  Result<void> take_newcomers();
  void hear_newcomers();
  Fate hear(Newcomer& newcomer);
  Fate admit(Newcomer& newcomer, const Hello& hello);
  void drop_dead_gatherings();
  Result<std::unique_ptr<RecvChannel>> welcome(Gathering& gathering);

  Nic& nic_;
  std::vector<net::Socket> listening_;
  Token token_{};
  Handle handle_{};
  std::vector<Newcomer> newcomers_;
  std::vector<Gathering> gatherings_;
};

}  // namespace clustar::transport::tcp
