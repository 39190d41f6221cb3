// What a program says of its memory, of a GPU's, too, since nothing here reads it: which blocks of it are important, so
// that a transport that may lose loses nothing of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/time.h"

namespace clustar::transport {

// Any thread. Where nothing is marked a look costs one read.
class ImportanceTable {
 public:
  static constexpr std::size_t kMostRanges = 4096;                  // the oldest give way
  static constexpr std::size_t kMostBlocks = std::size_t{1} << 24;  // of all ranges: 2 MiB
  static constexpr std::size_t kMostBlocksOfRange = std::size_t{1} << 20;
  // What a program forgot, of memory that is something else by then.
  static constexpr Duration kKept = std::chrono::seconds(60);

  struct Part {
    std::size_t offset = 0;
    std::size_t bytes = 0;

    bool operator==(const Part&) const = default;
  };
  struct Totals {
    std::uint64_t ranges = 0;           // marked as of now
    std::uint64_t messages = 0;         // sent from memory that was marked, with losses allowed
    std::uint64_t bytes = 0;            // of these
    std::uint64_t important_bytes = 0;  // of them, as they were marked
  };

  // Block i of `bytes` from `begin` on is important where important[i] is not 0; there are blocks_of(...) of them, 1 to
  // kMostBlocksOfRange. Every earlier range that shares a byte with this one is forgotten.
  void mark(const std::byte* begin, std::size_t bytes, std::size_t block_bytes, std::span<const std::uint8_t> important,
            TimePoint now);
  // Bytes at `from` were copied to `to`: what was said of them goes for the copy, and nothing else does.
  void copied(const std::byte* from, const std::byte* to, std::size_t bytes, TimePoint now);
  // Ranges that share a byte with these; how many there were.
  std::size_t forget(const std::byte* begin, std::size_t bytes);
  std::size_t forget_all();

  // What of a message that lies there is important, in order; nullopt: nothing was said of any byte of it. It counts.
  std::optional<std::vector<Part>> find(const std::byte* begin, std::size_t bytes, TimePoint now);

  Totals totals() const;

  static std::size_t blocks_of(std::size_t bytes, std::size_t block_bytes) {
    return bytes / block_bytes + (bytes % block_bytes != 0 ? 1 : 0);
  }

 private:
  struct Range {
    std::uintptr_t end = 0;
    std::size_t block_bytes = 0;
    std::size_t skew = 0;  // bytes of the first block that lie before it: of a copy's
    std::vector<bool> important;
    std::uint64_t serial = 0;
    TimePoint marked_at{};
  };
  using Ranges = std::map<std::uintptr_t, Range>;  // by begin; none shares a byte with another

  Ranges::iterator first_of(std::uintptr_t begin);  // that ends behind it
  std::size_t drop(std::uintptr_t begin, std::uintptr_t end);
  void drop(Ranges::iterator range);
  void insert(std::uintptr_t begin, Range range);
  void drop_old(TimePoint now);
  bool none() const { return count_.load(std::memory_order_acquire) == 0; }

  std::atomic<std::size_t> count_{0};  // of ranges
  mutable std::mutex mutex_;
  // The following with it held.
  Ranges ranges_;
  std::map<std::uint64_t, std::uintptr_t> by_age_;  // begins, by serial
  std::size_t blocks_ = 0;
  std::uint64_t serial_ = 0;
  Totals totals_;
};

}  // namespace clustar::transport
