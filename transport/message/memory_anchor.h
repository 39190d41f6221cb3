// Lets a registration outlive its channel. After an abort NCCL deregisters, then closes; between the two another
// communicator's thread may drive the channel, which must not touch memory that its owner has taken back.
#pragma once

#include <mutex>

#include "transport/api/transport.h"

namespace clustar::transport {

// Shared by a channel and its registrations. `Channel` has on_deregister(const Mr&).
template <typename Channel>
class MemoryAnchor {
 public:
  // `lock` guards the channel and outlives all registrations: it is the NIC's.
  MemoryAnchor(std::mutex& lock, Channel* channel) : lock_(lock), channel_(channel) {}

  // The channel closes; the lock is held.
  void let_go() { channel_ = nullptr; }
  // For the destructor of a registration. `within` runs with the lock held, once the channel uses `mr` no more.
  template <typename Within>
  void deregister(const Mr& mr, Within within) {
    const std::lock_guard lock(lock_);
    if (channel_ != nullptr) channel_->on_deregister(mr);
    within();
  }
  void deregister(const Mr& mr) {
    deregister(mr, [] {});
  }

 private:
  std::mutex& lock_;
  Channel* channel_;
};

}  // namespace clustar::transport
