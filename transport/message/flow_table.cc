#include "transport/message/flow_table.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace clustar::transport {
namespace {

constexpr unsigned kTieBits = 16;  // of a virtual time, behind the point

// SplitMix64's finaliser (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

}  // namespace

std::size_t FlowTable::Hash::operator()(const FlowKey& key) const {
  const std::uint64_t kind =
      static_cast<std::uint64_t>(key.urgency) << 9 | std::uint64_t{key.small} << 8 | key.traffic_class;
  const std::uint64_t rest = std::uint64_t{key.peer} << 32 ^ std::uint64_t{key.job} << 11 ^ kind;
  return static_cast<std::size_t>(mix(key.coflow + mix(rest)));
}

FlowTable::FlowTable(std::unique_ptr<SendPolicy> policy)
    : policy_(std::move(policy)), orders_(policy_->orders()), hears_(policy_->hears()), version_(policy_->version()) {
  assert(hears_ || !orders_);
  if (!hears_) entries_.emplace_back();
}

FlowTable::FlowId FlowTable::open(const FlowKey& key, const FlowTag& tag, std::uint64_t bytes, TimePoint now) {
  if (!hears_) return 0;
  const FlowId id = find_or_make(key, tag);
  Entry& entry = entries_[id];
  // It may have messages that have left and are not over; the time in which nothing waits is no claim.
  if (entry.flow.queued == 0 && entry.turn.share > 0) entry.tie = std::max(entry.tie, levels_[entry.turn.rank].clock);
  entry.flow.queued += bytes;
  refresh(entry);
  // Each says the same, or nothing.
  entry.flow.coflow_bytes = std::max(entry.flow.coflow_bytes, tag.bytes);
  const bool was_idle = entry.messages++ == 0;
  policy_->on_queued(entry.flow, bytes, now);
  if (was_idle) ask(id, now);
  return id;
}

FlowTable::FlowId FlowTable::find_or_make(const FlowKey& key, const FlowTag& tag) {
  if (latest_ == kNone || entries_[latest_].flow.key != key) {
    const auto [found, made] = by_key_.try_emplace(key, kNone);
    if (made) return latest_ = found->second = make(key, tag);
    latest_ = found->second;
  }
  if (entries_[latest_].messages == 0) unlink_idle(latest_);
  return latest_;
}

