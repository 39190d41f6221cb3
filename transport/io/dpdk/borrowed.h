// Payload that frames show where it lies, and which of it a device may still read.
#pragma once

#include <rte_mbuf.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "transport/io/dpdk/buffers.h"

namespace clustar::transport::io::dpdk {

// In the order of sending: a place is used again when so many further packets were taken, and only if its frame is
// gone, so that Capabilities::in_flight holds whatever the device does. Thread rule: pass() and attach() one thread at
// a time, or with its lock held; frames may go on any thread.
class Borrowed {
 public:
  // `frames`: of buffers that need no room of their own.
  Borrowed(std::uint32_t places, Pool frames)
      : places_(std::make_unique<Place[]>(places)), count_(places), frames_(std::move(frames)) {}
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

  std::uint32_t count() const { return count_; }
  // Whether the next packet may be taken.
  bool has_place() const { return !places_[next_].taken.load(std::memory_order_acquire); }
  // The next packet was taken.
  void pass() { next_ = next_ + 1 == count_ ? 0 : next_ + 1; }
  // Of that packet: behind `frame`, until the frame goes. False: no buffer is free.
  bool attach(rte_mbuf& frame, std::span<const std::byte> payload);
  bool any() const;  // a frame is there still

 private:
  struct Place {
    rte_mbuf_ext_shared_info shared{};
    std::atomic<bool> taken{false};
  };
  static void gone(void* payload, void* place);

  const std::unique_ptr<Place[]> places_;
  const std::uint32_t count_;
  const Pool frames_;
  std::uint32_t next_ = 0;
};

}  // namespace clustar::transport::io::dpdk
