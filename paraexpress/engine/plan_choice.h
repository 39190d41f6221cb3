// Which plan an operation goes by, the user's or the planner's, and in which chunks, for a network that was measured.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "paraexpress/core/collective.h"
#include "paraexpress/core/planner.h"
#include "paraexpress/core/program.h"
#include "paraexpress/engine/engine.h"

namespace clustar::paraexpress {

// Immutable once made. All ranks that give it the same answer the same.
class PlanChoice {
 public:
  // `before`: null, or what was in use for this group: a plan of it stays until another is better by a margin.
  PlanChoice(const Group& group, const EngineOptions& options, const Network& network,
             const PlanChoice* before = nullptr);

  struct Choice {
    Plan plan = Plan::kDirect;
    std::uint64_t chunk_bytes = 0;
  };
  // `bytes`: of the whole buffer.
  Choice choose(std::uint64_t bytes, Collective collective = Collective::kAllReduce) const;
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

  std::vector<Candidate> candidates(const Planner& planner, Collective collective, std::uint64_t bytes) const;
  Choice cut(const Candidate& candidate, const Forest& forest, std::uint64_t bytes) const;

  const std::optional<Plan> fixed_;  // makes sense
  const std::uint64_t most_chunk_;
  std::array<std::optional<Made>, kPlans.size()> made_{};
  const Group group_;
  const Network network_;
  const Planner planner_;
  const std::optional<Planner> before_;
};

}  // namespace clustar::paraexpress
