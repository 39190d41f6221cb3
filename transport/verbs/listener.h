// Accepts connections: hears the greeting of each, lets nobody in who cannot show the handle's token, and connects
// queue pairs with those who can. A stranger costs a descriptor for at most kHelloTimeout and never delays a peer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/api/transport.h"
#include "transport/net/socket.h"
#include "transport/verbs/wiring.h"

namespace clustar::transport::verbs {

class VerbsListener final : public Listener {
 public:
  static Result<std::unique_ptr<VerbsListener>> open(Nic& nic, const ChannelOptions& channel);

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override;

 private:
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  static constexpr std::size_t kMaxNewcomers = 256;
  static constexpr std::size_t kMaxGuests = 256;

  struct Newcomer {  // has not said a whole hello yet
    net::Socket socket;
    net::Address from;
    TimePoint deadline;
    std::array<std::byte, Hello::kSize> bytes{};
    std::size_t have = 0;
  };
  struct Guest {  // showed the token; its queue pairs are being connected
    net::Socket socket;
    net::Address from;
    std::unique_ptr<Wiring> wiring;
    bool welcomed = false;
  };
  enum class Fate : std::uint8_t { kWaits, kGone, kRefused, kJoined };

  VerbsListener(Nic& nic, int traffic_class) : nic_(nic), traffic_class_(traffic_class) {}

  Result<void> take_newcomers();
  void hear_newcomers();
  Fate hear(Newcomer& newcomer);
  Fate admit(Newcomer& newcomer, const Hello& hello);
  // kJoined: it is ready to become a channel.
  Result<Fate> advance(Guest& guest);

  Nic& nic_;
  const int traffic_class_;
  std::vector<net::Socket> listening_;
  Token token_{};
  Handle handle_{};
  std::vector<Newcomer> newcomers_;
  std::vector<Guest> guests_;
  bool told_full_ = false;  // logged once, whatever the number of those who come
};

}  // namespace clustar::transport::verbs
