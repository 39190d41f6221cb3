// What the engines of a process may lose together, of each collective: the bound is the process's, however many NICs
// and engines receive it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "mlt/core/endpoint.h"
#include "mlt/core/joint_budget.h"

namespace clustar::mlt::driver {

// Any thread. Engines wait here once per collective, when they open its ledger; charging it takes no lock. Outlives
// the engines.
class ProcessBudgets {
 public:
  // For each engine's core.
  Endpoint::Joint joint() { return {&received_, &sent_}; }

  // An engine has its first connection of the communicator, or has lost its last: with the last one of all, its
  // collectives are over and forgotten.
  void enter(std::uint64_t communicator);
  void leave(std::uint64_t communicator);

 private:
  class Locked final : public JointBudgets {
   public:
    std::shared_ptr<JointBudget> open(const CollectiveId& id, const Terms& terms) override;
    void forget(std::uint64_t communicator);

   private:
    // Each engine remembers fewer communicators, so none is refused here that an engine would take. One that opens a
    // collective so late that so many are newer in other engines finds it forgotten.
    static constexpr TableBounds kBounds{.ledgers = 256, .communicators = 4096};
    std::mutex mutex_;
    JointBudgetTable table_{kBounds};
  };

  Locked received_;
  Locked sent_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::uint32_t> engines_;  // how many engines have connections of each communicator
};

}  // namespace clustar::mlt::driver
