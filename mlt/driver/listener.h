// Accepts connections, and lets nobody in who cannot show the handle's token. A stranger costs a descriptor for at most
// kHelloTimeout and never delays a peer.
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
  static Result<std::unique_ptr<MltListener>> open(Engine& engine, const net::Address& address);

  const transport::Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<transport::RecvChannel>> poll_accept() override;

 private:
  static constexpr Duration kHelloTimeout = std::chrono::seconds(5);
  static constexpr std::size_t kMaxNewcomers = 256;

  struct Newcomer {
    net::Socket socket;
    net::Address from;
    TimePoint deadline;
    std::array<std::byte, Hello::kSize> bytes{};
    std::size_t have = 0;
  };
  enum class Fate : std::uint8_t { kWaits, kGone, kPeer };

  explicit MltListener(Engine& engine) : engine_(engine) {}

  Result<void> take_newcomers();
  Fate hear(Newcomer& newcomer) const;
  void drop(const Newcomer& newcomer);
  Result<std::unique_ptr<transport::RecvChannel>> welcome(Newcomer& newcomer, const Hello& hello);

  Engine& engine_;
  net::Socket listening_;
  Token token_{};
  transport::Handle handle_{};
  std::vector<Newcomer> newcomers_;
};

}  // namespace clustar::mlt::driver
