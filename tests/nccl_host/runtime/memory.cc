#include "tests/nccl_host/runtime/memory.h"

#include <sys/mman.h>

#include <algorithm>

namespace nccl_host {
namespace {

constexpr size_t kHugePage = 2 << 20;

}  // namespace

void* Memory::Allocate(size_t size, MemoryKind kind) {
  const size_t mapped = std::max<size_t>(size, 1);
  void* begin = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  // NCCL fills a quarter of a gigabyte per rank with zeros: in small pages that is most of a short run's time.
  if (mapped >= kHugePage) madvise(begin, mapped, MADV_HUGEPAGE);
  std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  ranges_[address] = {address, mapped, kind};
  return begin;
}

bool Memory::Free(void* begin) {
  const auto range = Remove(begin, false);
  return range && munmap(begin, range->size) == 0;
}

bool Memory::Register(void* begin, size_t size) {
  std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<uintptr_t>(begin);
  return size > 0 && ranges_.try_emplace(address, MemoryRange{address, size, MemoryKind::kRegisteredHost}).second;
}

bool Memory::Unregister(void* begin) { return Remove(begin, true).has_value(); }

std::optional<MemoryRange> Memory::Find(const void* address) const {
  std::lock_guard lock(mutex_);
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  auto after = ranges_.upper_bound(wanted);
  if (after == ranges_.begin()) return std::nullopt;
  const MemoryRange& range = std::prev(after)->second;
  if (wanted - range.begin >= range.size) return std::nullopt;
  return range;
}

size_t Memory::count() const {
  std::lock_guard lock(mutex_);
  return ranges_.size();
}

std::optional<MemoryRange> Memory::Remove(void* begin, bool registered) {
  std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(begin));
  if (found == ranges_.end() || (found->second.kind == MemoryKind::kRegisteredHost) != registered) return std::nullopt;
  const MemoryRange range = found->second;
  ranges_.erase(found);
  return range;
}

}  // namespace nccl_host
