// What is kept of each of the current collectives. Ids come from the wire, so the table is bounded, and no id is ever
// taken a second time: an entry that is dropped leaves a floor under the sequence numbers of its communicator, and
// nothing at or below the floor is admitted again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "mlt/core/collective.h"
#include "mlt/core/options_check.h"

namespace clustar::mlt {

struct TableBounds {
  std::uint32_t ledgers = 64;  // collectives at a time, 1 .. 4096; the oldest goes first
  // Remembered, 1 .. 4096; when all are taken, a new one is not admitted. One with exchanges counts twice.
  std::uint32_t communicators = 64;
};

// `Value` has closed(): of those that are, nothing is lost when they are dropped.
template <class Value>
class CollectiveTable {
 public:
  explicit CollectiveTable(const TableBounds& bounds) : bounds_(bounds) {  // std::invalid_argument
    require_option(bounds.ledgers >= 1 && bounds.ledgers <= kMost, "LedgerBook: ledgers must be 1 .. 4096");
    require_option(bounds.communicators >= 1 && bounds.communicators <= kMost,
                   "LedgerBook: communicators must be 1 .. 4096");
    entries_.reserve(bounds.ledgers);
    floors_.reserve(bounds.communicators);
  }

  // Null: not there. Valid until the next add() or forget().
  const Value* find(const CollectiveId& id) const {
    for (const Entry& entry : entries_) {
      if (entry.id == id) return &entry.value;
    }
    return nullptr;
  }
  Value* find(const CollectiveId& id) { return const_cast<Value*>(std::as_const(*this).find(id)); }

  // Whether an id that is not there may be added. True: its communicator is remembered from now on.
  bool admits(const CollectiveId& id) {
    const Floor* floor = floor_of(id);
    if (floor != nullptr) return !floor->set || !at_or_before(id.sequence, floor->sequence);
    if (floors_.size() == bounds_.communicators) return false;
    floors_.push_back(Floor{.communicator = id.communicator, .exchange = id.exchange});
    return true;
  }
  // Of an id that is admitted. Drops the oldest when the table is full, of those that are closed before the others.
  Value& add(const CollectiveId& id, Value value) {
    if (entries_.size() == bounds_.ledgers) drop_oldest();
    return entries_.emplace_back(Entry{id, std::move(value), added_++}).value;
  }
  // The communicator has ended, and its id will not be used again.
  void forget(std::uint64_t communicator) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.id.communicator == communicator; });
    std::erase_if(floors_, [&](const Floor& floor) { return floor.communicator == communicator; });
  }

  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::uint32_t kMost = 4096;
  struct Entry {
    CollectiveId id;
    Value value;
    std::uint64_t added;  // order of adding
  };
  struct Floor {
    std::uint64_t communicator;
    bool exchange = false;
    std::uint32_t sequence = 0;
    bool set = false;
  };

  // Serial number arithmetic, RFC 1982: `a` is `b` or older.
  static bool at_or_before(std::uint32_t a, std::uint32_t b) { return static_cast<std::int32_t>(a - b) <= 0; }
  Floor* floor_of(const CollectiveId& id) {
    const auto of_it = [&](const Floor& floor) {
      return floor.communicator == id.communicator && floor.exchange == id.exchange;
    };
    const auto found = std::find_if(floors_.begin(), floors_.end(), of_it);
    return found == floors_.end() ? nullptr : &*found;
  }
  void drop_oldest() {
    const auto victim = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
      return a.value.closed() != b.value.closed() ? a.value.closed() : a.added < b.added;
    });
    Floor* floor = floor_of(victim->id);
    if (floor != nullptr && (!floor->set || at_or_before(floor->sequence, victim->id.sequence))) {
      floor->sequence = victim->id.sequence;
      floor->set = true;
    }
    if (victim != entries_.end() - 1) *victim = std::move(entries_.back());
    entries_.pop_back();
  }

  TableBounds bounds_;
  std::vector<Entry> entries_;
  std::vector<Floor> floors_;
  std::uint64_t added_ = 0;
};

}  // namespace clustar::mlt
