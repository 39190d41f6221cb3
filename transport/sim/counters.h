// What the simulated network counts, and the digest by which two runs are compared.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::transport::sim {

enum class DropCause : std::uint8_t {
  kNone,
  kBuffer,        // a full switch buffer
  kSelective,     // above the drop threshold of its class
  kRandom,        // RandomLoss
  kGilbert,       // GilbertElliott
  kPeriodic,      // PeriodicLoss
  kScripted,      // ScriptedLoss
  kBurst,         // MicroBursts
  kLinkDown,      // LinkDown
  kFrozen,        // the receive backlog of a frozen host was full
  kNoEndpoint,    // nothing is attached to the destination, or it is no host of this network
  kReceiveQueue,  // SimPacketIo's receive queue was full
  kIntercepted,   // Intercept
};
inline constexpr std::size_t kDropCauses = 13;

struct Drops {
  std::array<std::uint64_t, kDropCauses> by_cause{};
  std::uint64_t operator[](DropCause cause) const { return by_cause[static_cast<std::size_t>(cause)]; }
  void count(DropCause cause) { ++by_cause[static_cast<std::size_t>(cause)]; }
  std::uint64_t total() const {
    std::uint64_t sum = 0;
    for (const std::uint64_t n : by_cause) sum += n;
    return sum;
  }
};

// Of one port and the link behind it, in the direction of sending. Bytes are those on the wire.
struct PortCounters {
  std::uint64_t packets = 0;  // put on the wire, including those that a fault then took
  std::uint64_t bytes = 0;
  std::uint64_t marks = 0;       // CE set here
  std::uint64_t trims = 0;       // payloads cut here
  std::uint64_t duplicates = 0;  // copies made by a fault
  std::uint64_t corruptions = 0;
  std::uint64_t delays = 0;           // packets that a Reorder fault held back
  std::uint64_t max_queue_bytes = 0;  // waiting, without the packet in transmission
  Drops drops;
};

struct HostCounters {
  std::uint64_t sent_packets = 0;  // taken by send()
  std::uint64_t sent_bytes = 0;
  std::uint64_t refused_packets = 0;  // send() said no: back-pressure, not loss
  std::uint64_t received_packets = 0;
  std::uint64_t received_bytes = 0;
  Drops drops;
};

// Order-dependent 64-bit digest: equal for equal sequences of words, and practically only for those.
class Digest {
 public:
  void add(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x9fb21c651e98df25;  // an odd constant, so no word is forgotten
    value_ ^= value_ >> 29;
  }
  void add(std::span<const std::byte> bytes);
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0x243f6a8885a308d3;
};

}  // namespace clustar::transport::sim
