// A grid as text and JSON.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "bench/paraexpress/grid.h"

namespace clustar::bench::paraexpress {
namespace {

namespace px = clustar::paraexpress;

nlohmann::json cell_json(const GridCell& cell) {
  return {{"ranks", cell.ranks},
          {"oversubscription", cell.oversubscription},
          {"bytes", cell.bytes},
          {"order", cell.ordered ? "by region" : "random"},
          {"chosen", px::to_string(cell.chosen)},
          {"best", px::to_string(cell.best)},
          {"modelled_us", cell.modelled_s * 1e6},
          {"chosen_us", cell.chosen_s * 1e6},
          {"best_us", cell.best_s * 1e6},
          {"ratio", cell.chosen_s / cell.best_s}};
}

}  // namespace

std::string text(const std::vector<GridCell>& cells) {
  std::string out = fmt::format("best in simulation, or within 10 % of it: {} of {} cells, {:.1f} %\n", hits(cells),
                                cells.size(), 100 * hit_rate(cells));
  std::map<std::string, int> chosen;
  for (const GridCell& cell : cells) ++chosen[px::to_string(cell.chosen)];
  out += "chosen:";
  for (const auto& [plan, count] : chosen) out += fmt::format(" {} {}", plan, count);
  out += "\n";
  for (const GridCell& cell : cells) {
    if (cell.hit()) continue;
    out += fmt::format(
        "missed: {:>4} ranks {:>3}:1 {:>10} bytes, order {:<9}: {} takes {:.1f} us, {} {:.1f} us ({:.2f} times)\n",
        cell.ranks, cell.oversubscription, cell.bytes, cell.ordered ? "by region" : "random",
        px::to_string(cell.chosen), cell.chosen_s * 1e6, px::to_string(cell.best), cell.best_s * 1e6,
        cell.chosen_s / cell.best_s);
  }
  return out;
}

nlohmann::json to_json(const std::vector<GridCell>& cells) {
  nlohmann::json all = nlohmann::json::array(), misses = nlohmann::json::array();
  for (const GridCell& cell : cells) {
    all.push_back(cell_json(cell));
    if (!cell.hit()) misses.push_back(cell_json(cell));
  }
  return {
      {"cells", cells.size()}, {"hits", hits(cells)}, {"hit_rate", hit_rate(cells)}, {"misses", misses}, {"all", all}};
}

}  // namespace clustar::bench::paraexpress