FlowTable::FlowId FlowTable::make(const FlowKey& key, const FlowTag& tag) {
  FlowId id = static_cast<FlowId>(entries_.size());
  if (free_.empty()) {
    entries_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Entry& entry = entries_[id];
  entry = Entry{};
  entry.flow.key = key;
  entry.flow.id = id;
  entry.flow.identity = tag.identity;
  entry.flow.urgency = tag.urgency;
  if (key.coflow != 0) entry.coflow = refer_to_coflow(key.coflow);
  return id;
}

std::uint32_t FlowTable::refer_to_coflow(std::uint64_t coflow) {
  const auto [found, made] = by_coflow_.try_emplace(coflow, kNone);
  if (made) {
    if (free_coflows_.empty()) {
      found->second = static_cast<std::uint32_t>(coflows_.size());
      coflows_.emplace_back();
    } else {
      found->second = free_coflows_.back();
      free_coflows_.pop_back();
    }
    coflows_[found->second] = {coflow, 0, 0};
  }
  ++coflows_[found->second].flows;
  return found->second;
}

bool FlowTable::sent(FlowId id, std::uint64_t bytes, TimePoint now) {
  if (!hears_) return false;
  Entry& entry = entries_[id];
  assert(entry.messages > 0 && entry.flow.queued >= bytes);
  entry.flow.queued -= bytes;
  entry.flow.sent += bytes;
  if (entry.coflow != kNone) coflows_[entry.coflow].sent += bytes;
  refresh(entry);
  if (entry.turn.share > 0) {
    Level& level = levels_[entry.turn.rank];
    level.clock = std::max(level.clock, entry.tie);
    entry.tie += (bytes << kTieBits) / entry.turn.share;
  }
  policy_->on_sent(entry.flow, bytes, now);
  return ask(id, now) || entry.turn.share > 0;
}

void FlowTable::finish(FlowId id, std::uint64_t unsent, TimePoint now) {
  if (!hears_) return;
  Entry& entry = entries_[id];
  assert(entry.messages > 0 && entry.flow.queued >= unsent);
  entry.flow.queued -= unsent;
  policy_->on_finished(entry.flow, unsent, now);
  if (--entry.messages > 0) return;
  leave_level(entry);
  entry.turn = {};
  link_idle(id);
  if (idle_ > kRemembered) forget(oldest_idle_);
}

std::optional<TimePoint> FlowTable::held(FlowId id) const {
  const TimePoint until = entries_[id].turn.not_before;
  return until == TimePoint::min() ? std::nullopt : std::optional(until);
}

// What its sisters to other peers sent counts, too.
void FlowTable::refresh(Entry& entry) const {
  entry.flow.coflow_sent = entry.coflow == kNone ? entry.flow.sent : coflows_[entry.coflow].sent;
}

// True: what place() or held() says is another.
bool FlowTable::ask(FlowId id, TimePoint now) {
  if (!orders_) return false;
  Entry& entry = entries_[id];
  refresh(entry);
  SendPolicy::Turn turn = policy_->turn(entry.flow, now);
  if (turn.not_before <= now) turn.not_before = TimePoint::min();
  const bool another = turn != entry.turn;
  if (another) set_turn(entry, turn);
  if (turn.not_before != TimePoint::min() && turn.not_before < entry.armed) {
    entry.armed = turn.not_before;
    held_.push_back({turn.not_before, id});
    std::push_heap(held_.begin(), held_.end());
  }
  return another;
}

void FlowTable::set_turn(Entry& entry, const SendPolicy::Turn& turn) {
  const bool moves = turn.rank != entry.turn.rank || (turn.share > 0) != (entry.turn.share > 0);
  if (moves) leave_level(entry);
  if (turn.share > 0 && moves) enter_level(entry, turn.rank);
  entry.turn = turn;
}

// Start-time fair queueing (Goyal, Vin, Cheng, 1996): a flow that comes to a rank has had as much as the others there,
// for what it did not use before is no claim; or more, if it was there and has had more than its share. That is
// forgotten when the rank had nobody meanwhile, and with the flow (kRemembered).
void FlowTable::enter_level(Entry& entry, std::uint64_t rank) {
  Level& level = levels_[rank];
  if (level.active++ == 0) level = {++levels_made_, 1, 1};
  entry.tie = entry.last_level == level.number ? std::max(level.clock, entry.last_tie) : level.clock;
}

void FlowTable::leave_level(Entry& entry) {
  if (entry.turn.share == 0) return;
  const auto found = levels_.find(entry.turn.rank);
  entry.last_tie = std::exchange(entry.tie, 0);
  entry.last_level = found->second.number;
  if (--found->second.active == 0) levels_.erase(found);
}

TimePoint FlowTable::next_release() const { return held_.empty() ? TimePoint::max() : held_.front().until; }

std::optional<FlowTable::FlowId> FlowTable::changed(TimePoint now) {
  if (!hears_) return std::nullopt;
  if (const std::uint64_t version = policy_->version(); version != version_) {
    version_ = version;
    next_to_ask_ = 0;
    asks_all_ = true;
  }
  while (asks_all_) {
    if (next_to_ask_ == entries_.size()) {
      asks_all_ = false;
      break;
    }
    const FlowId id = next_to_ask_++;
    if (entries_[id].messages > 0 && ask(id, now)) return id;
  }
  while (const auto id = policy_->changed(now)) {
    if (*id < entries_.size() && entries_[*id].messages > 0 && ask(*id, now)) return id;
  }
  while (!held_.empty() && held_.front().until <= now) {
    const Held due = held_.front();
    std::pop_heap(held_.begin(), held_.end());
    held_.pop_back();
    Entry& entry = entries_[due.flow];
    if (entry.armed != due.until) continue;  // an earlier one was pushed since, or it is another flow
    entry.armed = TimePoint::max();
    if (entry.messages == 0 || entry.turn.not_before == TimePoint::min()) continue;
    if (ask(due.flow, now)) return due.flow;
  }
  return std::nullopt;
}

void FlowTable::link_idle(FlowId id) {
  Entry& entry = entries_[id];
  entry.older = newest_idle_;
  entry.newer = kNone;
  (newest_idle_ == kNone ? oldest_idle_ : entries_[newest_idle_].newer) = id;
  newest_idle_ = id;
  ++idle_;
}

void FlowTable::unlink_idle(FlowId id) {
  const Entry& entry = entries_[id];
  (entry.older == kNone ? oldest_idle_ : entries_[entry.older].newer) = entry.newer;
  (entry.newer == kNone ? newest_idle_ : entries_[entry.newer].older) = entry.older;
  --idle_;
}

void FlowTable::forget(FlowId id) {
  unlink_idle(id);
  if (latest_ == id) latest_ = kNone;
  Entry& entry = entries_[id];
  by_key_.erase(entry.flow.key);
  if (entry.coflow != kNone && --coflows_[entry.coflow].flows == 0) {
    by_coflow_.erase(coflows_[entry.coflow].id);
    free_coflows_.push_back(entry.coflow);
  }
  free_.push_back(id);
}

}  // namespace clustar::transport
