// Which plan an operation goes by, the user's or the planner's, and in which chunks, for a network that was measured.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "paraexpress/core/collective.h"
#include "paraexpress/core/planner.h"
#include "paraexpress/core/program.h"
#include "paraexpress/engine/engine.h"

namespace clustar::paraexpress {

// Immutable once made. All ranks that give it the same answer the same.
class PlanChoice {
 public:
  // Plans in use, by collective and bytes. One stays until another is better by a margin.
  using InUse = std::map<std::pair<Collective, std::uint64_t>, Plan>;
  PlanChoice(const Group& group, const EngineOptions& options, const Network& network, InUse in_use = {});

  struct Choice {
    Plan plan = Plan::kDirect;
    std::uint64_t chunk_bytes = 0;
  };
  // `bytes`: of the whole buffer.
  Choice choose(std::uint64_t bytes, Collective collective = Collective::kAllReduce) const;
  // By how much the best plan of an all-reduce is modelled to be faster than a ring: 1 or more.
  double gain_over_ring(std::uint64_t bytes) const;
  // A broadcast's tree and chunks.
  struct Broadcast {
    Forest forest{};
    std::uint64_t chunk_bytes = 0;
  };
  Broadcast broadcast(std::uint64_t bytes, Member root) const;
  // Plans that do not make sense for the group are direct.
  const Forest& forest(Plan plan) const { return made_[index(plan)]->forest; }
  const Seat& seat(Plan plan) const { return made_[index(plan)]->seat; }

 private:
  struct Made {
    Forest forest{};
    Seat seat{};
  };
  std::size_t index(Plan plan) const {
    const auto at = static_cast<std::size_t>(plan);
    return made_[at] ? at : static_cast<std::size_t>(Plan::kDirect);
  }

  Choice cut(const Candidate& candidate, const Forest& forest, std::uint64_t bytes) const;

  const std::optional<Plan> fixed_;  // makes sense
  const std::optional<std::uint64_t> ring_from_;
  const std::uint64_t most_chunk_;
  std::array<std::optional<Made>, kPlans.size()> made_{};
  const Group group_;
  const Network network_;
  const Planner planner_;
  const InUse in_use_;
};

}  // namespace clustar::paraexpress
