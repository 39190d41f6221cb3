// What the ledgers of one collective may charge together, where a process receives it by several NICs: each of them has
// a LedgerBook of its own, and the bound holds for the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "mlt/core/collective.h"
#include "mlt/core/collective_table.h"

namespace clustar::mlt {

// Of one collective. Any thread may call it at any time; nobody waits. Never refunded.
class JointBudget {
 public:
  explicit JointBudget(const Terms& terms) : terms_(terms), bound_(loss_bound(terms)) {}

  const Terms& terms() const { return terms_; }
  std::uint64_t bound() const { return bound_; }
  // Contribution-bytes that may still be charged; another thread may charge them first.
  std::uint64_t left() const { return bound_ - charged_.load(std::memory_order_relaxed); }
  // All of them, if so many are left; false: nothing changes.
  bool charge(std::uint64_t contributions);
  // Nothing is left from now on.
  void close() { charged_.store(bound_, std::memory_order_relaxed); }
  bool closed() const { return left() == 0; }

 private:
  const Terms terms_;
  const std::uint64_t bound_;
  std::atomic<std::uint64_t> charged_{0};  // 0 .. bound_, and only grows
};

// Where a LedgerBook gets the joint budget of a collective, once, when it opens its ledger.
class JointBudgets {
 public:
  virtual ~JointBudgets() = default;
  // Null: the collective may lose nothing, because it was forgotten before or there are too many communicators. Terms
  // that contradict those it was opened with close it for all.
  virtual std::shared_ptr<JointBudget> open(const CollectiveId& id, const Terms& terms) = 0;
};

// For one thread at a time. A budget that is dropped from the table goes on for those who have it.
class JointBudgetTable final : public JointBudgets {
 public:
  explicit JointBudgetTable(const TableBounds& bounds) : table_(bounds) {}  // std::invalid_argument

  std::shared_ptr<JointBudget> open(const CollectiveId& id, const Terms& terms) override;
  // The communicator has ended in all books.
  void forget(std::uint64_t communicator) { table_.forget(communicator); }

 private:
  struct Shared {
    std::shared_ptr<JointBudget> budget;
    bool closed() const { return budget->closed(); }
  };
  CollectiveTable<Shared> table_;
};

}  // namespace clustar::mlt
