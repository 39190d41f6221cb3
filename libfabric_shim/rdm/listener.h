// Accepts connections of those that a Reception lets in: tells them where its end is, and waits for their first frame.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "libfabric_shim/rdm/nic.h"
#include "libfabric_shim/rdm/recv_channel.h"
#include "transport/api/transport.h"
#include "transport/handshake/reception.h"

namespace clustar::transport::ofi {

class OfiListener final : public Listener {
 public:
  // Error: no address to listen on, or libfabric's.
  static Result<std::unique_ptr<OfiListener>> open(Nic& nic, const ChannelOptions& channel);

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override;

 private:
  static constexpr std::size_t kMaxGuests = 256;
  static constexpr Duration kFirstFrame = std::chrono::seconds(25);

  struct Guest {
    std::unique_ptr<OfiRecvChannel> channel;
    TimePoint deadline{};
  };

  OfiListener(Nic& nic, int traffic_class, handshake::Reception reception)
      : nic_(nic), traffic_class_(traffic_class), reception_(std::move(reception)) {}

  // Error: why it has no place here.
  Result<void> admit(handshake::Newcomer& newcomer);

  Nic& nic_;
  const int traffic_class_;
  handshake::Reception reception_;
  Handle handle_{};
  std::vector<Guest> guests_;
};

}  // namespace clustar::transport::ofi
