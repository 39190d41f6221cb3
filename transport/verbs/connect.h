// The connecting side of the handshake: shows the handle's token and its queue pairs on the control connection, learns
// the listener's, connects them, and says when they are ready.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "transport/api/transport.h"
#include "transport/handshake/dial.h"
#include "transport/verbs/wiring.h"

namespace clustar::transport::verbs {

class VerbsPendingConnect final : public PendingConnect {
 public:
  // Errors: not a handle of ours, or settings that differ from the listener's (names the setting).
  static Result<std::unique_ptr<VerbsPendingConnect>> start(Nic& nic, const Handle& handle,
                                                            const ChannelOptions& channel);

  Result<std::unique_ptr<SendChannel>> poll() override;

 private:
  VerbsPendingConnect(Nic& nic, const handshake::Invitation& invitation, const ChannelOptions& channel,
                      handshake::Dial dial)
      : nic_(nic), invitation_(invitation), channel_(channel), dial_(std::move(dial)) {}

  Result<bool> welcomed();
  Result<void> open();

  Nic& nic_;
  const handshake::Invitation invitation_;
  const ChannelOptions channel_;
  handshake::Dial dial_;
  std::unique_ptr<Wiring> wiring_;  // of all tries
  bool welcomed_ = false;           // and no channel was given
  std::array<std::byte, Hello::kSize> hello_{};
  std::array<std::byte, Welcome::kSize> welcome_{};
};

}  // namespace clustar::transport::verbs
