// What a packet is to the switches, by what it carries and by the layer it belongs to.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace clustar::mlt {

// Most protected first.
enum class PacketKind : std::uint8_t {
  kControl,         // acknowledgements, credit, probes
  kReliable,        // what somebody waits for: retransmissions, small reliable messages
  kImportant,       // lossy message, large gradients
  kReliableBulk,    // long reliable messages: the gather half; in a class of their own, or mice would stand behind them
  kFrontLayerBulk,  // needed first by the next forward pass: served before the back layers, dropped before them too
  kBackLayerBulk,   // has time: may wait, is marked rather than dropped
};
inline constexpr std::size_t kPacketKinds = 6;

// Traffic class and DSCP of each kind. Value type.
class Classes {
 public:
  struct Options {
    std::array<std::uint8_t, kPacketKinds> traffic_class{7, 6, 5, 4, 3, 1};  // by PacketKind, each 0 .. 7
    std::uint32_t front_ppm = 500'000;  // of a step's collectives that count as front layers, 0 .. 1,000,000
  };
  Classes() : Classes(Options{}) {}
  explicit Classes(const Options& options);  // std::invalid_argument

  std::uint8_t traffic_class(PacketKind kind) const { return options_.traffic_class[static_cast<std::size_t>(kind)]; }
  // Class selector code points (RFC 2474, section 4.2.2).
  std::uint8_t dscp(PacketKind kind) const { return static_cast<std::uint8_t>(traffic_class(kind) << 3); }
  // Backward passes produce the back layers first: of the `collectives` of a step (as counted in the step before), the
  // last front_ppm are front layers. Number `index` from 0. Back layer, which is protected, when either is unknown
  // (collectives = 0) or index is behind the end.
  PacketKind bulk(std::uint32_t index, std::uint32_t collectives) const;

 private:
  Options options_;
};

}  // namespace clustar::mlt
