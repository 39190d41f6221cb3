// Channels that may lose, and what came over them: an MltBed whose messages belong to collectives.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/mlt_bed.h"

namespace clustar::transport::conformance {

constexpr std::size_t kMiB = 1 << 20;
constexpr std::uint32_t kOnePercent = 10'000;
constexpr std::uint64_t kCommunicator = 0x5eed;
constexpr std::uint16_t kRanks = 4;
constexpr ChannelOptions kOptedIn{kCommunicator, -1, kOnePercent};

// Of the first reduce-scatter step of a ring, one rank per host, that moves `bytes` over this edge.
LossTerms one_percent_of(std::uint64_t bytes, std::uint32_t collective = 1);

struct Came {
  std::uint64_t missing = 0;    // bytes that were reported
  std::uint64_t not_zero = 0;   // of those, bytes that are not zero
  std::uint64_t different = 0;  // of the others, bytes that are not those that were sent
  std::size_t ranges = 0;
  std::vector<std::size_t> sizes;  // of each message
};

class MltLossBed : public MltBed {
 protected:
  // `loss` as FaultSpec writes it; each device draws for itself.
  Wrap faults(const std::string& spec);
  // So many messages, as many over each channel, one after the other. `waiting`, unless null, is tested all along.
  static Came run(std::vector<Connection>& channels, std::size_t messages, std::size_t size, const FlowTag& flow,
                  Waiting* waiting = nullptr);

 private:
  std::uint64_t seed_ = 1;
};

}  // namespace clustar::transport::conformance
