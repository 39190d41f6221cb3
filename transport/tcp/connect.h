// The connecting side of the handshake: opens the control and data sockets of one connection, shows the token on each,
// and waits for the listener's welcome.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "transport/api/transport.h"
#include "transport/handshake/dial.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpPendingConnect final : public PendingConnect {
 public:
  // Errors: not a handle of ours, or settings that differ from the listener's (names the setting).
  static Result<std::unique_ptr<TcpPendingConnect>> start(Nic& nic, const Handle& handle,
                                                          const ChannelOptions& channel);

  Result<std::unique_ptr<SendChannel>> poll() override;

 private:
  TcpPendingConnect(Nic& nic, const handshake::Invitation& invitation, const ChannelOptions& channel,
                    handshake::Dial dial)
      : nic_(nic), invitation_(invitation), channel_(channel), dial_(std::move(dial)) {}

  Result<bool> welcomed();
  Result<void> open_lines();

  Nic& nic_;
  const handshake::Invitation invitation_;
  const ChannelOptions channel_;
  handshake::Dial dial_;
  std::array<std::byte, Welcome::kSize> welcome_{};
};

}  // namespace clustar::transport::tcp
