// How far a receiver lets its sender go, by what is still to come into its receives.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mlt/core/wire.h"

namespace clustar::mlt {

class ReceiveCredit {
 public:
  explicit ReceiveCredit(std::uint16_t segment) : segment_(segment), longest_packet_(segment) {}

  // Bytes of posted receives that have not come, and the receives.
  std::uint64_t demand() const { return demand_; }
  std::uint32_t receives() const { return receives_; }
  void want(std::uint64_t bytes) { demand_ += bytes; }
  void came(std::uint64_t bytes) { demand_ -= bytes; }
  void posted(std::uint32_t bytes) { ++receives_, want(bytes); }
  void over() { --receives_; }

  // Payload of the longest packet that may come, by the peer's segment or ours: credit below one would move nothing.
  std::uint16_t longest_packet() const { return longest_packet_; }
  void note_segment(std::uint16_t segment) { longest_packet_ = std::max(longest_packet_, segment); }
  // The sender has sent so much, by a packet that may be older than others.
  void note_sent(std::uint32_t sent) {
    if (distance(sent, sent_) > 0) sent_ = sent;
  }

  // So many rows of parity follow a block.
  void note_parity(std::uint32_t rows) { rows_ = std::max(rows_, rows); }

  // Lets the sender be `window` bytes ahead of what it is known to have sent. True: it should be told at once.
  bool grant(std::uint32_t window) {
    // Every packet costs whole units: more of them than the bytes would. Otherwise what is left would grow with every
    // packet, and each be told at once.
    const std::uint64_t blocks = receives_ + demand_ / (std::uint64_t{kParityBlock} * segment_);
    const std::uint64_t parity = receives_ == 0 ? 0 : blocks * rows_ * longest_packet_;
    const std::uint64_t demand = demand_ + kUnitBytes * (receives_ + demand_ / segment_) + parity;
    const auto wanted = static_cast<std::uint32_t>(std::min<std::uint64_t>(window, demand));
    const std::uint32_t credit = sent_ + units(wanted);
    if (distance(credit, credit_) > 0) credit_ = credit;
    // Often enough that the sender never waits for the rest of a window that has long arrived; the last of it at once.
    const std::int32_t untold = distance(credit_, told_);
    const std::uint32_t few = std::min(units(std::uint64_t{2} * longest_packet_), units(window) / 2);
    const std::uint32_t step = std::max({1u, few, units(window) / 8});
    return untold >= static_cast<std::int32_t>(step) || (untold > 0 && wanted == demand);
  }
  // A packet carries it.
  std::uint32_t tell() { return told_ = credit_; }
  // Units that the sender was told of and has not used.
  std::int32_t unused() const { return distance(told_, sent_); }

 private:
  std::uint16_t segment_;
  std::uint16_t longest_packet_;
  std::uint64_t demand_ = 0;
  std::uint32_t receives_ = 0;
  std::uint32_t rows_ = 0;  // it spends credit, too: without room for it the end of a message would wait
  std::uint32_t sent_ = 0, credit_ = 0, told_ = 0;  // units; they wrap
};

}  // namespace clustar::mlt
