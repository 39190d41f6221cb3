// The hard bound on what may stay missing of a collective (docs/loss.md).
//
// The unit is the contribution-byte: a byte of reduce-scatter stage k (from 0) carries the partial sums of k + 1 ranks,
// so losing it loses k + 1 contributions. One Ledger belongs to one collective on one receiving network edge, over all
// channels of a NIC; where the process has several NICs, they charge a JointBudget, too, and both have to allow it.
// Charges only grow: they are never refunded, even if the packet arrives later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "mlt/core/collective.h"
#include "mlt/core/collective_table.h"
#include "mlt/core/joint_budget.h"

namespace clustar::mlt {

// How many packets of one message may stay missing, whatever the ledger has left: max(1, 10 %); 0 for an empty one.
constexpr std::uint32_t message_cap_packets(std::uint32_t packets) {
  return packets == 0 ? 0 : packets < 20 ? 1 : packets / 10;
}

struct LossCounters {
  std::uint64_t eligible_bytes = 0;  // of messages that may lose bytes
  std::uint64_t missing_bytes = 0;   // given up
  std::uint64_t charged = 0;         // the same in contribution-bytes
  std::uint64_t refused = 0;         // charges that the bound did not allow
};

// Value type; copies charge the same joint budget.
class Ledger {
 public:
  Ledger() = default;  // allows nothing
  // `joint`: of the same collective; null: nobody else charges it.
  explicit Ledger(const Terms& terms, std::shared_ptr<JointBudget> joint = nullptr)
      : terms_(terms), bound_(loss_bound(terms)), joint_(std::move(joint)) {}

  // A tolerant message of this size is expected on the edge. Call it once per message, when its size becomes known.
  void add_eligible(std::uint64_t bytes);

  // Whether `missing_bytes` more of stage `stage` may be given up now. Afterwards both must hold:
  //   charged <= bound(), and missing <= p * eligible *so far*.
  // "So far" is the safe reading of "p of the bytes eligible on the edge": even if the collective breaks off, or its
  // later messages are reliable, no more than p is missing. It is stricter on early messages: with p = 1 % and packets
  // of 1448 B, a first message of 64 KiB may lose nothing, the third may.
  // Stages are 0 .. n - 2; any other allows nothing. 0 bytes are always allowed. Of a joint budget another thread may
  // take what is allowed here before it is charged: only charge() is certain.
  bool allows(std::uint32_t stage, std::uint64_t missing_bytes) const { return missing_bytes <= headroom(stage); }
  // The most bytes of this stage that may be given up now.
  std::uint64_t headroom(std::uint32_t stage) const;
  // Charges (stage + 1) per byte if allowed. False: counted as refused, and nothing else changes.
  bool charge(std::uint32_t stage, std::uint64_t missing_bytes);

  // A closed ledger allows nothing more, forever, nor do the others that charge its joint budget.
  void close();
  bool closed() const { return closed_; }
  bool joined() const { return joint_ != nullptr; }

  const Terms& terms() const { return terms_; }
  std::uint64_t bound() const { return bound_; }
  const LossCounters& counters() const { return counters_; }

 private:
  Terms terms_;
  std::uint64_t bound_ = 0;
  LossCounters counters_;
  std::shared_ptr<JointBudget> joint_;
  bool closed_ = false;
};

// The ledgers of all current collectives on one receiving edge.
class LedgerBook {
 public:
  using Options = TableBounds;
  // `joint`, unless null, outlives it: where those of the process are counted together.
  explicit LedgerBook(const Options& options, JointBudgets* joint = nullptr)  // std::invalid_argument
      : table_(options), joint_(joint) {}

  // Idempotent for equal terms. False: this collective may lose nothing, because it was closed before, its terms
  // contradict those it was opened with (which closes it), or there are too many communicators.
  bool open(const CollectiveId& id, const Terms& terms);
  void close(const CollectiveId& id);
  // The communicator has ended on this side, and its id will not be used again.
  void forget(std::uint64_t communicator) { table_.forget(communicator); }

  // Like Ledger's functions; an id that is not open allows nothing (charge counts as refused).
  void add_eligible(const CollectiveId& id, std::uint64_t bytes);
  bool allows(const CollectiveId& id, std::uint32_t stage, std::uint64_t missing_bytes) const {
    return missing_bytes <= headroom(id, stage);
  }
  std::uint64_t headroom(const CollectiveId& id, std::uint32_t stage) const;
  bool charge(const CollectiveId& id, std::uint32_t stage, std::uint64_t missing_bytes);

  // Closed ones, too; valid until the next open() or forget().
  const Ledger* find(const CollectiveId& id) const { return table_.find(id); }
  const LossCounters& totals() const { return totals_; }  // of all collectives ever
  std::size_t size() const { return table_.size(); }

 private:
  CollectiveTable<Ledger> table_;
  JointBudgets* joint_;
  LossCounters totals_;
};

}  // namespace clustar::mlt
