// Accepts connections, and lets nobody in who cannot show the handle's token and, with a pre-shared key, prove to have
// it. A stranger costs a descriptor for at most kHelloTimeout, or kConfirmTimeout for who plays a hello again, and
// never delays a peer.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "mlt/driver/engine.h"
#include "mlt/driver/handshake.h"
#include "transport/api/transport.h"
#include "transport/net/socket.h"

namespace clustar::mlt::driver {

class MltListener final : public transport::Listener {
 public:
  static Result<std::unique_ptr<MltListener>> open(Engine& engine, const net::Address& address,
                                                   const transport::ChannelOptions& channel);

  const transport::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<transport::RecvChannel>> poll_accept() override;

 private:
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  // Its process may be busy; who comes too late says hello again.
  static constexpr Duration kConfirmTimeout = std::chrono::seconds(60);
  static constexpr std::size_t kMaxNewcomers = 256;

  struct Newcomer {
    net::Socket socket;
    net::Address from;
    TimePoint deadline;
    std::array<std::byte, Hello::kSize> hello{};
    std::array<std::byte, Welcome::kSize> welcome{};
    Proof confirm{};
    bool welcomed = false;  // its confirm is awaited
    std::size_t have = 0;   // of the hello, or the confirm
    Verdict verdict = Verdict::kFine;
  };
  enum class Fate : std::uint8_t { kWaits, kGone, kPeer, kRefused };

  MltListener(Engine& engine, const transport::ChannelOptions& channel) : engine_(engine), channel_(channel) {}

  Result<void> take_newcomers();
  PskMode psk_mode() const;
  SharedSettings settings() const {
    return SharedSettings::of(engine_.options(), channel_.max_tolerance_ppm, engine_.datapath());
  }
  static Fate read(Newcomer& newcomer, std::span<std::byte> into);
  Result<std::unique_ptr<transport::RecvChannel>> hear_all();  // the first peer among them; null: none
  Fate hear(Newcomer& newcomer) const;
  Verdict judge(const Newcomer& newcomer, const Hello& hello) const;
  Fate challenge(Newcomer& newcomer) const;
  void drop(const Newcomer& newcomer);
  Error refuse(const Newcomer& newcomer) const;
  Result<std::unique_ptr<transport::RecvChannel>> admit(Newcomer& newcomer);

  Engine& engine_;
  const transport::ChannelOptions channel_;
  net::Socket listening_;
  Token token_{};
  transport::Handle handle_{};
  std::vector<Newcomer> newcomers_;
};

}  // namespace clustar::mlt::driver
