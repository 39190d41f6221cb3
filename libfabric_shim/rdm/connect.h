// The connecting side of the handshake: shows the handle's token and its libfabric address on the control connection,
// learns the listener's, and sends it the first frame by the fabric.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

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

  OfiPendingConnect(Nic& nic, Rails rails, const handshake::Invitation& invitation, const ChannelOptions& channel,
                    handshake::Dial dial)
      : nic_(nic), rails_(std::move(rails)), invitation_(invitation), channel_(channel), dial_(std::move(dial)) {}

  Result<bool> welcomed();
  Result<bool> greeted();
  Result<bool> greet();  // with the engine's lock
  void on_sent(std::uint32_t, std::size_t) override { ++sent_; }
  void on_failure(const Error& error) override { failed_ = error; }

  Nic& nic_;
  Rails rails_;  // of this end; once the peer answered, those that it has too
  const handshake::Invitation invitation_;
  const ChannelOptions channel_;
  handshake::Dial dial_;
  std::array<std::byte, Hello::kSize> hello_{};
  std::array<std::byte, Welcome::kSize> answer_{};
  std::optional<Welcome> welcome_{};
  std::vector<fi_addr_t> addresses_{};  // by rail
  TimePoint began_{};                   // to send the first frame
  // First frames, one on each rail.
  std::size_t posted_ = 0;
  std::size_t sent_ = 0;
  bool given_ = false;
  std::optional<Error> failed_{};  // known with the engine's lock
};

}  // namespace clustar::transport::ofi
