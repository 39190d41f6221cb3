#include "paraexpress/elastic/invitation.h"

#include <algorithm>
#include <cstring>

namespace clustar::paraexpress {
namespace {

// As the engine's own exchange: all ranks are of one build on one kind of machine.
struct Wire {
  std::uint64_t epoch = 0;
  std::uint32_t rank = 0, ranks = 0;
  std::uint32_t plan = 0;  // kPlans.size(): none
  std::uint32_t probes = 0;
  std::uint64_t chunk_bytes = 0;
  std::int64_t stall_ns = 0, setup_ns = 0;
};

}  // namespace

std::vector<std::byte> encode_invitation(const Place& place, const EngineOptions& options) {
  Wire wire;
  wire.epoch = place.epoch;
  wire.rank = place.rank;
  wire.ranks = place.ranks;
  wire.plan = options.plan ? static_cast<std::uint32_t>(*options.plan) : static_cast<std::uint32_t>(kPlans.size());
  wire.probes = options.regions == kProbeRegions ? 1 : 0;
  wire.chunk_bytes = options.chunk_bytes;
  wire.stall_ns = options.stall.count();
  wire.setup_ns = options.setup.count();
  std::vector<std::byte> bytes(sizeof wire);
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

std::optional<EngineOptions> invited(std::span<const std::byte> invitation, const EngineOptions& options) {
  Wire wire;
  if (invitation.size() != sizeof wire) return std::nullopt;
  std::memcpy(&wire, invitation.data(), sizeof wire);
  if (wire.ranks < 2 || wire.ranks > kMostRanks || wire.rank >= wire.ranks || wire.plan > kPlans.size() ||
      wire.chunk_bytes < kLeastChunk || wire.chunk_bytes > kMostChunk || wire.stall_ns <= 0 || wire.setup_ns <= 0) {
    return std::nullopt;
  }
  EngineOptions theirs = options;
  theirs.epoch = wire.epoch;
  theirs.rank = wire.rank;
  theirs.ranks = wire.ranks;
  theirs.plan.reset();
  if (wire.plan < kPlans.size()) theirs.plan = static_cast<Plan>(wire.plan);
  theirs.regions = wire.probes != 0 ? kProbeRegions : "";
  theirs.chunk_bytes = wire.chunk_bytes;
  theirs.stall = std::min(Duration(wire.stall_ns), kMostStall);
  theirs.setup = std::min(Duration(wire.setup_ns), kMostSetup);
  return theirs;
}

}  // namespace clustar::paraexpress
