// What we expect from peers: which memory is open to whom, what of it was returned, and when the peer must be told
// (again). Pure: times are arguments, and windows and datagrams are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/base/time.h"
#include "transport/io/packet_io.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {

class Landings {
 public:
  static constexpr std::uint32_t kMost = 4096;
  // A grant that nobody used is repeated so often, after 1, 2, 4 .. times this; then the message comes by datagrams.
  static constexpr int kRepeats = 4;
  static constexpr Duration kRepeatAfter = std::chrono::milliseconds(2);

  struct Target {
    PeerId peer = 0;
    std::uint64_t slot = 0;
    std::span<std::byte> bytes{};
    std::uint32_t segment_bytes = 0;
    std::uint32_t window = 0;  // the caller's
  };

  // The landing's id, by which everything names it; 0: a slot of that peer which has one, more than kMost, more than
  // kMostSegments, nothing to land in.
  std::uint32_t add(const Target& target);
  void set_window(std::uint32_t id, std::uint32_t window);
  // Its window is bound: from now on it is granted. rkey and address as the peer names it.
  void bound(std::uint32_t id, std::uint32_t rkey, std::uint64_t address, TimePoint now);
  const Target* find(std::uint32_t id) const;
  // The peer has used it, whether or not all of what it wrote came.
  void used(std::uint32_t id, PeerId peer);
  // The bytes that a packet of `peer` has filled, which now count as returned. Nothing: no such landing (any more),
  // another peer's, a segment that it has not or that was returned, more bytes than it has.
  std::optional<std::span<const std::byte>> take(std::uint32_t id, PeerId peer, std::uint32_t segment,
                                                 std::uint32_t bytes);
  // True if the peer may still hold the grant for a place that it has not wholly written: it should be told.
  bool remove(std::uint32_t id);
  // All of a peer are due again, from the first time on: it has forgotten what it was told.
  void tell_again(PeerId peer, TimePoint now);

  // The next that is due to be told. The caller does tell it.
  struct Due {
    PeerId peer = 0;
    Grant grant{};
  };
  std::optional<Due> poll(TimePoint now);
  TimePoint next_timeout() const;

  std::size_t size() const { return by_key_.size(); }
  std::vector<std::uint32_t> of(PeerId peer) const;

 private:
  struct Entry {
    std::uint32_t id = 0;  // 0: not in use
    Target target{};
    Grant grant{};
    int told = 0;
    TimePoint tell_at = TimePoint::max();
    std::uint32_t left = 0;  // segments that were not returned
    std::vector<std::uint64_t> returned{};
  };
  struct Key {
    PeerId peer = 0;
    std::uint64_t slot = 0;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.slot ^ std::uint64_t{key.peer} << 32; }
  };
  static constexpr int kIndexBits = 12;
  static_assert(kMost <= 1u << kIndexBits);
  static constexpr std::uint32_t index_of(std::uint32_t id) { return id & ((1u << kIndexBits) - 1); }
  const Entry* entry(std::uint32_t id) const;
  Entry* entry(std::uint32_t id) { return const_cast<Entry*>(std::as_const(*this).entry(id)); }
  void plan(std::uint32_t index, TimePoint at);

  std::vector<Entry> entries_;
  std::uint32_t serial_ = 0;  // ids count up, so that of two grants for a slot the newer one is known
  std::vector<std::uint32_t> free_;
  std::unordered_map<Key, std::uint32_t, Hash> by_key_;  // -> index
  std::vector<std::uint32_t> planned_;                   // indices with a time to be told
};

}  // namespace clustar::transport::io::verbs::uc
