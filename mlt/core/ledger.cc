#include "mlt/core/ledger.h"

#include <algorithm>
#include <limits>

#include "mlt/core/options_check.h"
#include "mlt/core/ppm.h"

namespace clustar::mlt {

namespace {

using Wide = unsigned __int128;
constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

std::uint64_t add_saturating(std::uint64_t a, std::uint64_t b) { return a > kMax - b ? kMax : a + b; }

// Serial number arithmetic, RFC 1982: `a` is `b` or older.
bool at_or_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) <= 0; }

}  // namespace

std::uint64_t loss_bound(const Terms& terms) {
  if (terms.collective_bytes == 0 || terms.ranks < 2 || terms.edges < 1 || terms.edges > terms.ranks ||
      terms.tolerance_ppm > kMillion) {
    return 0;
  }
  // 20 + 64 + 32 bits.
  const Wide numerator = Wide{terms.tolerance_ppm} * terms.collective_bytes * terms.ranks;
  const Wide bound = numerator / (Wide{terms.edges} * kMillion);
  return bound > kMax ? kMax : static_cast<std::uint64_t>(bound);
}

void Ledger::add_eligible(std::uint64_t bytes) {
  counters_.eligible_bytes = add_saturating(counters_.eligible_bytes, bytes);
}

std::uint64_t Ledger::headroom(std::uint32_t stage) const {
  if (closed_ || bound_ == 0 || stage > terms_.ranks - 2) return 0;
  const std::uint64_t by_bound = (bound_ - counters_.charged) / (std::uint64_t{stage} + 1);
  const auto share = static_cast<std::uint64_t>(Wide{terms_.tolerance_ppm} * counters_.eligible_bytes / kMillion);
  return std::min(by_bound, share - counters_.missing_bytes);
}

bool Ledger::charge(std::uint32_t stage, std::uint64_t missing_bytes) {
  if (!allows(stage, missing_bytes)) {
    ++counters_.refused;
    return false;
  }
  // Within the bound, hence below 2^64.
  counters_.missing_bytes += missing_bytes;
  counters_.charged += missing_bytes * (std::uint64_t{stage} + 1);
  return true;
}

LedgerBook::LedgerBook(const Options& options) : options_(options) {
  require_option(options.ledgers >= 1 && options.ledgers <= 4096, "LedgerBook: ledgers must be 1 .. 4096");
  require_option(options.communicators >= 1 && options.communicators <= 4096,
                 "LedgerBook: communicators must be 1 .. 4096");
  entries_.reserve(options.ledgers);
  floors_.reserve(options.communicators);
}

bool LedgerBook::open(const CollectiveId& id, const Terms& terms) {
  if (Ledger* ledger = known(id)) {
    if (!(ledger->terms() == terms)) ledger->close();
    return !ledger->closed();
  }
  Floor* floor = floor_of(id);
  if (floor == nullptr) {
    if (floors_.size() == options_.communicators) return false;
    floors_.push_back(Floor{.communicator = id.communicator, .exchange = id.exchange});
  } else if (floor->set && at_or_before(id.sequence, floor->sequence)) {
    return false;
  }
  if (entries_.size() == options_.ledgers) drop_oldest();
  entries_.push_back(Entry{id, Ledger(terms), opened_++});
  return true;
}

void LedgerBook::drop_oldest() {
  // Closed ones first: they lose nothing by it.
  const auto victim = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.ledger.closed() != b.ledger.closed() ? a.ledger.closed() : a.opened < b.opened;
  });
  Floor* floor = floor_of(victim->id);
  if (floor != nullptr && (!floor->set || at_or_before(floor->sequence, victim->id.sequence))) {
    floor->sequence = victim->id.sequence;
    floor->set = true;
  }
  *victim = entries_.back();
  entries_.pop_back();
}

void LedgerBook::close(const CollectiveId& id) {
  if (Ledger* ledger = known(id)) ledger->close();
}

void LedgerBook::forget(std::uint64_t communicator) {
  std::erase_if(entries_, [&](const Entry& entry) { return entry.id.communicator == communicator; });
  std::erase_if(floors_, [&](const Floor& floor) { return floor.communicator == communicator; });
}

void LedgerBook::add_eligible(const CollectiveId& id, std::uint64_t bytes) {
  Ledger* ledger = known(id);
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
  Ledger* ledger = known(id);
  if (ledger == nullptr || !ledger->charge(stage, missing_bytes)) {
    ++totals_.refused;
    return false;
  }
  totals_.missing_bytes = add_saturating(totals_.missing_bytes, missing_bytes);
  totals_.charged = add_saturating(totals_.charged, missing_bytes * (std::uint64_t{stage} + 1));
  return true;
}

const Ledger* LedgerBook::find(const CollectiveId& id) const {
  for (const Entry& entry : entries_) {
    if (entry.id == id) return &entry.ledger;
  }
  return nullptr;
}

Ledger* LedgerBook::known(const CollectiveId& id) { return const_cast<Ledger*>(find(id)); }

LedgerBook::Floor* LedgerBook::floor_of(const CollectiveId& id) {
  for (Floor& floor : floors_) {
    if (floor.communicator == id.communicator && floor.exchange == id.exchange) return &floor;
  }
  return nullptr;
}

}  // namespace clustar::mlt
