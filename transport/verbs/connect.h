// The connecting side of the handshake: shows the handle's token and its queue pairs on the control connection, learns
// the listener's, connects them, and says when they are ready. Tries the handle's endpoints in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "transport/api/transport.h"
#include "transport/net/socket.h"
#include "transport/verbs/wiring.h"

namespace clustar::transport::verbs {

class VerbsPendingConnect final : public PendingConnect {
 public:
  // Errors: not a handle of ours, or settings that differ from the listener's (names the setting).
  static Result<std::unique_ptr<VerbsPendingConnect>> start(Nic& nic, const Handle& handle,
                                                            const ChannelOptions& channel);

  Result<std::unique_ptr<SendChannel>> poll() override;

 private:
  // Per try, until the socket is connected; afterwards only the peer's host bounds the wait, since the listener's
  // process accepts when NCCL gets there.
  static constexpr Duration kConnectTimeout = std::chrono::seconds(20);
  // From the first failure; a listener that is gone stays gone.
  static constexpr Duration kRetryTimeout = std::chrono::seconds(1);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(50);

  enum class State : std::uint8_t { kIdle, kConnecting, kGreeting, kWaiting, kWiring };

  VerbsPendingConnect(Nic& nic, HandleInfo info, int traffic_class)
      : nic_(nic), info_(std::move(info)), traffic_class_(traffic_class) {}

  Result<void> open();
  Result<bool> connected();
  Result<bool> greeted();
  Result<bool> welcomed();
  // Another try at the next endpoint while time is left, else the first error.
  Result<std::unique_ptr<SendChannel>> on_failure(const Error& error);
  net::Address remote() const { return net::Address(info_.endpoints[endpoint_]); }

  Nic& nic_;
  HandleInfo info_;
  const int traffic_class_;
  State state_ = State::kIdle;
  std::size_t endpoint_ = 0;
  std::size_t failures_ = 0;
  net::Socket control_;
  std::unique_ptr<Wiring> wiring_;
  std::array<std::byte, Hello::kSize> hello_{};
  std::size_t hello_sent_ = 0;
  std::array<std::byte, Welcome::kSize> welcome_{};
  std::size_t welcome_have_ = 0;
  TimePoint try_began_{};
  TimePoint first_failure_{};
  TimePoint next_try_{};
  std::optional<Error> first_error_;
};

}  // namespace clustar::transport::verbs
