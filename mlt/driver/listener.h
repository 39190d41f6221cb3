// Accepts connections of those that a Reception lets in and who, with a pre-shared key, prove to have it. A peer that
// plays a hello again costs a descriptor for at most kConfirmTimeout.
#pragma once

#include <deque>
#include <memory>

#include "mlt/driver/engine.h"
#include "mlt/driver/handshake.h"
#include "transport/api/transport.h"
#include "transport/handshake/reception.h"

namespace clustar::mlt::driver {

class MltListener final : public transport::Listener {
 public:
  static Result<std::unique_ptr<MltListener>> open(std::shared_ptr<Engine> engine, const net::Address& address,
                                                   const transport::ChannelOptions& channel);

  const transport::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<transport::RecvChannel>> poll_accept() override;

 private:
  // Its process may be busy; a peer that comes too late says hello again.
  static constexpr Duration kConfirmTimeout = std::chrono::seconds(60);

  using Newcomer = handshake::Newcomer;

  MltListener(std::shared_ptr<Engine> engine, const transport::ChannelOptions& channel, handshake::Reception reception)
      : held_engine_(std::move(engine)), engine_(*held_engine_), channel_(channel), reception_(std::move(reception)) {}

  PskMode psk_mode() const;
  SharedSettings settings() const {
    return SharedSettings::of(engine_.options(), channel_.max_tolerance_ppm, engine_.io_name());
  }
  // Of somebody who said a hello, and a confirm. Null: it is dropped, or has to say more.
  Result<std::unique_ptr<transport::RecvChannel>> on_hello(Newcomer newcomer);
  Result<std::unique_ptr<transport::RecvChannel>> on_confirm(Newcomer& newcomer);
  Verdict judge(const Newcomer& newcomer, const Hello& hello) const;
  void challenge(Newcomer newcomer);
  Error refuse(const Newcomer& newcomer, Verdict verdict, PskMode theirs) const;
  Result<std::unique_ptr<transport::RecvChannel>> admit(Newcomer& newcomer);

  const std::shared_ptr<Engine> held_engine_;
  Engine& engine_;
  const transport::ChannelOptions channel_;
  handshake::Reception reception_;
  transport::Handle handle_{};
  std::deque<Newcomer> heard_;  // by the reception, not by this yet
};

}  // namespace clustar::mlt::driver
