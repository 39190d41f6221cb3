// The connecting side of the handshake: shows the token on a TCP connection, tells its ports, and waits for the
// listener's. With a pre-shared key both prove that they have it before either is open for packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "mlt/driver/engine.h"
#include "mlt/driver/handshake.h"
#include "transport/api/transport.h"
#include "transport/handshake/dial.h"

namespace clustar::mlt::driver {

class MltPendingConnect final : public transport::PendingConnect {
 public:
  // Errors: not a handle of ours, another family, or settings that differ from the listener's.
  static Result<std::unique_ptr<MltPendingConnect>> start(std::shared_ptr<Engine> engine, const net::Address& local,
                                                          const transport::Handle& handle,
                                                          const transport::ChannelOptions& channel);

  Result<std::unique_ptr<transport::SendChannel>> poll() override;

 private:
  MltPendingConnect(std::shared_ptr<Engine> engine, const Token& token, int rank_there,
                    const transport::ChannelOptions& channel, handshake::Dial dial)
      : held_engine_(std::move(engine)),
        engine_(*held_engine_),
        token_(token),
        rank_there_(rank_there),
        channel_(channel),
        dial_(std::move(dial)) {}

  Result<bool> shaken();
  Result<void> open();
  Result<void> write_hello();
  Result<void> check(const Welcome& welcome) const;
  Result<void> confirm();
  Result<std::unique_ptr<transport::SendChannel>> attach();

  const std::shared_ptr<Engine> held_engine_;
  Engine& engine_;
  const Token token_;
  const int rank_there_;
  const transport::ChannelOptions channel_;
  handshake::Dial dial_;
  bool confirmed_ = false;
  std::uint64_t connection_id_ = 0;
  std::array<std::byte, Hello::kSize> hello_{};
  std::array<std::byte, Welcome::kSize> welcome_{};
  Proof ready_{};
};

}  // namespace clustar::mlt::driver
