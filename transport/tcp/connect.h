// The connecting side of the handshake: opens the control and data sockets of one connection, shows the token on each,
// and waits for the listener's welcome. Tries the handle's endpoints in turn.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/net/socket.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpPendingConnect final : public PendingConnect {
 public:
  // Errors: not a handle of ours, or settings that differ from the listener's (names the setting).
  static Result<std::unique_ptr<TcpPendingConnect>> start(Nic& nic, const Handle& handle,
                                                          const ChannelOptions& channel);

  Result<std::unique_ptr<SendChannel>> poll() override;

 private:
  // Per try, from the first SYN to the sockets being connected; afterwards only the peer's host bounds the wait, since
  // the listener's process accepts when NCCL gets there.
  static constexpr Duration kConnectTimeout = std::chrono::seconds(20);
  // From the first failure. A refusal may pass (rules that are just being set up), and a listener takes a process that
  // was paused in mid-greeting for a stranger; a listener that is gone stays gone.
  static constexpr Duration kRetryTimeout = std::chrono::seconds(1);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(50);

  enum class State : std::uint8_t { kIdle, kConnecting, kGreeting, kWaiting };
  struct Line {
    net::Socket socket;
    bool connected = false;
    std::array<std::byte, Hello::kSize> hello{};
    std::size_t sent = 0;
  };

  TcpPendingConnect(Nic& nic, HandleInfo info) : nic_(nic), info_(std::move(info)) {}

  Result<void> open_lines();
  Result<bool> lines_connected();
  Result<bool> greeted();
  Result<std::unique_ptr<SendChannel>> await_welcome();
  // Another try at the next endpoint while time is left, else the first error.
  Result<std::unique_ptr<SendChannel>> on_failure(const Error& error);
  net::Address remote() const { return net::Address(info_.endpoints[endpoint_]); }

  Nic& nic_;
  HandleInfo info_;
  State state_ = State::kIdle;
  std::size_t endpoint_ = 0;
  std::size_t failures_ = 0;
  std::vector<Line> lines_;
  TimePoint try_began_{};
  TimePoint first_failure_{};
  TimePoint next_try_{};
  std::optional<Error> first_error_;
  std::array<std::byte, Welcome::kSize> welcome_{};
  std::size_t welcome_have_ = 0;
};

}  // namespace clustar::transport::tcp
