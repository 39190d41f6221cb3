// The connecting side of the handshake: shows the handle's token and its libfabric address on the control connection,
// learns the listener's, and sends it the first frame by the fabric.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "libfabric_shim/rdm/nic.h"
#include "transport/api/transport.h"
#include "transport/handshake/dial.h"

namespace clustar::transport::ofi {

class OfiPendingConnect final : public PendingConnect, private Exchange::Owner {
 public:
  // Errors: not a handle of ours, settings that differ from the listener's (names the setting), or libfabric's.
  static Result<std::unique_ptr<OfiPendingConnect>> start(Nic& nic, const Handle& handle,
                                                          const ChannelOptions& channel);
  ~OfiPendingConnect() override;

  Result<std::unique_ptr<SendChannel>> poll() override;

 private:
  // Until the first frame is sent: the fabric makes its own connections only then, and may be cut off where TCP is not.
  static constexpr Duration kFirstFrame = std::chrono::seconds(20);

  OfiPendingConnect(Nic& nic, std::shared_ptr<Exchange> exchange, const handshake::Invitation& invitation,
                    const ChannelOptions& channel, handshake::Dial dial)
      : nic_(nic), exchange_(std::move(exchange)), invitation_(invitation), channel_(channel), dial_(std::move(dial)) {}

  Result<bool> welcomed();
  Result<bool> greeted();
  Result<bool> greet();  // with the engine's lock
  void on_sent(std::uint32_t, std::size_t) override { sent_ = true; }
  void on_failure(const Error& error) override { failed_ = error; }

  Nic& nic_;
  const std::shared_ptr<Exchange> exchange_;
  const handshake::Invitation invitation_;
  const ChannelOptions channel_;
  handshake::Dial dial_;
  std::array<std::byte, Hello::kSize> hello_{};
  std::array<std::byte, Welcome::kSize> answer_{};
  std::optional<Welcome> welcome_{};
  fi_addr_t address_ = FI_ADDR_UNSPEC;
  TimePoint began_{};  // to send the first frame
  bool posted_ = false;
  bool sent_ = false;
  bool given_ = false;
  std::optional<Error> failed_{};  // known with the engine's lock
};

}  // namespace clustar::transport::ofi
