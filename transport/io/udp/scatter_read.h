// Reads one message of the kernel with the payload of its datagrams straight into a landing: the kernel copies in
// order, so pieces that alternate between header slots and places put each where it belongs, if the run is what its
// first header promises.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/io/udp/address.h"
#include "transport/io/udp/frame.h"
#include "transport/io/udp/landing.h"
#include "transport/io/udp/rx_batch.h"

namespace clustar::transport::io::udp {

class ScatterRead {
 public:
  static constexpr std::size_t kMostDatagrams = 500;  // of one joined message; two pieces each, IOV_MAX is 1,024

  // The message at the head of the queue, which stays there.
  struct Ahead {
    std::size_t length = 0;
    std::size_t segment = 0;
    std::span<const std::byte> header;  // of its first datagram, without the frame's byte; valid until the next peek
  };
  // Nothing: there is none, or it does not begin with a frame; the usual way of reading finds out which.
  std::optional<Ahead> peek(int fd);
  const SocketAddress& from() const { return from_; }  // of the latest peek or receive

  // Takes it. `count` datagrams from segment `first` on are predicted, each with a header slot of `slot_bytes` in
  // `buffer`, one behind the other; what comes behind them goes to the rest of `buffer`, which has 64 KiB.
  // Bytes received, or -1 with errno. Only places of the predicted segments are written.
  struct Prediction {
    LandingTarget* target = nullptr;
    std::size_t first = 0;
    std::size_t count = 0;
    std::size_t slot_bytes = 0;
  };
  ssize_t receive(int fd, std::span<std::byte> buffer, const Prediction& prediction);
  // Of the latest receive(); `buffer` is left to the caller.
  Arrival arrival() const { return arrival_; }

  // How many datagrams from the front are what was predicted, for `slot`.
  std::size_t matching(Locate locate, std::uint32_t slot) const;
  // Everything from datagram `from` on, in one piece. `to` has 64 KiB. Bytes.
  std::size_t gather(std::size_t from, std::span<std::byte> to) const;

 private:
  Prediction prediction_;
  Arrival arrival_;
  SocketAddress from_;
  std::vector<iovec> pieces_ = std::vector<iovec>(2 * kMostDatagrams + 1);
  std::array<std::byte, kFrameBytes + Header::kMax> start_;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control_;
};

}  // namespace clustar::transport::io::udp
