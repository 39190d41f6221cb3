// What this process received of each collective and of each send to it, what its own sends lost, and where the holes
// were: the memory behind clustar.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/api/transport.h"

namespace clustar::nccl_plugin {

struct CollectiveKey {
  std::uint64_t communicator = 0;
  std::uint64_t number = 0;
  std::uint8_t function = 0;
  bool local_number = false;  // replays of a graph must not meet the collectives that NCCL numbered
  // Of a send: the other end's rank, whose numbers are its own; MessageIdentity::kNoRank else.
  std::uint16_t peer = transport::MessageIdentity::kNoRank;

  bool operator==(const CollectiveKey&) const = default;
};

struct Reception {
  transport::MessageIdentity identity;  // of its first message here
  std::uint64_t messages = 0;
  std::uint64_t delivered_bytes = 0;
  std::uint64_t missing_bytes = 0;
  std::uint64_t eligible_bytes = 0;
  std::uint64_t contributions = 0;  // missing bytes times (k + 1)
  std::uint32_t missing_ranges = 0;
};

struct Hole {
  std::uint32_t channel;
  std::uint32_t loop;
  std::uint32_t stage;
  std::uint32_t slice;
  std::uint64_t offset;  // within the message
  std::uint64_t bytes;
};

// Any thread; a lock per completed receive, held for a look-up among sixteen. A few MB, never on a stack; owns no other
// memory, so that the process's own one needs no destruction (process.h).
class ReceptionBook {
 public:
  static constexpr std::size_t kWays = 16;
  static constexpr std::size_t kSets = 256;  // kWays * kSets collectives; the oldest of a set goes first
  static constexpr std::size_t kHoles = 65536;

  struct Totals {
    std::uint64_t delivered_bytes = 0;
    std::uint64_t missing_bytes = 0;
    std::uint64_t eligible_bytes = 0;
  };

  ReceptionBook() {}  // not defaulted, which would write over every hole at once

  // A receive that is done; `progress.messages` is not empty.
  void add(const transport::Progress& progress);
  // A send (p2p) that is done and might have lost some: `progress.sent` is not null. In a book of its own, by receiver.
  void add_sent(const transport::Progress& progress);
  Totals totals() const;
  std::optional<Reception> find(const CollectiveKey& key) const;
  // Newest first, by their first message.
  std::vector<Reception> list(std::size_t capacity) const;
  struct Holes {
    std::vector<Hole> kept;  // in order of arrival
    std::uint32_t all = 0;   // with those that newer ones of other records pushed out
  };
  // Nothing is known of the key: nullopt.
  std::optional<Holes> holes(const CollectiveKey& key) const;

 private:
  struct Record {
    CollectiveKey key;
    std::uint64_t serial = 0;      // of its first message; 0 = free
    std::uint64_t first_hole = 0;  // holes seen before its first
    Reception reception;
  };
  struct KeptHole {
    std::uint64_t serial;  // of its record
    Hole hole;
  };
  Record& record_of(const CollectiveKey& key, const transport::MessageIdentity& identity);
  void add_part(const transport::ReceivedMessage& message, Record* record, std::uint32_t part, std::uint64_t size,
                std::span<const transport::MissingRange> ranges);
  const Record* lookup(const CollectiveKey& key) const;
  void add_hole(Record& record, const transport::ReceivedMessage& message, const transport::MissingRange& range);

  mutable std::mutex mutex_;
  std::array<Record, kWays * kSets> records_;
  std::array<KeptHole, kHoles> holes_;  // ring; unwritten beyond the first holes_seen_
  std::uint64_t holes_seen_ = 0;
  std::uint64_t serial_ = 0;
  Totals totals_;
};

}  // namespace clustar::nccl_plugin
