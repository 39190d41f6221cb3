#include "transport/io/udp/tx_batch.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

namespace clustar::transport::io::udp {
namespace {

constexpr std::size_t kSmall = 512;  // what shares a datagram: of longer ones UDP_SEGMENT makes as cheap a run

constexpr std::size_t kMostPadding = 8;    // one part in so many
constexpr std::size_t kMostPieces = 1024;  // UIO_MAXIOV: of one message
constexpr std::size_t kPieces = 3;         // of a packet: begin and header, payload, padding

template <class T>
std::size_t put_control(std::byte* at, int level, int type, T value) {
  cmsghdr head{};
  head.cmsg_len = CMSG_LEN(sizeof value);
  head.cmsg_level = level;
  head.cmsg_type = type;
  std::memcpy(at, &head, sizeof head);
  std::memcpy(at + CMSG_LEN(0), &value, sizeof value);
  return CMSG_SPACE(sizeof value);
}

}  // namespace

TxBatch::TxBatch(std::size_t most_messages, std::size_t most_bytes)
    : most_bytes_(most_bytes),
      starts_(kPackets),
      pieces_(kPieces * kPackets),
      padding_(most_bytes / kMostPadding, kPadding),
      states_(most_messages),
      headers_(most_messages) {}

bool TxBatch::joins(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length) const {
  return message.peer == peer && message.tos == tos && message.datagrams < kSegments &&
         message.latest == message.segment &&  // a shorter one ends the run
         length <= message.segment && message.bytes + length <= most_bytes_;
}

// Whether a packet of `length` fits behind the latest one, in its datagram.
bool TxBatch::shares(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length,
                     std::size_t most) const {
  const std::size_t more = kPackedFrameBytes - kFrameBytes + length;
  const std::size_t room = message.datagrams == 1 ? most : std::min(most, message.segment);
  return message.peer == peer && message.tos == tos && length <= kSmall && message.latest + more <= room &&
         message.bytes + more <= most_bytes_;
}

// The latest packet gets one behind it in its datagram: its framing tells where it ends.
void TxBatch::open_latest(Message& message) {
  auto& start = starts_[packets_ - 1].bytes;
  start[0] = std::byte{0};
  start[1] = start[kPackedFrameBytes - kFrameBytes];
  start[2] = static_cast<std::byte>(message.latest_payload >> 8);
  start[3] = static_cast<std::byte>(message.latest_payload & 0xff);
  const msghdr& out = headers_[messages_ - 1].msg_hdr;
  iovec& piece = out.msg_iov[out.msg_iovlen - (message.latest_payload > 0 ? 2 : 1)];
  const std::size_t more = kPackedFrameBytes - kFrameBytes;
  piece = {start.data(), piece.iov_len + more};
  message.latest += more;
  message.bytes += more;
}

// Whether the run goes on if the latest datagram, which is a little shorter, is filled up.
bool TxBatch::pads(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length) const {
  const std::size_t lacks = message.segment - message.latest;
  return message.peer == peer && message.tos == tos && length == message.segment && message.datagrams < kSegments &&
         lacks > kPackedFrameBytes - kFrameBytes && lacks <= message.segment / kMostPadding &&
         message.bytes + lacks + length <= most_bytes_;
}

void TxBatch::pad(Message& message) {
  open_latest(message);
  const std::size_t lacks = message.segment - message.latest;
  msghdr& out = headers_[messages_ - 1].msg_hdr;
  out.msg_iov[out.msg_iovlen++] = {padding_.data(), lacks};
  message.latest += lacks;
  message.bytes += lacks;
}

void TxBatch::open(PeerId peer, std::uint8_t tos, const SocketAddress& to, std::size_t length) {
  Message& message = states_[messages_];
  message.packets = message.datagrams = message.bytes = 0;
  message.segment = message.latest = length;
  message.peer = peer;
  message.tos = tos;
  msghdr& header = headers_[messages_].msg_hdr;
  header = {};
  header.msg_name = const_cast<sockaddr*>(to.raw());  // sendmmsg only reads it
  header.msg_namelen = to.length();
  header.msg_iov = &pieces_[kPieces * packets_];
  ipv6_ = to.ipv6();
  ++messages_;
}

bool TxBatch::add(const TxPacket& packet, const SocketAddress& to, Allowed allowed) {
  const auto header = packet.header.bytes();
  const std::size_t length = kFrameBytes + header.size() + packet.payload.length;
  const Ecn ecn = packet.ect ? Ecn::kEct0 : Ecn::kNotEct;
  const auto tos = static_cast<std::uint8_t>(packet.dscp == 0 ? tos_of(packet.traffic_class, ecn)
                                                              : packet.dscp | static_cast<std::uint8_t>(ecn));
  if (packets_ == kPackets) return false;
  if (messages_ > 0 && headers_[messages_ - 1].msg_hdr.msg_iovlen + kPieces > kMostPieces) allowed = {};
  const bool share = messages_ > 0 && shares(states_[messages_ - 1], packet.peer, tos, length, allowed.datagram);
  if (messages_ > 0 && !share && allowed.join && pads(states_[messages_ - 1], packet.peer, tos, length)) {
    pad(states_[messages_ - 1]);
  }
  if (share) {
    open_latest(states_[messages_ - 1]);
  } else if (messages_ == 0 || !allowed.join || !joins(states_[messages_ - 1], packet.peer, tos, length)) {
    if (messages_ == states_.size()) return false;
    open(packet.peer, tos, to, length);
  }
  // The frame begins where the longer framing has its last byte, so that open_latest() need not move the header.
  constexpr std::size_t kBegin = kPackedFrameBytes - kFrameBytes;
  auto& start = starts_[packets_].bytes;
  start[kBegin] = static_cast<std::byte>(header.size());
  std::memcpy(start.data() + kPackedFrameBytes, header.data(), header.size());
  Message& message = states_[messages_ - 1];
  msghdr& out = headers_[messages_ - 1].msg_hdr;
  // Pieces of one message are consecutive: a packet without payload leaves none between.
  iovec* piece = out.msg_iov + out.msg_iovlen;
  piece[0] = {start.data() + kBegin, kFrameBytes + header.size()};
  ++out.msg_iovlen;
  if (packet.payload.length > 0) {
    piece[1] = {packet.payload.mr->memory().address + packet.payload.offset, packet.payload.length};
    ++out.msg_iovlen;
  }
  ++packets_;
  ++message.packets;
  message.bytes += length;
  message.latest_payload = packet.payload.length;
  if (share) {
    message.latest += length;
    if (message.datagrams == 1) message.segment = message.latest;
  } else {
    message.latest = length;
    ++message.datagrams;
  }
  return true;
}

void TxBatch::write_control(Message& message, msghdr& header) const {
  std::size_t used = ipv6_ ? put_control<int>(message.control, IPPROTO_IPV6, IPV6_TCLASS, message.tos)
                           : put_control<int>(message.control, IPPROTO_IP, IP_TOS, message.tos);
  if (message.datagrams > 1) {
    used += put_control(message.control + used, SOL_UDP, UDP_SEGMENT, static_cast<std::uint16_t>(message.segment));
  }
  header.msg_control = message.control;
  header.msg_controllen = used;
}

int TxBatch::send(int fd) {
  for (std::size_t i = 0; i < messages_; ++i) write_control(states_[i], headers_[i].msg_hdr);
  return ::sendmmsg(fd, headers_.data(), static_cast<unsigned>(messages_), MSG_DONTWAIT);
}

std::size_t TxBatch::packets_in(std::size_t messages) const {
  std::size_t total = 0;
  for (std::size_t i = 0; i < messages; ++i) total += states_[i].packets;
  return total;
}

std::size_t TxBatch::datagrams_in(std::size_t messages) const {
  std::size_t total = 0;
  for (std::size_t i = 0; i < messages; ++i) total += states_[i].datagrams;
  return total;
}

std::size_t TxBatch::bytes_in(std::size_t messages) const {
  std::size_t total = 0;
  for (std::size_t i = 0; i < messages; ++i) total += states_[i].bytes;
  return total;
}

}  // namespace clustar::transport::io::udp
