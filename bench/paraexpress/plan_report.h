// What `clustar plan` says: each plan's time by the planner's model and in simulation, for sizes of buffers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "paraexpress/core/placement.h"
#include "paraexpress/core/planner.h"

namespace clustar::bench::paraexpress {

namespace px = clustar::paraexpress;

inline constexpr std::uint32_t kMostRanks = 4096;
inline constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 40;
// Beyond so many messages of one operation a plan is not simulated, since it would take more than some seconds;
inline constexpr double kMostSimulatedMessages = 3e6;
// and beyond so many sums (of a chunk, by a member), which take memory also where helpers have no part in them.
inline constexpr double kMostSimulatedSums = 5e7;
// More chunks of a shard are simulated as this many larger ones. A tree, which is faster with many, then takes up to a
// seventh longer than by the model; other plans have fewer.
inline constexpr std::uint32_t kMostSimulatedChunks = 64;

// The ranks dealt to the regions' places at random: what a scheduler gives that does not know the regions.
px::RegionMap shuffled(px::RegionMap map, std::uint32_t ranks, std::uint64_t seed);
// The group with rings and trees in the order of the ranks' numbers: what a library does that does not know the
// regions.
px::Group by_number(px::Group group);

struct PlanRow {
  std::string name{};
  px::Cost modelled{};
  std::optional<double> simulated_s{};
  std::uint32_t simulated_chunks = 0;  // per shard; 0: not simulated
  bool too_large = false;              // to be simulated
  double chunk_bytes = 0;              // modelled, of the largest shard
  double uplink_bytes = 0;             // of the busiest, per direction
  double nic_bytes = 0;
  std::uint32_t steps = 0;  // messages on the longest way, up and down
  bool candidate = true;    // false: for comparison only
};

struct SizeReport {
  std::uint64_t bytes = 0;
  std::vector<PlanRow> rows{};
  std::size_t chosen = 0;  // of rows
  px::PlacementHint placement{};
};

struct PlanReport {
  px::Group group{};
  px::Network network{};
  std::vector<SizeReport> sizes{};
};

// Both are to be consistent.
PlanReport plan_report(const px::Group& group, const px::Network& network, const std::vector<std::uint64_t>& sizes,
                       bool simulated);

std::string text(const PlanReport& report);
// {ranks, helpers, regions[], network{}, sizes[]: {bytes, chosen, placement{}, plans[]}}
nlohmann::json to_json(const PlanReport& report);

}  // namespace clustar::bench::paraexpress
