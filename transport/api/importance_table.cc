#include "transport/api/importance_table.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace clustar::transport {
namespace {

std::uintptr_t address(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

ImportanceTable::Ranges::iterator ImportanceTable::first_of(std::uintptr_t begin) {
  auto range = ranges_.upper_bound(begin);
  if (range != ranges_.begin() && std::prev(range)->second.end > begin) --range;
  return range;
}

void ImportanceTable::drop(Ranges::iterator range) {
  blocks_ -= range->second.important.size();
  by_age_.erase(range->second.serial);
  ranges_.erase(range);
  count_.store(ranges_.size(), std::memory_order_release);
}

std::size_t ImportanceTable::drop(std::uintptr_t begin, std::uintptr_t end) {
  std::size_t dropped = 0;
  for (auto range = first_of(begin); range != ranges_.end() && range->first < end; ++dropped) drop(range++);
  return dropped;
}

void ImportanceTable::drop_old(TimePoint now) {
  while (!by_age_.empty()) {
    const auto oldest = ranges_.find(by_age_.begin()->second);
    if (now - oldest->second.marked_at <= kKept) break;
    drop(oldest);
  }
}

void ImportanceTable::insert(std::uintptr_t begin, Range range) {
  while (!by_age_.empty() && (ranges_.size() >= kMostRanges || blocks_ + range.important.size() > kMostBlocks)) {
    drop(ranges_.find(by_age_.begin()->second));
  }
  range.serial = ++serial_;
  blocks_ += range.important.size();
  by_age_.emplace(range.serial, begin);
  ranges_.emplace(begin, std::move(range));
  count_.store(ranges_.size(), std::memory_order_release);
}

void ImportanceTable::mark(const std::byte* begin, std::size_t bytes, std::size_t block_bytes,
                           std::span<const std::uint8_t> important, TimePoint now) {
  Range range;
  range.end = address(begin) + bytes;
  range.block_bytes = block_bytes;
  range.important.reserve(important.size());
  for (const std::uint8_t one : important) range.important.push_back(one != 0);
  range.marked_at = now;
  const std::lock_guard lock(mutex_);
  drop_old(now);
  drop(address(begin), range.end);
  insert(address(begin), std::move(range));
}

void ImportanceTable::copied(const std::byte* from, const std::byte* to, std::size_t bytes, TimePoint now) {
  if (none() || bytes == 0) return;
  const std::lock_guard lock(mutex_);
  drop_old(now);
  drop(address(to), address(to) + bytes);
  std::vector<std::pair<std::uintptr_t, Range>> copies;
  for (auto range = first_of(address(from)); range != ranges_.end() && range->first < address(from) + bytes; ++range) {
    const Range& original = range->second;
    const std::uintptr_t begin = std::max(range->first, address(from));
    const std::uintptr_t end = std::min(original.end, address(from) + bytes);
    const std::size_t behind = begin - range->first + original.skew;
    const auto first = static_cast<std::ptrdiff_t>(behind / original.block_bytes);
    Range copy;
    copy.end = address(to) + (end - address(from));
    copy.block_bytes = original.block_bytes;
    copy.skew = behind % original.block_bytes;
    const auto blocks = static_cast<std::ptrdiff_t>(blocks_of(copy.skew + (end - begin), copy.block_bytes));
    copy.important.assign(original.important.begin() + first, original.important.begin() + first + blocks);
    copy.marked_at = original.marked_at;
    copies.emplace_back(address(to) + (begin - address(from)), std::move(copy));
  }
  for (auto& [begin, copy] : copies) insert(begin, std::move(copy));
}

std::size_t ImportanceTable::forget(const std::byte* begin, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return drop(address(begin), address(begin) + bytes);
}

std::size_t ImportanceTable::forget_all() {
  const std::lock_guard lock(mutex_);
  return drop(0, std::numeric_limits<std::uintptr_t>::max());
}

std::optional<std::vector<ImportanceTable::Part>> ImportanceTable::find(const std::byte* begin, std::size_t bytes,
                                                                        TimePoint now) {
  if (none()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  drop_old(now);
  const std::uintptr_t from = address(begin), to = from + bytes;
  std::optional<std::vector<Part>> parts;
  std::uint64_t important = 0;
  for (auto at = first_of(from); at != ranges_.end() && at->first < to; ++at) {
    const Range& range = at->second;
    if (!parts) parts.emplace();
    const std::uintptr_t origin = at->first - range.skew;  // of block 0
    const std::uintptr_t end = std::min(range.end, to);
    for (std::uintptr_t place = std::max(at->first, from); place < end;) {
      const std::size_t block = (place - origin) / range.block_bytes;
      const std::size_t length = std::min(range.block_bytes - (place - origin) % range.block_bytes, end - place);
      if (range.important[block]) {
        important += length;
        const std::size_t offset = place - from;
        if (!parts->empty() && parts->back().offset + parts->back().bytes == offset) {
          parts->back().bytes += length;
        } else {
          parts->push_back({offset, length});
        }
      }
      place += length;
    }
  }
  if (!parts) return parts;
  ++totals_.messages;
  totals_.bytes += bytes;
  totals_.important_bytes += important;
  return parts;
}

ImportanceTable::Totals ImportanceTable::totals() const {
  const std::lock_guard lock(mutex_);
  Totals totals = totals_;
  totals.ranges = ranges_.size();
  return totals;
}

}  // namespace clustar::transport
