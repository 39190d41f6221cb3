// Datagrams that came for one end and were not read yet.
#pragma once

#include <rte_mbuf.h>
#include <sys/eventfd.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/base/ring.h"
#include "transport/base/time.h"
#include "transport/io/dpdk/core/ethernet.h"

namespace clustar::transport::io::dpdk {

struct Datagram {
  rte_mbuf* buffer = nullptr;  // whose owner has the datagram
  Ipv4 from = 0;
  std::uint16_t from_port = 0;
  std::uint8_t path = 0;
  std::uint8_t tos = 0;
  TimePoint time{};
  std::span<const std::byte> payload{};
};

class Inbox {
 public:
  explicit Inbox(std::size_t most) : most_(most) {}
  ~Inbox() { clear(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // False: it is full, and the datagram stays the caller's.
  bool put(const Datagram& datagram) {
    if (waiting_.size() >= most_) return false;
    waiting_.push_back(datagram);
    return true;
  }
  void clear() {
    while (!waiting_.empty()) rte_pktmbuf_free(waiting_.pop_front().buffer);
  }
  bool empty() const { return waiting_.empty(); }
  // Of an end that sleeps on descriptors: readable after wake() until calm().
  int fd() const { return waker_.fd(); }
  void wake() {
    if (!std::exchange(woken_, true)) ::eventfd_write(waker_.fd(), 1);
  }
  void calm() {
    eventfd_t wakes = 0;
    if (std::exchange(woken_, false)) ::eventfd_read(waker_.fd(), &wakes);
  }
  Datagram take() { return waiting_.pop_front(); }

 private:
  const std::size_t most_;
  FileDescriptor waker_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  bool woken_ = false;
  Ring<Datagram> waiting_;
};

}  // namespace clustar::transport::io::dpdk
