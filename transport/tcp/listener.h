// Accepts connections: gathers the sockets of each connection, of those that a Reception lets in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "transport/api/transport.h"
#include "transport/handshake/reception.h"
#include "transport/net/socket.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpListener final : public Listener {
 public:
  static Result<std::unique_ptr<TcpListener>> open(Nic& nic, const ChannelOptions& channel);

  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override;

 private:
  static constexpr std::size_t kMaxGatherings = 256;

  struct Gathering {  // showed the token; some of its sockets are still to come
    std::uint64_t connection_id = 0;
    net::Address from;
    int rank = -1;
    SharedSettings settings{};
    std::vector<net::Socket> sockets;  // [0] control, then data; empty until it came
  };

  TcpListener(Nic& nic, int traffic_class, handshake::Reception reception)
      : nic_(nic), traffic_class_(traffic_class), reception_(std::move(reception)) {}

  // Error: why it has no place here.
  Result<void> admit(handshake::Newcomer& newcomer);
  void drop_dead_gatherings();
  Result<std::unique_ptr<RecvChannel>> welcome(Gathering& gathering);

  Nic& nic_;
  const int traffic_class_;
  handshake::Reception reception_;
  Handle handle_{};
  std::vector<Gathering> gatherings_;
};

}  // namespace clustar::transport::tcp
