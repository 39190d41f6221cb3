// The packets that are under way on one direction of a cable: each leaves a fixed time after it came, in the same
// order. Pure: time is an argument. Memory grows with what is under way, up to a bound, and is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace clustar::bench::fabric {

class DelayLine {
 public:
  // Holds `capacity_bytes` of packets (at least one byte), and at most one packet per 64 of them.
  DelayLine(std::uint64_t delay_ns, std::size_t capacity_bytes);

  // Copies the packet; false when there is no room, which is counted. Due times never go back, whatever `arrived_ns`.
  bool push(std::span<const std::byte> packet, std::int64_t arrived_ns);
  // When the oldest packet is due; nothing when none is under way.
  std::optional<std::int64_t> next_due() const;
  // The packets that are due, oldest first, as many as `out` takes; returns how many. Valid until the next push() or
  // pop().
  std::size_t due(std::int64_t now, std::span<std::span<const std::byte>> out) const;
  // Forgets the `packets` oldest ones; no more than are under way.
  void pop(std::size_t packets);

  std::size_t waiting_packets() const { return count_; }
  std::uint64_t dropped() const { return dropped_; }
  // That it has taken for packets so far; at most the capacity.
  std::size_t memory_bytes() const { return memory_.size(); }

 private:
  struct Record {
    std::size_t offset = 0, bytes = 0;
    std::int64_t due_ns = 0;
  };
  const Record& record(std::size_t i) const { return records_[(first_ + i) % records_.size()]; }
  std::optional<std::size_t> room_for(std::size_t bytes) const;
  // False when it has all that it may have.
  bool grow();

  std::uint64_t delay_ns_;
  std::size_t capacity_bytes_;
  std::vector<std::byte> memory_;  // packets lie in one piece each; a ring of them
  std::vector<Record> records_;    // a ring: count_ of them from first_ on
  std::size_t first_ = 0, count_ = 0;
  std::uint64_t dropped_ = 0;
};

// What a line needs that carries `rate_bps` (0: 10 Gbit/s are assumed): the bandwidth-delay product twice, for small
// packets and late wake-ups, and 512 KiB; at most 64 MiB.
std::size_t delay_capacity(std::uint64_t rate_bps, std::uint64_t delay_ns);

}  // namespace clustar::bench::fabric
