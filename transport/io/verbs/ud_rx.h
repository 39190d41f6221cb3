// The receiving half of a UdIo: slots in registered memory, a queue of receives that all its queue pairs share, and the
// completions. Slots are reused when their packets are released.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/io/packet_io.h"
#include "transport/io/verbs/completion_queue.h"
#include "transport/io/verbs/queue_pair.h"
#include "transport/io/verbs/ud_wire.h"

namespace clustar::transport::io::verbs {

class UdRx {
 public:
  // `slots` of the network header and `most` bytes. A datagram that is longer than its slot may stop its queue pair:
  // `most` is what the port can receive at all.
  static Result<std::unique_ptr<UdRx>> make(const Device& device, const ProtectionDomain& domain, std::uint32_t slots,
                                            std::size_t most);

  const SharedReceiveQueue& receives() const { return receives_; }
  const CompletionQueue& queue() const { return completions_; }
  CompletionQueue& queue() { return completions_; }

  // The next completions, in order; they are as the library gives them, wr_id is the slot.
  Result<std::span<const ibv_wc>> take(std::size_t most);
  // Behind it, byte_len - 40 bytes of header and payload.
  std::span<const std::byte> slot(std::uint64_t index) const { return {slots_.data() + index * stride_, stride_}; }
  // To be received into again, in whatever order.
  void give_back(std::uint64_t slot);
  Result<void> post();  // what was given back

  // Something can be taken now; otherwise the next completion makes queue().fd() readable.
  Result<bool> arm();
  bool empty() const { return posted_ == 0; }  // all slots are taken

 private:
  static constexpr std::size_t kBurst = 64;

  UdRx(std::vector<std::byte> slots, std::size_t stride, MemoryRegion region, CompletionQueue completions,
       SharedReceiveQueue receives);

  std::vector<std::byte> slots_;
  const std::size_t stride_;
  MemoryRegion region_;  // of them
  CompletionQueue completions_;
  SharedReceiveQueue receives_;
  std::array<ibv_wc, kBurst> done_{};
  std::size_t done_next_ = 0;
  std::size_t done_count_ = 0;
  std::vector<std::uint32_t> returned_;
  std::size_t posted_ = 0;
};

}  // namespace clustar::transport::io::verbs
