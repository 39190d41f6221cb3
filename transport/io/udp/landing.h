// Targets of PacketIo::expect: which bytes the kernel may still write, by peer and slot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/io/packet_io.h"

namespace clustar::transport::io::udp {

// Where a packet's payload belongs: segment k of what expect() was told of `slot`.
struct Located {
  std::uint32_t slot = 0;
  std::uint32_t segment = 0;
  bool operator==(const Located&) const = default;
};
// Reads a header of the protocol above; nothing for a packet whose payload has no place. Only a hint: a wrong answer
// costs a copy or a needless one, and can never put payload into bytes that were delivered.
using Locate = std::optional<Located> (*)(std::span<const std::byte> header);

// A target and which of its segments were given to the caller. Those are the caller's: they are never offered again.
class LandingTarget {
 public:
  void open(std::span<std::byte> bytes, std::size_t segment_bytes);
  std::size_t segments() const { return segments_; }
  // Of segment k < segments(); only the last one may be shorter.
  std::span<std::byte> place(std::size_t segment) const;
  // How many segments from `first` on, at most `most`, are not delivered.
  std::size_t missing_from(std::size_t first, std::size_t most) const;
  void deliver(std::size_t segment);  // ignores what is beyond the end

 private:
  bool delivered(std::size_t segment) const { return (delivered_[segment / 64] >> segment % 64 & 1) != 0; }

  std::span<std::byte> bytes_;
  std::size_t segment_bytes_ = 1;
  std::size_t segments_ = 0;
  std::vector<std::uint64_t> delivered_;
};

class LandingTable {
 public:
  static constexpr std::size_t kMost = 4096;

  // Not accepted (id 0): an empty target, segments of 0 bytes, a slot of that peer which has one, more than kMost.
  Landing add(PeerId peer, std::uint32_t slot, std::span<std::byte> target, std::size_t segment_bytes);
  void cancel(Landing landing);  // of what add() gave; anything else is ignored
  void cancel(PeerId peer, std::uint32_t slot);
  void forget(PeerId peer);  // cancels all of that peer
  bool empty() const { return by_key_.empty(); }
  // Null when there is none. Valid until the next add, cancel or forget.
  LandingTarget* find(PeerId peer, std::uint32_t slot);

 private:
  struct Entry {
    std::uint64_t key = 0;
    std::uint32_t generation = 0;  // odd while in use, so that the number of a cancelled landing is never a later one's
    LandingTarget target;
  };
  static std::uint64_t key_of(PeerId peer, std::uint32_t slot) { return std::uint64_t{peer} << 32 | slot; }
  void close(std::uint32_t index);

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> free_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_key_;
};

}  // namespace clustar::transport::io::udp
