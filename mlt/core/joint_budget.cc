#include "mlt/core/joint_budget.h"

namespace clustar::mlt {

bool JointBudget::charge(std::uint64_t contributions) {
  std::uint64_t charged = charged_.load(std::memory_order_relaxed);
  do {
    if (contributions > bound_ - charged) return false;
  } while (!charged_.compare_exchange_weak(charged, charged + contributions, std::memory_order_relaxed));
  return true;
}

std::shared_ptr<JointBudget> JointBudgetTable::open(const CollectiveId& id, const Terms& terms) {
  if (const Shared* known = table_.find(id)) {
    if (!(known->budget->terms() == terms)) known->budget->close();
    return known->budget;
  }
  if (!table_.admits(id)) return nullptr;
  return table_.add(id, {std::make_shared<JointBudget>(terms)}).budget;
}

}  // namespace clustar::mlt
