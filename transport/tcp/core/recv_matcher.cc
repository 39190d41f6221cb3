#include "transport/tcp/core/recv_matcher.h"

#include <algorithm>
#include <cassert>

namespace clustar::transport::tcp {
namespace {

constexpr std::uint32_t slot_id(std::uint32_t index, std::uint16_t generation) {
  return (static_cast<std::uint32_t>(generation) << 16) | index;
}

constexpr RecvMatcher::Placement protocol_error() { return {RecvMatcher::Placement::Kind::kProtocolError}; }

}  // namespace

std::optional<RecvMatcher::Posted> RecvMatcher::post(std::span<const Part> parts) {
  assert(!parts.empty() && parts.size() <= kMaxRecvParts);
  const auto group = groups_.open(parts.size());
  if (!group) return std::nullopt;
  clears_.clear();
  early_matches_.clear();
  for (std::uint32_t part = 0; part < parts.size(); ++part) {
    const std::uint32_t seq = slots_.next_seq(parts[part].tag);
    const std::uint32_t index = slots_.take(parts[part].tag, seq, parts[part].length, *group, part);
    Slot& slot = slots_[index];
    clears_.push_back({parts[part].tag, seq, slot_id(index, slot.generation), parts[part].length});
    Early* early = find_early(parts[part].tag, seq);
    if (early == nullptr) continue;
    slot.bound = true;
    groups_.identify(*group, part, early->identity);
    // The sender takes this message off its window when it hears of the receive, so it leaves ours now as well, even
    // if its last bytes are still to come.
    early_bytes_ -= early->bytes;
    --early_used_;
    const auto early_index = static_cast<std::uint32_t>(early - early_.data());
    if (!early->arrived) {
      early->matched = true;
      early->slot = index;
      continue;
    }
    const std::uint64_t bytes = std::min(early->bytes, slot.length);
    early_matches_.push_back({part, early_index, bytes});
    finish(index, bytes);
  }
  return Posted{*group, &clears_, &early_matches_};
}

RecvMatcher::Slot* RecvMatcher::find_slot(const ChunkHeader& header, std::uint32_t* index) {
  if (header.has_slot) {
    *index = header.slot & 0xffff;
    if (*index >= kMaxSlots) return nullptr;
    Slot& slot = slots_[*index];
    const bool same = slot.used && slot.generation == header.slot >> 16 && slot.tag == header.tag &&
                      slot.seq == header.seq && !slot.bound;
    return same ? &slot : nullptr;
  }
  const auto waits = [](const Slot& slot) { return !slot.started && !slot.bound; };
  const auto found = slots_.find(header.tag, header.seq, waits);
  if (!found) return nullptr;
  *index = *found;
  return &slots_[*found];
}

bool RecvMatcher::awaits(const ClearToSend& clear) const {
  const Slot& slot = slots_[clear.slot & 0xffff];
  return slot.used && slot.generation == clear.slot >> 16 && !slot.bound && !slot.started;
}

RecvMatcher::Early* RecvMatcher::find_early(int tag, std::uint32_t seq) {
  if (early_used_ == 0) return nullptr;
  for (Early& early : early_) {
    if (early.used && !early.matched && early.tag == tag && early.seq == seq) return &early;
  }
  return nullptr;
}

RecvMatcher::Placement RecvMatcher::on_header(const ChunkHeader& header) {
  std::uint32_t index = 0;
  Slot* slot = find_slot(header, &index);
  if (slot == nullptr) return header.has_slot ? protocol_error() : place_early(header);
  if (header.has_slot) {
    const bool fits = header.total <= slot->length && (!slot->started || slot->total == header.total) &&
                      header.length <= header.total - slot->claimed && (header.total > 0 || !slot->started);
    if (!fits) return protocol_error();
  } else {
    slot->bound = true;
  }
  if (!slot->started) ++partial_;
  slot->started = true;
  slot->total = header.total;
  slot->claimed += header.length;
  if (header.identity.known) groups_.identify(slot->group, slot->part, header.identity);
  Placement placement{Placement::Kind::kPart};
  placement.group = slot->group;
  placement.part = slot->part;
  placement.slot = index;
  placement.offset = header.offset;
  placement.keep = std::min<std::uint64_t>(header.length, slot->length);
  return placement;
}

RecvMatcher::Placement RecvMatcher::place_early(const ChunkHeader& header) {
  const bool allowed = header.total <= settings_.eager_bytes && early_bytes_ + header.total <= settings_.window_bytes &&
                       early_used_ < kMaxEarly && slots_.is_future(header.tag, header.seq) &&
                       find_early(header.tag, header.seq) == nullptr;
  if (!allowed) return protocol_error();
  if (!anyone_waits()) return {Placement::Kind::kWait};
  auto free = std::find_if(early_.begin(), early_.end(), [](const Early& early) { return !early.used; });
  if (free == early_.end()) free = early_.emplace(early_.end());
  *free = Early{true, false, false, header.tag, header.seq, header.total, 0, header.identity};
  ++early_used_;
  early_bytes_ += header.total;
  Placement placement{Placement::Kind::kEarly};
  placement.early = static_cast<std::uint32_t>(free - early_.begin());
  placement.keep = header.length;
  return placement;
}

// A receive that is bound has its message, or is getting it from another socket.
bool RecvMatcher::anyone_waits() const {
  return std::ranges::any_of(slots_.used(), [&](std::uint32_t index) { return !slots_[index].bound; });
}

void RecvMatcher::on_payload(const Placement& placement, const ChunkHeader& header) {
  if (placement.kind == Placement::Kind::kEarly) {
    Early& early = early_[placement.early];
    early.arrived = true;
    if (early.matched) late_matches_.push_back(placement.early);
    return;
  }
  Slot& slot = slots_[placement.slot];
  slot.received += header.length;
  if (slot.received == slot.total) finish(placement.slot, std::min(slot.total, slot.length));
}

std::optional<RecvMatcher::EarlyMatch> RecvMatcher::take_late_match(std::uint32_t* group) {
  if (late_matches_.empty()) return std::nullopt;
  const std::uint32_t index = late_matches_.back();
  late_matches_.pop_back();
  const Early& early = early_[index];
  const Slot& slot = slots_[early.slot];
  *group = slot.group;
  const EarlyMatch match{slot.part, index, std::min(early.bytes, slot.length)};
  finish(early.slot, match.bytes);
  return match;
}

void RecvMatcher::finish(std::uint32_t index, std::uint64_t bytes) {
  Slot& slot = slots_[index];
  if (slot.started) --partial_;
  groups_.finish(slot.group, slot.part, bytes);
  slots_.release(index);
}

void RecvMatcher::release_early(std::uint32_t index) { early_[index].used = false; }

}  // namespace clustar::transport::tcp
