#include "transport/io/verbs/uc/landings.h"

#include <algorithm>
#include <utility>

namespace clustar::transport::io::verbs::uc {

std::uint32_t Landings::add(const Target& target) {
  const std::size_t length = target.bytes.size();
  if (length == 0 || length > std::size_t{1} << 30 || target.segment_bytes == 0 || target.slot == 0) return 0;
  const std::size_t segments = (length + target.segment_bytes - 1) / target.segment_bytes;
  if (segments > kMostSegments || by_key_.size() >= kMost || by_key_.contains({target.peer, target.slot})) return 0;
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  serial_ = (serial_ + 1) & (~std::uint32_t{0} >> kIndexBits);
  if (serial_ == 0) serial_ = 1;
  entry.id = serial_ << kIndexBits | index;
  entry.target = target;
  entry.grant = {};
  entry.told = 0;
  entry.tell_at = TimePoint::max();
  entry.left = static_cast<std::uint32_t>(segments);
  entry.returned.assign((segments + 63) / 64, 0);
  by_key_.emplace(Key{target.peer, target.slot}, index);
  return entry.id;
}

const Landings::Entry* Landings::entry(std::uint32_t id) const {
  const std::uint32_t index = index_of(id);
  return id != 0 && index < entries_.size() && entries_[index].id == id ? &entries_[index] : nullptr;
}

void Landings::plan(std::uint32_t index, TimePoint at) {
  if (entries_[index].tell_at == TimePoint::max()) planned_.push_back(index);
  entries_[index].tell_at = at;
}

void Landings::set_window(std::uint32_t id, std::uint32_t window) {
  if (Entry* found = entry(id)) found->target.window = window;
}

void Landings::bound(std::uint32_t id, std::uint32_t rkey, std::uint64_t address, TimePoint now) {
  Entry* found = entry(id);
  if (found == nullptr) return;
  const Target& target = found->target;
  found->grant = {target.slot,         id, rkey, address, static_cast<std::uint32_t>(target.bytes.size()),
                  target.segment_bytes};
  plan(index_of(id), now);
}

const Landings::Target* Landings::find(std::uint32_t id) const {
  const Entry* found = entry(id);
  return found != nullptr ? &found->target : nullptr;
}

void Landings::used(std::uint32_t id, PeerId peer) {
  Entry* found = entry(id);
  if (found == nullptr || found->target.peer != peer || found->tell_at == TimePoint::max()) return;
  found->tell_at = TimePoint::max();
  std::erase(planned_, index_of(id));
}

std::optional<std::span<const std::byte>> Landings::take(std::uint32_t id, PeerId peer, std::uint32_t segment,
                                                         std::uint32_t bytes) {
  Entry* found = entry(id);
  if (found == nullptr || found->target.peer != peer || found->grant.id == 0) return std::nullopt;
  const Target& target = found->target;
  if (segment >= found->grant.segments()) return std::nullopt;
  const std::size_t offset = std::size_t{segment} * target.segment_bytes;
  if (bytes > std::min<std::size_t>(target.segment_bytes, target.bytes.size() - offset)) return std::nullopt;
  std::uint64_t& word = found->returned[segment / 64];
  const std::uint64_t bit = std::uint64_t{1} << segment % 64;
  if ((word & bit) != 0) return std::nullopt;
  word |= bit;
  --found->left;
  return target.bytes.subspan(offset, bytes);
}

bool Landings::remove(std::uint32_t id) {
  Entry* found = entry(id);
  if (found == nullptr) return false;
  const std::uint32_t index = index_of(id);
  if (found->tell_at != TimePoint::max()) std::erase(planned_, index);
  found->tell_at = TimePoint::max();
  by_key_.erase({found->target.peer, found->target.slot});
  found->id = 0;
  free_.push_back(index);
  return found->told > 0 && found->left > 0;
}

void Landings::tell_again(PeerId peer, TimePoint now) {
  for (const auto& [key, index] : by_key_) {
    Entry& each = entries_[index];
    if (key.peer != peer || each.grant.id == 0) continue;
    each.told = 0;
    plan(index, now);
  }
}

std::optional<Landings::Due> Landings::poll(TimePoint now) {
  const auto due = std::ranges::find_if(planned_, [&](std::uint32_t index) { return entries_[index].tell_at <= now; });
  if (due == planned_.end()) return std::nullopt;
  Entry& found = entries_[*due];
  if (++found.told > kRepeats) {
    found.tell_at = TimePoint::max();
    planned_.erase(due);
  } else {
    found.tell_at = now + kRepeatAfter * (1 << (found.told - 1));
  }
  return Due{found.target.peer, found.grant};
}

TimePoint Landings::next_timeout() const {
  TimePoint next = TimePoint::max();
  for (const std::uint32_t index : planned_) next = std::min(next, entries_[index].tell_at);
  return next;
}

std::vector<std::uint32_t> Landings::of(PeerId peer) const {
  std::vector<std::uint32_t> ids;
  for (const auto& [key, index] : by_key_) {
    if (key.peer == peer) ids.push_back(entries_[index].id);
  }
  return ids;
}

}  // namespace clustar::transport::io::verbs::uc
