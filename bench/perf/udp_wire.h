// A Wire of bare UDP: what this path gives a UDP transport at most. Nothing is sent again, ordered or put into its
// place; the kernel copies each packet once into the receiver's memory, header and payload side by side.
//
// Payload goes out in packets as long as the MTU allows, each behind a header as long as that of MLT's data packets,
// joined by UDP_SEGMENT and, at the receiver, by UDP_GRO where the kernel does that. Both directions are streams of
// positions:
//
//  0       4      5        8          16                37
// | magic | kind | 0      | position | 0 ..            | payload      data: position of its first byte
//                                                                     credit: all below has arrived or is lost
// Integers are big-endian; the other kinds have the first         mark: all below was sent
// 16 bytes only.                                                      hello, welcome: the token in place of a position
//
// A sender is at most a window ahead of its credit, so that the peer's socket buffer does not overflow; when credit is
// late it sends a mark, which is answered at once and tells what was lost at the end.
#pragma once

#include <netinet/in.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "bench/perf/wire.h"
#include "bench/proxy/socket_io.h"

namespace clustar::bench::perf {

class UdpWire final : public Wire {
 public:
  // What MLT puts in front of a data packet's payload, but for the first ones of a message: 38 bytes and UDP's framing.
  static constexpr std::size_t kHeaderBytes = 39;
  // The length of UDP payload that `mtu` carries.
  static std::size_t packet_bytes(std::size_t mtu, bool ipv6);

  // Between rank 0, which listens on `address`, and rank 1.
  UdpWire(int rank, std::string address);

  Result<std::vector<std::string>> listen(int count) override;
  Result<void> connect(const std::vector<std::string>& handles, Clock::time_point deadline) override;
  Result<void> attach(const Memory& send, const Memory& receive) override;
  Result<void> detach() override { return {}; }
  Result<void> close() override;
  Result<void*> post_send(int channel, std::size_t offset, std::size_t bytes) override;
  Result<void*> post_receive(int channel, std::size_t offset, std::size_t bytes) override;
  // A send is done when the kernel has it, a receive when all of it has arrived or is known to be lost.
  Result<Tested> test(void* request) override;
  bool places() const override { return false; }
  Loss take_loss() override;
  Result<bool> settled() override;

 private:
  static constexpr std::size_t kRequests = 32;
  static constexpr std::size_t kControlBytes = 16;
  static constexpr std::size_t kSegments = 64;        // UDP_MAX_SEGMENTS of older kernels
  static constexpr std::size_t kMaxMessage = 65'507;  // of one sendmsg
  static constexpr std::size_t kReceiveBytes = 64 * 1024;
  static constexpr std::size_t kReceives = 16;  // of one system call

  enum class Kind : std::uint8_t { kHello = 1, kWelcome, kData, kCredit, kMark };
  struct Request {
    const std::byte* data = nullptr;  // of a send
    std::size_t size = 0;
    std::size_t moved = 0;  // of a send
    std::uint64_t end = 0;  // of a receive: position behind it
    bool sends = false;
    bool in_use = false;
  };

  Result<void> open_socket(int family);
  Result<void> accept_peer(Clock::time_point deadline);
  Result<void> greet(const std::string& handle, Clock::time_point deadline);
  Result<void> measure_path();
  Result<Request*> take(bool sends, std::size_t bytes);
  Result<bool> progress();
  Result<bool> send_some();
  Result<bool> receive_some();
  Result<ssize_t> send_batch(const Request& request, std::size_t length);
  void take_packet(const std::byte* packet, std::size_t length);
  void lose_until(std::uint64_t position);
  bool say(Kind kind, std::uint64_t value);
  void idle();

  int rank_;
  std::string address_;
  FileDescriptor fd_;
  std::uint64_t token_ = 0;
  bool ipv6_ = false;
  bool gso_ = true;
  std::size_t payload_ = 0;  // of one packet
  std::uint64_t window_ = 0;

  std::array<Request, kRequests> requests_;
  std::deque<Request*> sends_;
  std::uint64_t sent_ = 0;
  std::uint64_t credited_ = 0;
  std::array<std::array<std::byte, kHeaderBytes>, kSegments> headers_{};
  std::array<iovec, 2 * kSegments> pieces_{};

  std::uint64_t posted_ = 0;    // receives: position behind the last
  std::uint64_t expected_ = 0;  // everything below has arrived or is lost
  std::uint64_t said_ = 0;      // the credit that the peer has
  Loss loss_;

  const std::byte* send_memory_ = nullptr;
  std::byte* receive_memory_ =
      nullptr;  // packets lie here as they come, round and round: cold, as their place would be
  std::size_t receive_size_ = 0;
  std::size_t receive_at_ = 0;
  std::vector<std::byte> small_;  // in its stead when it is small

  std::uint64_t idle_turns_ = 0;
  Clock::time_point moved_at_{};
  bool settling_ = false;
  Clock::time_point settle_until_{};
};

}  // namespace clustar::bench::perf
