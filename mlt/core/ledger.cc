#include "mlt/core/ledger.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "mlt/core/ppm.h"

namespace clustar::mlt {

namespace {

using Wide = unsigned __int128;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) { return a > kMax - b ? kMax : a + b; }

}  // namespace

void Ledger::add_eligible(std::uint64_t bytes) {
  counters_.eligible_bytes = add_saturating(counters_.eligible_bytes, bytes);
}

std::uint64_t Ledger::headroom(std::uint32_t stage) const {
  if (closed_ || bound_ == 0 || stage > terms_.ranks - 2) return 0;
  // What this ledger charged is among what the joint one was.
  const std::uint64_t left = joint_ != nullptr ? joint_->left() : bound_ - counters_.charged;
  const std::uint64_t by_bound = left / (std::uint64_t{stage} + 1);
  const auto share = static_cast<std::uint64_t>(Wide{terms_.tolerance_ppm} * counters_.eligible_bytes / kMillion);
  return std::min(by_bound, share - counters_.missing_bytes);
}

bool Ledger::charge(std::uint32_t stage, std::uint64_t missing_bytes) {
  const std::uint64_t contributions = missing_bytes * (std::uint64_t{stage} + 1);  // if allowed, below 2^64
  if (!allows(stage, missing_bytes) || (joint_ != nullptr && !joint_->charge(contributions))) {
    ++counters_.refused;
    return false;
  }
  counters_.missing_bytes += missing_bytes;
  counters_.charged += contributions;
  return true;
}

void Ledger::close() {
  closed_ = true;
  if (joint_ != nullptr) joint_->close();
}

bool LedgerBook::open(const CollectiveId& id, const Terms& terms) {
  if (Ledger* ledger = table_.find(id)) {
    if (!(ledger->terms() == terms)) ledger->close();
    return !ledger->closed();
  }
  if (!table_.admits(id)) return false;
  Ledger ledger(terms, joint_ == nullptr ? nullptr : joint_->open(id, terms));
  // What the process has forgotten gets no second budget from a NIC that never knew it.
  if (joint_ != nullptr && !ledger.joined()) ledger.close();
  return !table_.add(id, std::move(ledger)).closed();
}

void LedgerBook::close(const CollectiveId& id) {
  if (Ledger* ledger = table_.find(id)) ledger->close();
}

void LedgerBook::add_eligible(const CollectiveId& id, std::uint64_t bytes) {
  Ledger* ledger = table_.find(id);
  if (ledger == nullptr || ledger->closed()) return;
  ledger->add_eligible(bytes);
  totals_.eligible_bytes = add_saturating(totals_.eligible_bytes, bytes);
}

std::uint64_t LedgerBook::headroom(const CollectiveId& id, std::uint32_t stage) const {
  const Ledger* ledger = find(id);
  return ledger == nullptr ? 0 : ledger->headroom(stage);
}

bool LedgerBook::charge(const CollectiveId& id, std::uint32_t stage, std::uint64_t missing_bytes) {
  if (missing_bytes == 0) return true;
  Ledger* ledger = table_.find(id);
  if (ledger == nullptr || !ledger->charge(stage, missing_bytes)) {
    ++totals_.refused;
    return false;
  }
  totals_.missing_bytes = add_saturating(totals_.missing_bytes, missing_bytes);
  totals_.charged = add_saturating(totals_.charged, missing_bytes * (std::uint64_t{stage} + 1));
  return true;
}

}  // namespace clustar::mlt
