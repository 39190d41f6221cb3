// How often the planner's plan is the best in simulation, or nearly: over sizes, numbers of ranks and oversubscription,
// with ranks dealt to the regions at random.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "paraexpress/core/planner.h"

namespace clustar::bench::paraexpress {

struct GridOptions {
  std::vector<std::uint32_t> ranks{2, 4, 8, 16, 32, 64, 128, 256};
  std::vector<double> oversubscription{1, 2, 4, 8};
  std::vector<std::uint64_t> bytes{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20,
                                   4 << 20, 16 << 20, 64 << 20, 256 << 20};
  std::uint32_t region_size = 8;
  clustar::paraexpress::Network network{};
  std::uint64_t seed = 1;
};
inline constexpr double kNearlyBest = 1.1;  // of the best plan's simulated time

struct GridCell {
  std::uint32_t ranks = 0;
  double oversubscription = 1;
  std::uint64_t bytes = 0;
  bool ordered = false;  // rings and trees go by region; otherwise by the ranks' numbers, which is at random
  clustar::paraexpress::Plan chosen{}, best{};
  double chosen_s = 0, best_s = 0;  // simulated
  double modelled_s = 0;            // the chosen
  bool hit() const { return chosen_s <= kNearlyBest * best_s; }
};

// `each`: after each number of ranks and oversubscription, for progress.
std::vector<GridCell> grid(const GridOptions& options, const std::function<void(const std::string&)>& each);

std::size_t hits(const std::vector<GridCell>& cells);
double hit_rate(const std::vector<GridCell>& cells);
std::string text(const std::vector<GridCell>& cells);
// {cells, hits, hit_rate, misses[], all[]}
nlohmann::json to_json(const std::vector<GridCell>& cells);

}  // namespace clustar::bench::paraexpress
