// A packet socket on one half of a cut cable: whole frames in and out, with what the kernel has yet to do to them (a
// checksum that is still to be computed travels along in a virtio_net_hdr).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::fabric {

inline constexpr std::size_t kPacketBatch = 64;

class PacketPort {
 public:
  // What receive() found: a virtio_net_hdr and a frame, and how long ago it came, in ns.
  struct Arrival {
    std::span<const std::byte> packet;
    std::int64_t age_ns = 0;
    bool super_packet = false;  // stands for several, or does not fit; `packet` is not to be used
  };

  PacketPort() = default;
  ~PacketPort();
  PacketPort(PacketPort&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        memory_(std::move(other.memory_)),
        slot_bytes_(other.slot_bytes_),
        wall_ahead_ns_(other.wall_ahead_ns_) {}
  PacketPort& operator=(PacketPort&&) = delete;

  // In the calling thread's namespace. Frames may have up to `mtu` + 14 bytes.
  Result<void> open(const std::string& interface, int mtu);
  int fd() const { return fd_; }
  // What has come by now, at most kPacketBatch; valid until the next call.
  std::span<const Arrival> receive();
  // How many of `packets` (at most kPacketBatch) went; -1 with errno when none did.
  int send(std::span<const std::span<const std::byte>> packets);
  // What the socket had no room for since the last call.
  std::uint64_t take_lost();

 private:
  int fd_ = -1;
  std::vector<std::byte> memory_;
  std::size_t slot_bytes_ = 0;
  std::int64_t wall_ahead_ns_ = 0;  // of the monotonic clock, at the last receive()
  std::array<Arrival, kPacketBatch> arrivals_{};
};

}  // namespace clustar::bench::fabric
