// The connecting side of the handshake: shows the token on a TCP connection, tells its ports, and waits for the
// listener's. With a pre-shared key both prove that they have it before either is open for packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "mlt/driver/engine.h"
#include "mlt/driver/handshake.h"
#include "transport/api/transport.h"
#include "transport/net/socket.h"

namespace clustar::mlt::driver {

class MltPendingConnect final : public transport::PendingConnect {
 public:
  // Errors: not a handle of ours, another family, or settings that differ from the listener's.
  static Result<std::unique_ptr<MltPendingConnect>> start(Engine& engine, const net::Address& local,
                                                          const transport::Handle& handle,
                                                          const transport::ChannelOptions& channel);

  Result<std::unique_ptr<transport::SendChannel>> poll() override;

 private:
  // Until the socket is connected; afterwards only the peer's host bounds the wait, since the listener's process
  // accepts when NCCL gets there.
  static constexpr Duration kConnectTimeout = std::chrono::seconds(20);
  // From the first failure. A refusal may pass (rules that are just being set up); a listener that is gone stays gone.
  static constexpr Duration kRetryTimeout = std::chrono::seconds(1);
  static constexpr Duration kRetryInterval = std::chrono::milliseconds(50);

  enum class State : std::uint8_t { kIdle, kConnecting, kGreeting, kWaiting, kConfirmed };

  MltPendingConnect(Engine& engine, const net::Address& local, const HandleInfo& info,
                    const transport::ChannelOptions& channel)
      : engine_(engine), local_(local), info_(info), remote_(info.endpoint), channel_(channel) {}

  Result<void> open();
  Result<bool> connected();
  Result<void> write_hello();
  Result<bool> greeted();
  Result<bool> read_exactly(std::span<std::byte> into);  // false: not all of it yet
  Result<bool> welcomed();
  Result<void> check(const Welcome& welcome) const;
  Result<void> confirm();
  Result<bool> ready();
  Result<std::unique_ptr<transport::SendChannel>> attach();
  // Another try while time is left, else the first error.
  Result<std::unique_ptr<transport::SendChannel>> on_failure(const Error& error);

  Engine& engine_;
  const net::Address local_;
  const HandleInfo info_;
  const net::Address remote_;
  const transport::ChannelOptions channel_;
  State state_ = State::kIdle;
  net::Socket socket_;
  std::uint64_t connection_id_ = 0;
  std::array<std::byte, Hello::kSize> hello_{};
  std::size_t sent_ = 0;
  std::array<std::byte, Welcome::kSize> welcome_{};
  Proof ready_{};
  std::size_t have_ = 0;  // of the welcome, or the ready
  TimePoint try_began_{};
  TimePoint first_failure_{};
  TimePoint next_try_{};
  std::optional<Error> first_error_;
};

}  // namespace clustar::mlt::driver
