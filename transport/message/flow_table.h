// The flows of one NIC: what was queued and sent of each, and what the NIC's policy says of them. Pure; the owner
// locks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "transport/api/send_policy.h"
#include "transport/base/time.h"

namespace clustar::transport {

// Where a flow stands among others: the smaller goes first, and by arrival where both are equal.
struct FlowPlace {
  std::uint64_t rank = 0;
  std::uint64_t tie = 0;  // 0, or the flow's virtual time: what it was served, divided by its share

  auto operator<=>(const FlowPlace&) const = default;
};

class FlowTable {
 public:
  using FlowId = std::uint32_t;
  // Of flows without messages so many are remembered, the latest, and as many coflows: what they attained counts when
  // they go on, and what they had beyond their share.
  static constexpr std::size_t kRemembered = 1024;

  explicit FlowTable(std::unique_ptr<SendPolicy> policy);

  // A message of `bytes` is queued.
  FlowId open(const FlowKey& key, const FlowTag& tag, std::uint64_t bytes, TimePoint now);
  // So much of its messages was sent. True: place() or held() is another now.
  bool sent(FlowId flow, std::uint64_t bytes, TimePoint now);
  // One of its messages is over; `unsent` bytes of it were not sent.
  void finish(FlowId flow, std::uint64_t unsent, TimePoint now);

  FlowPlace place(FlowId flow) const { return {entries_[flow].turn.rank, entries_[flow].tie}; }
  std::uint8_t level(FlowId flow) const { return entries_[flow].turn.level; }
  std::uint8_t push(FlowId flow) const { return entries_[flow].turn.push; }
  // Until when nothing of it may leave; nothing: it may.
  std::optional<TimePoint> held(FlowId flow) const;

  // When the first flow that is held may go; max(): none is held.
  TimePoint next_release() const;
  // One of those whose time has come, or whose turn the policy says is another, or of all because its version is;
  // asked again already. Call until there is none, then go on.
  std::optional<FlowId> changed(TimePoint now);
  // Which ranks may not leave now, and until when.
  SendPolicy::Gate gate(TimePoint now) { return orders_ ? policy_->gate(now) : SendPolicy::Gate{}; }

  bool orders() const { return orders_; }
  SendPolicy::RunAhead run_ahead(TimePoint now) const {
    return orders_ ? policy_->run_ahead(now) : SendPolicy::RunAhead::kNo;
  }
  // False: there is one flow, number 0, of all messages, which nobody asks about.
  bool hears() const { return hears_; }
  std::size_t size() const { return by_key_.size(); }

 private:
  static constexpr std::uint32_t kNone = 0xffffffff;

  struct Entry {
    Flow flow;
    std::uint32_t coflow = kNone;  // in coflows_; none where it is not identified
    std::uint32_t messages = 0;
    SendPolicy::Turn turn;
    std::uint64_t tie = 0;
    std::uint64_t last_tie = 0;                  // when it left level `last_level`
    std::uint64_t last_level = 0;                // Level::number; 0: none
    std::uint32_t older = kNone, newer = kNone;  // among those without messages
    TimePoint armed = TimePoint::max();          // of its earliest place in held_
  };
  struct Coflow {
    std::uint64_t id = 0;
    std::uint64_t sent = 0;
    std::uint32_t flows = 0;  // that refer to it
  };
  struct Hash {
    std::size_t operator()(const FlowKey& key) const;
  };
  struct Held {
    TimePoint until;
    FlowId flow;
    bool operator<(const Held& other) const { return until > other.until; }  // the heap's top is the earliest
  };
  struct Level {               // the flows of one rank that have a share, as long as there are any
    std::uint64_t number = 0;  // of all that there were
    std::uint64_t clock = 0;   // the latest tie that was served
    std::uint32_t active = 0;
  };

  FlowId find_or_make(const FlowKey& key, const FlowTag& tag);
  FlowId make(const FlowKey& key, const FlowTag& tag);
  void forget(FlowId flow);
  void link_idle(FlowId flow);
  void unlink_idle(FlowId flow);
  std::uint32_t refer_to_coflow(std::uint64_t coflow);
  void refresh(Entry& entry) const;
  bool ask(FlowId flow, TimePoint now);
  void set_turn(Entry& entry, const SendPolicy::Turn& turn);
  void enter_level(Entry& entry, std::uint64_t rank);
  void leave_level(Entry& entry);

  const std::unique_ptr<SendPolicy> policy_;
  const bool orders_;
  const bool hears_;
  std::vector<Entry> entries_;
  std::vector<FlowId> free_;
  std::unordered_map<FlowKey, FlowId, Hash> by_key_;
  std::vector<Coflow> coflows_;
  std::vector<std::uint32_t> free_coflows_;
  std::unordered_map<std::uint64_t, std::uint32_t> by_coflow_;
  std::unordered_map<std::uint64_t, Level> levels_;  // by rank
  std::uint64_t levels_made_ = 0;
  std::uint32_t oldest_idle_ = kNone, newest_idle_ = kNone;
  std::size_t idle_ = 0;
  std::vector<Held> held_;  // heap, with some that are not held any more
  std::uint64_t version_;
  bool asks_all_ = false;  // for the policy's version is another
  FlowId next_to_ask_ = 0;
  FlowId latest_ = kNone;  // that open() gave: the next message is likely to be of it
};

}  // namespace clustar::transport
