// Receiver's half of the matching protocol: gives each posted receive a slot and a descriptor, counts the stripes that
// arrive in it by any queue pair in any order, matches eager messages by (tag, number), and says when a group of
// receives is complete. It never touches payload. Pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "transport/message/receive_groups.h"
#include "transport/message/receive_slots.h"
#include "transport/verbs/core/wire.h"

namespace clustar::transport::verbs {

class RecvMatcher {
 public:
  struct Part {
    int tag = 0;
    std::uint64_t length = 0;
  };
  struct Wanted {  // a receive of which the sender must hear
    std::uint32_t part = 0;
    std::uint32_t number = 0;
    std::uint32_t seq = 0;
    std::uint32_t slot = 0;
  };
  // An eager message for a receive: copy `bytes` from `place` to the part's memory, then free_place(place).
  struct EagerMatch {
    std::uint32_t group = 0;
    std::uint32_t part = 0;
    std::uint32_t place = 0;
    std::uint64_t bytes = 0;
  };
  struct Posted {
    std::uint32_t group = 0;
    std::vector<Wanted>* wanted = nullptr;     // numbers in a row; valid until the next post()
    std::vector<EagerMatch>* early = nullptr;  // valid until the next post()
  };
  // 1 .. kMaxRecvParts parts. nullopt: kMaxRequests are outstanding, or the sender has not read enough of the ring.
  std::optional<Posted> post(std::span<const Part> parts);

  // The immediate of a stripe; `header` is what stands in the slot's place, where it says that it has one. False: no
  // correct sender does that.
  bool on_stripe(const Immediate& immediate, const std::optional<MessageHeader>& header);
  enum class Fate : std::uint8_t { kMatched, kKept, kProtocolError };
  struct Arrival {
    Fate fate = Fate::kProtocolError;
    EagerMatch match{};  // of kMatched
  };
  // kKept: it stays in its place until its receive is posted.
  Arrival on_eager(std::uint32_t place, const std::optional<MessageHeader>& header);
  void free_place(std::uint32_t place);
  void on_consumed(std::uint32_t number24);

  bool complete(std::uint32_t group) const { return groups_.complete(group); }
  std::span<const std::size_t> sizes(std::uint32_t group) const { return groups_.sizes(group); }
  std::span<const ReceivedMessage> messages(std::uint32_t group) const { return groups_.messages(group); }
  // The group's request is over; its number may be given out again.
  void release(std::uint32_t group) { groups_.release(group); }

  std::size_t outstanding() const { return groups_.outstanding(); }
  // Descriptors that the sender may not have read: [consumed(), posted()).
  std::uint32_t consumed() const { return consumed_; }
  std::uint32_t posted() const { return posted_; }
  // Eager messages taken out of their places, in the order in which places are given out.
  std::uint32_t freed() const { return freed_; }

 private:
  struct Stripes {
    std::uint32_t number = 0;   // of the receive's descriptor
    std::uint64_t arrived = 0;  // bit per stripe
    std::uint32_t stripes = 0;  // 0: not known yet
    std::uint64_t total = 0;
  };
  using Slots = ReceiveSlots<Stripes>;
  using Slot = Slots::Slot;
  enum class PlaceState : std::uint8_t { kEmpty, kHeld, kMatched, kFreed };
  struct Place {
    PlaceState state = PlaceState::kEmpty;
    MessageHeader header{};
  };

  bool learn(Slot& slot, const MessageHeader& header);
  void note_consumed(std::uint32_t number);
  std::optional<std::uint32_t> find_early(int tag, std::uint32_t seq) const;
  void finish(std::uint32_t slot, std::uint64_t bytes);

  Slots slots_;
  ReceiveGroups groups_;
  std::array<Place, kEagerSlots> places_{};
  std::vector<Wanted> wanted_;
  std::vector<EagerMatch> early_;
  std::size_t held_ = 0;  // places that wait for their receive
  std::uint32_t posted_ = 0;
  std::uint32_t consumed_ = 0;
  std::uint32_t freed_ = 0;
};

}  // namespace clustar::transport::verbs
