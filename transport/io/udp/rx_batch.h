// One recvmmsg: its arrays, made once, and what it found.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <vector>

#include "transport/io/udp/address.h"
#include "transport/io/udp/buffer_pool.h"

namespace clustar::transport::io::udp {

// One message of the kernel: a datagram, or several of one sender with equal length (the last may be shorter).
struct Arrival {
  BufferId buffer = 0;  // the code that takes the arrival holds it
  std::uint32_t length = 0;
  std::uint32_t segment = 0;  // length of each datagram; >= 1 and at most `length`, but when that is 0
  std::uint8_t tos = 0;
  bool truncated = false;
  bool tells_drops = false;
  std::uint32_t drops = 0;  // of this socket since it was opened, modulo 2^32
  timespec stamp{};         // CLOCK_REALTIME of its arrival at this host; 0: the kernel did not say
};

inline constexpr std::size_t kControlBytes = 128;  // TOS, segment size and drops: 24 bytes each; the stamp 32
// What the kernel said about a message of `length` bytes; the buffer is left out.
Arrival read_arrival(const msghdr& message, std::size_t length);

class RxBatch {
 public:
  explicit RxBatch(std::size_t most_messages);

  // Reads up to `most` messages into buffers of the pool. Returns how many, or -1 with errno.
  int receive(int fd, BufferPool& pool, std::size_t most);
  // Of the latest receive().
  Arrival arrival(std::size_t index) const;
  const SocketAddress& from(std::size_t index) const { return slots_[index].from; }

 private:
  struct alignas(cmsghdr) Slot {
    std::byte control[kControlBytes];
    SocketAddress from;
    iovec bytes;
    BufferId buffer;
  };
  std::vector<Slot> slots_;
  std::vector<mmsghdr> messages_;
};

}  // namespace clustar::transport::io::udp
