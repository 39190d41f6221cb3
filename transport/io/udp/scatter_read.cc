#include "transport/io/udp/scatter_read.h"

#include <algorithm>
#include <cstring>

#include "transport/base/copies.h"

namespace clustar::transport::io::udp {

std::optional<ScatterRead::Ahead> ScatterRead::peek(int fd) {
  iovec piece{start_.data(), start_.size()};
  msghdr message{};
  message.msg_name = from_.raw();
  message.msg_namelen = SocketAddress::capacity();
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control_.data();
  message.msg_controllen = control_.size();
  const ssize_t length = ::recvmsg(fd, &message, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  if (length <= 0) return std::nullopt;
  const Arrival arrival = read_arrival(message, static_cast<std::size_t>(length));
  const auto frame =
      parse_frame(std::span<const std::byte>(start_).first(std::min<std::size_t>(arrival.segment, start_.size())));
  if (!frame || start_[0] == std::byte{0}) return std::nullopt;  // several packets in a datagram
  return Ahead{arrival.length, arrival.segment, frame->header};
}

ssize_t ScatterRead::receive(int fd, std::span<std::byte> buffer, const Prediction& prediction) {
  prediction_ = prediction;
  const std::size_t slots = prediction.count * prediction.slot_bytes;
  for (std::size_t i = 0; i < prediction.count; ++i) {
    const auto place = prediction.target->place(prediction.first + i);
    pieces_[2 * i] = {buffer.data() + i * prediction.slot_bytes, prediction.slot_bytes};
    pieces_[2 * i + 1] = {place.data(), place.size()};
  }
  pieces_[2 * prediction.count] = {buffer.data() + slots, buffer.size() - slots};
  msghdr message{};
  message.msg_name = from_.raw();
  message.msg_namelen = SocketAddress::capacity();
  message.msg_iov = pieces_.data();
  message.msg_iovlen = 2 * prediction.count + 1;
  message.msg_control = control_.data();
  message.msg_controllen = control_.size();
  const ssize_t length = ::recvmsg(fd, &message, MSG_DONTWAIT);
  arrival_ = length >= 0 ? read_arrival(message, static_cast<std::size_t>(length)) : Arrival{};
  return length;
}

std::size_t ScatterRead::matching(Locate locate, std::uint32_t slot) const {
  std::size_t right = 0;
  for (std::size_t at = 0; right < prediction_.count && at < arrival_.length; ++right, at += arrival_.segment) {
    const iovec& start = pieces_[2 * right];
    const std::size_t length = std::min<std::size_t>(arrival_.segment, arrival_.length - at);
    if (length != start.iov_len + pieces_[2 * right + 1].iov_len) break;
    const auto frame = parse_frame({static_cast<const std::byte*>(start.iov_base), start.iov_len});
    const bool alone = *static_cast<const std::byte*>(start.iov_base) != std::byte{0};
    if (!frame || !alone || !frame->payload.empty()) break;
    const Located expected{slot, static_cast<std::uint32_t>(prediction_.first + right)};
    if (locate(frame->header) != expected) break;
  }
  return right;
}

std::size_t ScatterRead::gather(std::size_t from, std::span<std::byte> to) const {
  std::size_t left = arrival_.length - std::min<std::size_t>(arrival_.length, from * arrival_.segment);
  std::size_t at = 0;
  for (std::size_t i = 2 * from; left > 0 && i <= 2 * prediction_.count; ++i) {
    const std::size_t part = std::min(pieces_[i].iov_len, left);
    std::memcpy(to.data() + at, pieces_[i].iov_base, part);
    at += part;
    left -= part;
  }
  count_copy(Copy::kMispredicted, at);
  return at;
}

}  // namespace clustar::transport::io::udp
