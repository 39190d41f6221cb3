#include "gdr/core/mr_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

namespace clustar::gdr {
namespace {

// From the slot at `from` on, which or before which something changed.
template <class Slots>
void find_furthest(Slots& slots, std::size_t from) {
  for (std::size_t i = from; i < slots.size(); ++i) {
    auto* furthest = slots[i].entry;
    if (i > 0 && slots[i - 1].furthest->end >= furthest->end) furthest = slots[i - 1].furthest;
    if (i > from && slots[i].furthest == furthest) return;
    slots[i].furthest = furthest;
  }
}

// The registrar's description of what is registered for `memory`.
MemoryRef pages_for(const MemoryRef& memory, std::uint64_t before, std::uint64_t length) {
  MemoryRef pages = memory;
  pages.length = length;
  if (memory.kind == MemoryKind::kDmaBuf) pages.offset -= before;
  // A dma-buf may come without an address.
  const auto address = reinterpret_cast<std::uintptr_t>(memory.address);
  if (address >= before) pages.address = reinterpret_cast<std::byte*>(address - before);
  return pages;
}

}  // namespace

MrCache::Lease& MrCache::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    end();
    cache_ = std::exchange(other.cache_, nullptr);
    entry_ = other.entry_;
    offset_ = other.offset_;
    covers_ = other.covers_;
  }
  return *this;
}

void MrCache::Lease::end() {
  if (cache_ != nullptr) std::exchange(cache_, nullptr)->release(*entry_, covers_);
}

Result<MrCache::Range> MrCache::range_of(const MemoryRef& memory, bool has_id) const {
  std::uint64_t page = pages_.host;
  std::uint64_t first = reinterpret_cast<std::uintptr_t>(memory.address);
  switch (memory.kind) {
    case MemoryKind::kHost: break;
    case MemoryKind::kCuda: page = pages_.device; break;
    case MemoryKind::kDmaBuf:
      first = memory.offset;
      if (memory.fd < 0) {
        return fail(ErrorCode::kInvalidArgument,
                    fmt::format("registration: descriptor {} of a dma-buf; an open one is needed", memory.fd));
      }
      if (!has_id) return fail(ErrorCode::kInvalidArgument, "registration: a dma-buf without an id of its buffer");
      break;
    default:
      return fail(ErrorCode::kInvalidArgument,
                  fmt::format("registration: memory of the unknown kind {}; 0 to 2 are known",
                              static_cast<unsigned>(memory.kind)));
  }
  if (memory.kind != MemoryKind::kDmaBuf && first == 0) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("registration: {} bytes of {} memory at address 0", memory.length, to_string(memory.kind)));
  }
  // The last page must end below 2^64, too.
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max() - page + 1;
  if (first > most || memory.length > most - first) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("registration: {} bytes of {} memory at 0x{:x} end behind 0x{:x}, the last that is allowed",
                            memory.length, to_string(memory.kind), first, most));
  }
  return Range{first, first & ~(page - 1), (first + memory.length + page - 1) & ~(page - 1)};
}

MrCache::Entry* MrCache::find(const Space& space, const Range& range) {
  const auto found = spaces_.find(space);
  if (found == spaces_.end()) return nullptr;
  const Slots& slots = found->second;
  const auto behind = std::upper_bound(slots.begin(), slots.end(), range.begin,
                                       [](std::uint64_t begin, const Slot& slot) { return begin < slot.begin; });
  if (behind == slots.begin()) return nullptr;
  Entry* const furthest = std::prev(behind)->furthest;
  return furthest->end >= range.end ? furthest : nullptr;
}

MrCache::Entry& MrCache::insert(const Space& space, const Range& range, std::unique_ptr<Registration> registration) {
  Entry& entry = entries_.emplace_back(Entry{range.begin, range.end, std::move(registration)});
  entry.self = std::prev(entries_.end());
  entry.space = spaces_.try_emplace(space).first;
  Slots& slots = entry.space->second;
  const auto behind = std::upper_bound(slots.begin(), slots.end(), range.begin,
                                       [](std::uint64_t begin, const Slot& slot) { return begin < slot.begin; });
  const auto made = slots.insert(behind, Slot{range.begin, &entry, &entry});
  find_furthest(slots, static_cast<std::size_t>(made - slots.begin()));
  ++counts_.entries;
  return entry;
}

void MrCache::retire(Entry& entry) {
  Slots& slots = entry.space->second;
  auto slot = std::lower_bound(slots.begin(), slots.end(), entry.begin,
                               [](const Slot& one, std::uint64_t begin) { return one.begin < begin; });
  while (slot->entry != &entry) ++slot;
  const auto from = static_cast<std::size_t>(slot - slots.begin());
  slots.erase(slot);
  find_furthest(slots, from);
  if (slots.empty()) spaces_.erase(entry.space);
  ++counts_.retired;
}

MrCache::Lease MrCache::lease(Entry& entry, const Range& range) {
  const bool covers = range.begin == entry.begin && range.end == entry.end;
  ++entry.leases;
  if (covers) ++entry.covering;
  ++counts_.leases;
  return Lease(*this, entry, range.first - entry.begin, covers);
}

void MrCache::release(Entry& entry, bool covers) {
  --counts_.leases;
  if (covers && --entry.covering == 0) retire(entry);
  if (--entry.leases > 0) return;
  // The first lease covered it, so it is retired.
  --counts_.retired;
  --counts_.entries;
  entries_.erase(entry.self);
}

Result<MrCache::Lease> MrCache::acquire(const MemoryRef& memory, std::uint32_t access, std::optional<BufferId> buffer) {
  if (memory.length == 0) return Lease();
  const auto range = range_of(memory, buffer.has_value());
  if (!range) return tl::unexpected(range.error());
  const bool dma_buf = memory.kind == MemoryKind::kDmaBuf;
  const Space space{memory.kind, access, dma_buf ? *buffer : BufferId{}};
  if (Entry* const found = find(space, *range)) {
    ++counts_.hits;
    return lease(*found, *range);
  }
  auto registration =
      registrar_.register_pages(pages_for(memory, range->first - range->begin, range->end - range->begin), access);
  if (!registration) {
    ++counts_.refused;
    return tl::unexpected(registration.error());
  }
  ++counts_.misses;
  return lease(insert(space, *range, std::move(*registration)), *range);
}

}  // namespace clustar::gdr
