// Receiver's half of the matching protocol: finds the posted receive for each chunk by (tag, number), keeps eager
// messages that came first, and says when a group of receives is complete. It never touches payload. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/message/receive_groups.h"
#include "transport/message/receive_slots.h"
#include "transport/tcp/core/wire.h"

namespace clustar::transport::tcp {

class RecvMatcher {
 public:
  static constexpr std::uint32_t kMaxGroups = ReceiveGroups::kMost;

  explicit RecvMatcher(const SharedSettings& settings) : settings_(settings) {}

  struct Part {
    int tag;
    std::uint64_t length;
  };
  // An eager message that arrived before its receive: copy `bytes` from early buffer `early` to the part's memory, then
  // release_early(early).
  struct EarlyMatch {
    std::uint32_t part;
    std::uint32_t early;
    std::uint64_t bytes;
  };
  struct Posted {
    std::uint32_t group;
    std::vector<ClearToSend>* clears;  // one per part, to be sent to the peer; valid until the next post()
    std::vector<EarlyMatch>* early;    // valid until the next post()
  };
  // 1 .. kMaxRecvParts parts. nullopt: kMaxGroups are outstanding.
  std::optional<Posted> post(std::span<const Part> parts);

  // Where the payload that follows a chunk header goes: the first `keep` bytes to the target, the rest is cut off.
  struct Placement {
    // kWait: no receive is posted that is not complete, so nobody waits for what may be behind this on its socket.
    // Leave the payload with the kernel, which costs no copy, and ask again after the next post().
    enum class Kind : std::uint8_t { kPart, kEarly, kWait, kProtocolError } kind;
    std::uint32_t group = 0;
    std::uint32_t part = 0;
    std::uint32_t slot = 0;
    std::uint32_t early = 0;
    std::uint64_t offset = 0;  // in the part's memory
    std::uint64_t keep = 0;
  };
  Placement on_header(const ChunkHeader& header);

  // All payload of the chunk behind `placement` arrived. A part that arrives complete completes its group with the
  // last.
  void on_payload(const Placement& placement, const ChunkHeader& header);
  // Set when an early message, matched while it was still arriving, is complete now.
  std::optional<EarlyMatch> take_late_match(std::uint32_t* group);

  bool complete(std::uint32_t group) const { return groups_.complete(group); }
  std::span<const std::size_t> sizes(std::uint32_t group) const { return groups_.sizes(group); }
  std::span<const ReceivedMessage> messages(std::uint32_t group) const { return groups_.messages(group); }
  // The group's request is over; its number may be given out again.
  void release(std::uint32_t group) { groups_.release(group); }
  void release_early(std::uint32_t early);

  std::size_t outstanding() const { return groups_.outstanding(); }
  // The receive of this slot, as post() named it, has nothing of its message yet.
  bool awaits(const ClearToSend& clear) const;
  // Posted receives of which a part, but not all, has arrived.
  std::size_t partial() const { return partial_; }

 private:
  struct Filling {
    bool started = false;
    bool bound = false;  // to an eager message, whole or arriving: nothing else may fill it
    std::uint64_t total = 0;
    std::uint64_t claimed = 0;   // by headers; never more than total, so payload can complete the slot only once
    std::uint64_t received = 0;  // of claimed
  };
  using Slots = ReceiveSlots<Filling>;
  using Slot = Slots::Slot;
  struct Early {
    bool used = false;
    bool arrived = false;
    bool matched = false;
    int tag = 0;
    std::uint32_t seq = 0;
    std::uint64_t bytes = 0;
    std::uint32_t slot = 0;
    MessageIdentity identity{};
  };
  static constexpr std::uint32_t kMaxEarly = 1024;

  Slot* find_slot(const ChunkHeader& header, std::uint32_t* index);
  Early* find_early(int tag, std::uint32_t seq);
  Placement place_early(const ChunkHeader& header);
  bool anyone_waits() const;
  void finish(std::uint32_t slot, std::uint64_t bytes);

  SharedSettings settings_;
  Slots slots_;
  ReceiveGroups groups_;
  std::vector<Early> early_;
  std::vector<std::uint32_t> late_matches_;  // early buffers
  std::vector<ClearToSend> clears_;
  std::vector<EarlyMatch> early_matches_;
  std::uint64_t early_bytes_ = 0;  // of early messages without a receive; what the window bounds
  std::size_t early_used_ = 0;     // their number
  std::size_t partial_ = 0;
};

}  // namespace clustar::transport::tcp
