// Posted receives that have not all of their message yet, each in a slot whose name the peer may say. Numbers the
// receives of each tag, as the sender numbers its messages: (tag, number) is what both ends call a message. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/api/transport.h"
#include "transport/message/receive_groups.h"

namespace clustar::transport {

// `More`: what a wire keeps for each receive on top.
template <typename More>
class ReceiveSlots {
 public:
  static constexpr std::uint32_t kMost = ReceiveGroups::kMost * kMaxRecvParts;

  struct Slot : More {
    bool used = false;
    std::uint16_t generation = 0;  // differs from that of the receive before
    int tag = 0;
    std::uint32_t seq = 0;
    std::uint64_t length = 0;
    std::uint32_t group = 0;  // ReceiveGroups
    std::uint32_t part = 0;
  };

  ReceiveSlots() {
    free_.reserve(kMost);
    used_.reserve(kMost);
    for (std::uint32_t i = kMost; i-- > 0;) free_.push_back(i);
  }

  // The number of the next receive with this tag.
  std::uint32_t next_seq(int tag) { return next_seq_[tag]++; }
  // No receive with this tag and number was posted yet.
  bool is_future(int tag, std::uint32_t seq) const {
    const auto next = next_seq_.find(tag);
    return next == next_seq_.end() || static_cast<std::int32_t>(seq - next->second) >= 0;
  }

  // A slot for the receive; there is room for all parts of all groups.
  std::uint32_t take(int tag, std::uint32_t seq, std::uint64_t length, std::uint32_t group, std::uint32_t part) {
    const std::uint32_t index = free_.back();
    free_.pop_back();
    used_.push_back(index);
    Slot& slot = slots_[index];
    const auto generation = static_cast<std::uint16_t>(slot.generation + 1);
    slot = Slot{};
    slot.used = true;
    slot.generation = generation;
    slot.tag = tag;
    slot.seq = seq;
    slot.length = length;
    slot.group = group;
    slot.part = part;
    return index;
  }
  void release(std::uint32_t index) {
    slots_[index].used = false;
    used_.erase(std::find(used_.begin(), used_.end(), index));
    free_.push_back(index);
  }

  Slot& operator[](std::uint32_t index) { return slots_[index]; }
  const Slot& operator[](std::uint32_t index) const { return slots_[index]; }
  std::uint32_t index_of(const Slot& slot) const { return static_cast<std::uint32_t>(&slot - slots_.data()); }
  // Oldest first.
  const std::vector<std::uint32_t>& used() const { return used_; }
  // The oldest for which `fits`.
  template <typename Fits>
  std::optional<std::uint32_t> find(int tag, std::uint32_t seq, Fits fits) const {
    for (const std::uint32_t index : used_) {
      const Slot& slot = slots_[index];
      if (slot.tag == tag && slot.seq == seq && fits(slot)) return index;
    }
    return std::nullopt;
  }

 private:
  std::array<Slot, kMost> slots_{};
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> used_;
  std::unordered_map<int, std::uint32_t> next_seq_;  // by tag; grows with the caller's tags only
};

}  // namespace clustar::transport
