#include "transport/io/udp/tx_batch.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <cstring>

namespace clustar::transport::io::udp {
namespace {

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
      pieces_(2 * kPackets),
      states_(most_messages),
      headers_(most_messages) {}

bool TxBatch::joins(const Message& message, PeerId peer, std::uint8_t tos, std::size_t length) const {
  return message.peer == peer && message.tos == tos && message.packets < kSegments &&
         message.latest == message.segment &&  // a shorter one ends the run
         length <= message.segment && message.bytes + length <= most_bytes_;
}

void TxBatch::open(PeerId peer, std::uint8_t tos, const SocketAddress& to, std::size_t length) {
  Message& message = states_[messages_];
  message.packets = message.bytes = 0;
  message.segment = message.latest = length;
  message.peer = peer;
  message.tos = tos;
  msghdr& header = headers_[messages_].msg_hdr;
  header = {};
  header.msg_name = const_cast<sockaddr*>(to.raw());  // sendmmsg only reads it
  header.msg_namelen = to.length();
  header.msg_iov = &pieces_[2 * packets_];
  ipv6_ = to.ipv6();
  ++messages_;
}

bool TxBatch::add(const TxPacket& packet, const SocketAddress& to, bool join) {
  const auto header = packet.header.bytes();
  const std::size_t length = kFrameBytes + header.size() + packet.payload.length;
  const std::uint8_t tos = tos_of(packet.traffic_class, packet.ect ? Ecn::kEct0 : Ecn::kNotEct);
  if (packets_ == kPackets) return false;
  if (messages_ == 0 || !join || !joins(states_[messages_ - 1], packet.peer, tos, length)) {
    if (messages_ == states_.size()) return false;
    open(packet.peer, tos, to, length);
  }
  auto& start = starts_[packets_].bytes;
  start[0] = static_cast<std::byte>(header.size());
  std::memcpy(start.data() + kFrameBytes, header.data(), header.size());
  Message& message = states_[messages_ - 1];
  msghdr& out = headers_[messages_ - 1].msg_hdr;
  // Pieces of one message are consecutive: a packet without payload leaves none between.
  iovec* piece = out.msg_iov + out.msg_iovlen;
  piece[0] = {start.data(), kFrameBytes + header.size()};
  ++out.msg_iovlen;
  if (packet.payload.length > 0) {
    piece[1] = {packet.payload.mr->memory().address + packet.payload.offset, packet.payload.length};
    ++out.msg_iovlen;
  }
  ++packets_;
  ++message.packets;
  message.bytes += length;
  message.latest = length;
  return true;
}

void TxBatch::write_control(Message& message, msghdr& header) const {
  std::size_t used = ipv6_ ? put_control<int>(message.control, IPPROTO_IPV6, IPV6_TCLASS, message.tos)
                           : put_control<int>(message.control, IPPROTO_IP, IP_TOS, message.tos);
  if (message.packets > 1) {
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

std::size_t TxBatch::bytes_in(std::size_t messages) const {
  std::size_t total = 0;
  for (std::size_t i = 0; i < messages; ++i) total += states_[i].bytes;
  return total;
}

}  // namespace clustar::transport::io::udp
