// A decision in words.
#pragma once

#include <string>
#include <vector>

#include "gdr/core/tiers.h"

namespace clustar::gdr {

// One reason that stands against several tiers, as one line for a person.
struct Explanation {
  std::vector<Tier> tiers{};
  Direction direction = Direction::kBoth;
  bool certain = true;
  std::string why{};
  std::string fix{};
};

// The reasons against what is better than what was taken, each once.
std::vector<Explanation> explanations(const Decision& decision);
// "no dma-buf, nvidia_peermem for sends: WHY"
std::string headline(const Explanation& explanation);
// Several lines, each ended.
std::string explain(const Decision& decision);

}  // namespace clustar::gdr
