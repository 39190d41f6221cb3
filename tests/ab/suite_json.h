// A suite's JSON as conduct() makes it, for what judges it.
#pragma once

#include <nlohmann/json.hpp>

namespace clustar::bench::ab::suite {

// Of `rounds` rounds, to 95 % accuracy or for equal steps; no scenarios yet.
inline nlohmann::json empty_training(int rounds, bool target) {
  using nlohmann::json;
  return {{"options",
           {{"rounds", rounds},
            {"target_accuracy", target ? json(0.95) : json(nullptr)},
            {"epochs", 2},
            {"limit_s", 600},
            {"model", "mlp"}}},
          {"reference", "auto"},
          {"interrupted", false},
          {"ended_by", nullptr},
          {"scenarios", json::array()}};
}

}  // namespace clustar::bench::ab::suite
