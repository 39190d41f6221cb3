#include "bench/perf/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace clustar::bench::perf {
namespace {

// Steele, Lea and Flood's SplitMix64: any two inputs that differ give unrelated words.
std::uint64_t word_at(std::uint64_t seed, std::size_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Result<Memory> Memory::allocate(std::size_t bytes) {
  Memory memory;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return fail(ErrorCode::kSystem, fmt::format("cannot allocate a buffer of {:.0f} MiB: {}; choose smaller --bytes",
                                                static_cast<double>(bytes) / 1048576.0, std::strerror(errno)));
  }
  memory.data_ = static_cast<std::byte*>(mapped);
  memory.size_ = bytes;
  // Where the kernel gives huge pages only to who asks, 64 MiB take 16,384 page faults, which in a virtual machine are
  // most of a short run. A kernel that has none says so, and small ones do.
  madvise(mapped, bytes, MADV_HUGEPAGE);
  // An untouched page is the shared zero page: reading it would come out of the cache.
  std::memset(mapped, 0xe7, bytes);
  return memory;
}

void fill(std::span<std::byte> into, std::uint64_t seed) {
  for (std::size_t at = 0, index = 0; at < into.size(); at += sizeof(std::uint64_t), ++index) {
    const std::uint64_t word = word_at(seed, index);
    std::memcpy(into.data() + at, &word, std::min(sizeof word, into.size() - at));
  }
}

std::optional<std::size_t> first_difference(std::span<const std::byte> data, std::uint64_t seed) {
  for (std::size_t at = 0, index = 0; at < data.size(); at += sizeof(std::uint64_t), ++index) {
    const std::uint64_t word = word_at(seed, index);
    const std::size_t length = std::min(sizeof word, data.size() - at);
    if (std::memcmp(data.data() + at, &word, length) == 0) continue;
    const auto* expected = reinterpret_cast<const std::byte*>(&word);
    std::size_t i = 0;
    while (data[at + i] == expected[i]) ++i;
    return at + i;
  }
  return std::nullopt;
}

}  // namespace clustar::bench::perf
