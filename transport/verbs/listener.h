// Accepts connections: connects queue pairs with those that a Reception lets in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/api/transport.h"
#include "transport/handshake/reception.h"
#include "transport/net/socket.h"
#include "transport/verbs/wiring.h"

namespace clustar::transport::verbs {

class VerbsListener final : public Listener {
 public:
  static Result<std::unique_ptr<VerbsListener>> open(Nic& nic, const ChannelOptions& channel);

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override;

 private:
  static constexpr std::size_t kMaxGuests = 256;

  struct Guest {  // showed the token; its queue pairs are being connected
    net::Socket socket;
    net::Address from;
    int rank = -1;
    std::unique_ptr<Wiring> wiring;
    bool welcomed = false;
  };
  enum class Fate : std::uint8_t { kWaits, kGone, kDone };

  VerbsListener(Nic& nic, int traffic_class, handshake::Reception reception)
      : nic_(nic), traffic_class_(traffic_class), reception_(std::move(reception)) {}

  // Makes it a guest, or says in the log why not.
  void admit(handshake::Newcomer& newcomer);
  Result<Fate> advance(Guest& guest);

  Nic& nic_;
  const int traffic_class_;
  handshake::Reception reception_;
  Handle handle_{};
  std::vector<Guest> guests_;
  bool told_full_ = false;  // logged once, whatever the number of those who come
};

}  // namespace clustar::transport::verbs
