// Memory registered with a NIC, as waist 2 hands it on.
#pragma once

#include <functional>
#include <utility>

#include "transport/io/packet_io.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

// What the backends of this folder make of reg_mr; they take each other's, within one protection domain.
class Registered final : public Mr {
 public:
  // `settle` returns when no queue pair reads or writes the memory any more: the NIC stops with an error at a request
  // whose memory is gone. Runs in the thread of ~Mr.
  Registered(const gdr::MemoryRef& memory, MemoryRegion region, std::function<void()> settle)
      : Mr(memory), region_(std::move(region)), settle_(std::move(settle)) {}
  ~Registered() override {
    if (settle_) settle_();
  }

  const MemoryRegion& region() const { return region_; }
  // Who else has requests with it, and adds what waits for those. Before the memory is used.
  void also_settle(std::function<void()> settle) {
    settle_ = [first = std::move(settle_), settle = std::move(settle)] {
      if (first) first();
      settle();
    };
  }

 private:
  MemoryRegion region_;
  std::function<void()> settle_;
};

}  // namespace clustar::transport::io::verbs
