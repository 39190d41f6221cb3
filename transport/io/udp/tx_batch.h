// One sendmmsg: packets of one path in order. Small neighbours share a datagram; runs of datagrams are joined into
// messages that the kernel cuts (UDP_SEGMENT).
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "transport/io/packet_io.h"
#include "transport/io/udp/address.h"
#include "transport/io/udp/frame.h"

namespace clustar::transport::io::udp {

class TxBatch {
 public:
  static constexpr std::size_t kSegments = 64;  // UDP_MAX_SEGMENTS of kernels before 6.9
  static constexpr std::size_t kPackets = 512;

  // `most_messages` per sendmmsg; `most_bytes` of UDP payload per message.
  TxBatch(std::size_t most_messages, std::size_t most_bytes);

  void clear() { packets_ = messages_ = 0; }
  struct Allowed {
    std::size_t datagram = 0;  // bytes of one that holds several packets; 0: none may
    bool join = false;         // several datagrams in one message
  };
  // False: full. The packet's payload must stay until send(); `to` must stay as well.
  bool add(const TxPacket& packet, const SocketAddress& to, Allowed allowed);
  bool empty() const { return messages_ == 0; }
  // Messages handed over, or -1 with errno, which concerns the first.
  int send(int fd);
  // Of the first `messages`.
  std::size_t packets_in(std::size_t messages) const;
  std::size_t datagrams_in(std::size_t messages) const;
  std::size_t bytes_in(std::size_t messages) const;

 private:
  struct Start {  // a frame's begin and header: copied, so that the two are one piece
    std::array<std::byte, kPackedFrameBytes + Header::kMax> bytes;
  };
  struct alignas(cmsghdr) Message {
    std::byte control[48];  // TOS, and the length of a segment
    std::size_t packets = 0;
    std::size_t datagrams = 0;
    std::size_t bytes = 0;
    std::size_t latest_payload = 0;  // of the latest packet
    std::size_t segment = 0;         // length of all but the last
    std::size_t latest = 0;          // length of the last
    PeerId peer = 0;
    std::uint8_t tos = 0;
  };
  bool joins(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length) const;
  bool shares(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length, std::size_t most) const;
  void open_latest(Message& message);
  bool pads(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length) const;
  void pad(Message& message);
  void open(PeerId peer, std::uint8_t tos, const SocketAddress& to, std::size_t length);
  void write_control(Message& message, msghdr& header) const;

  std::size_t most_bytes_;
  std::size_t packets_ = 0;
  std::size_t messages_ = 0;
  bool ipv6_ = false;
  std::vector<Start> starts_;
  std::vector<iovec> pieces_;
  std::vector<std::byte> padding_;
  std::vector<Message> states_;
  std::vector<mmsghdr> headers_;
};

}  // namespace clustar::transport::io::udp
