#include "transport/io/udp/rx_batch.h"

#include <netinet/in.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace clustar::transport::io::udp {
namespace {

template <class T>
T value_of(const cmsghdr& control) {
  T value{};
  std::memcpy(&value, CMSG_DATA(&control), sizeof value);
  return value;
}

template <class T>
bool holds(const cmsghdr& control) {
  return control.cmsg_len >= CMSG_LEN(sizeof(T));
}

void read_control(const cmsghdr& control, Arrival& arrival) {
  const auto is = [&](int level, int type) { return control.cmsg_level == level && control.cmsg_type == type; };
  if (is(IPPROTO_IP, IP_TOS) && holds<std::uint8_t>(control)) {
    arrival.tos = value_of<std::uint8_t>(control);
  } else if (is(IPPROTO_IPV6, IPV6_TCLASS) && holds<int>(control)) {
    arrival.tos = static_cast<std::uint8_t>(value_of<int>(control));
  } else if (is(SOL_UDP, UDP_GRO) && holds<int>(control)) {
    const int segment = value_of<int>(control);
    if (segment > 0) arrival.segment = static_cast<std::uint32_t>(segment);
  } else if (is(SOL_SOCKET, SO_RXQ_OVFL) && holds<std::uint32_t>(control)) {
    arrival.drops = value_of<std::uint32_t>(control);
    arrival.tells_drops = true;
  } else if (is(SOL_SOCKET, SCM_TIMESTAMPNS) && holds<timespec>(control)) {
    arrival.stamp = value_of<timespec>(control);
  }
}

}  // namespace

Arrival read_arrival(const msghdr& message, std::size_t length) {
  Arrival arrival;
  arrival.length = static_cast<std::uint32_t>(length);
  arrival.truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  auto& header = const_cast<msghdr&>(message);  // CMSG_NXTHDR takes no const
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    read_control(*control, arrival);
  }
  if (arrival.segment == 0 || arrival.segment > arrival.length) arrival.segment = arrival.length;
  return arrival;
}

RxBatch::RxBatch(std::size_t most_messages) : slots_(most_messages), messages_(most_messages) {
  for (std::size_t i = 0; i < most_messages; ++i) {
    msghdr& header = messages_[i].msg_hdr;
    header = {};
    header.msg_name = slots_[i].from.raw();
    header.msg_iov = &slots_[i].bytes;
    header.msg_iovlen = 1;
    header.msg_control = slots_[i].control;
  }
}

int RxBatch::receive(int fd, BufferPool& pool, std::size_t most) {
  const std::size_t ready = std::min({most, messages_.size(), pool.free()});
  for (std::size_t i = 0; i < ready; ++i) {
    Slot& slot = slots_[i];
    slot.buffer = pool.take();
    const auto bytes = pool.bytes(slot.buffer);
    slot.bytes = {bytes.data(), bytes.size()};
    msghdr& header = messages_[i].msg_hdr;  // the kernel wrote what it used
    header.msg_namelen = SocketAddress::capacity();
    header.msg_controllen = sizeof slot.control;
  }
  const int received = ::recvmmsg(fd, messages_.data(), static_cast<unsigned>(ready), MSG_DONTWAIT, nullptr);
  const int error = errno;
  const std::size_t used = received > 0 ? static_cast<std::size_t>(received) : 0;
  for (std::size_t i = ready; i > used; --i) pool.drop(slots_[i - 1].buffer);
  errno = error;
  return received;
}

Arrival RxBatch::arrival(std::size_t index) const {
  Arrival arrival = read_arrival(messages_[index].msg_hdr, messages_[index].msg_len);
  arrival.buffer = slots_[index].buffer;
  return arrival;
}

}  // namespace clustar::transport::io::udp
