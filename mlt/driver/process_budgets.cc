#include "mlt/driver/process_budgets.h"

namespace clustar::mlt::driver {

std::shared_ptr<JointBudget> ProcessBudgets::Locked::open(const CollectiveId& id, const Terms& terms) {
  const std::lock_guard lock(mutex_);
  return table_.open(id, terms);
}

void ProcessBudgets::Locked::forget(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  table_.forget(communicator);
}

void ProcessBudgets::enter(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  ++engines_[communicator];
}

void ProcessBudgets::leave(std::uint64_t communicator) {
  const std::lock_guard lock(mutex_);
  const auto found = engines_.find(communicator);
  if (--found->second > 0) return;
  engines_.erase(found);
  // With the lock: who enters it again finds nothing of the life before.
  received_.forget(communicator);
  sent_.forget(communicator);
}

}  // namespace clustar::mlt::driver
