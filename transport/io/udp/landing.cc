#include "transport/io/udp/landing.h"

#include <algorithm>

namespace clustar::transport::io::udp {

void LandingTarget::open(std::span<std::byte> bytes, std::size_t segment_bytes) {
  bytes_ = bytes;
  segment_bytes_ = segment_bytes;
  segments_ = (bytes.size() + segment_bytes - 1) / segment_bytes;
  delivered_.assign((segments_ + 63) / 64, 0);
}

std::span<std::byte> LandingTarget::place(std::size_t segment) const {
  const std::size_t at = segment * segment_bytes_;
  return bytes_.subspan(at, std::min(segment_bytes_, bytes_.size() - at));
}

std::size_t LandingTarget::missing_from(std::size_t first, std::size_t most) const {
  std::size_t count = 0;
  while (count < most && first + count < segments_ && !delivered(first + count)) ++count;
  return count;
}

void LandingTarget::deliver(std::size_t segment) {
  if (segment < segments_) delivered_[segment / 64] |= std::uint64_t{1} << segment % 64;
}

Landing LandingTable::add(PeerId peer, std::uint32_t slot, std::span<std::byte> target, std::size_t segment_bytes) {
  if (target.empty() || segment_bytes == 0 || by_key_.size() >= kMost) return {};
  const std::uint64_t key = key_of(peer, slot);
  if (by_key_.contains(key)) return {};
  if (free_.empty()) {
    free_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Entry& entry = entries_[index];
  entry.key = key;
  ++entry.generation;
  entry.target.open(target, segment_bytes);
  by_key_.emplace(key, index);
  return {std::uint64_t{entry.generation} << 32 | index};
}

void LandingTable::close(std::uint32_t index) {
  by_key_.erase(entries_[index].key);
  ++entries_[index].generation;
  entries_[index].target.open({}, 1);
  free_.push_back(index);
}

void LandingTable::cancel(Landing landing) {
  const auto index = static_cast<std::uint32_t>(landing.id);
  if (index >= entries_.size() || entries_[index].generation != landing.id >> 32) return;
  if (entries_[index].generation % 2 == 1) close(index);
}

void LandingTable::cancel(PeerId peer, std::uint32_t slot) {
  const auto found = by_key_.find(key_of(peer, slot));
  if (found != by_key_.end()) close(found->second);
}

void LandingTable::forget(PeerId peer) {
  for (std::uint32_t index = 0; index < entries_.size(); ++index) {
    const Entry& entry = entries_[index];
    if (entry.generation % 2 == 1 && entry.key >> 32 == peer) close(index);
  }
}

LandingTarget* LandingTable::find(PeerId peer, std::uint32_t slot) {
  const auto found = by_key_.find(key_of(peer, slot));
  return found != by_key_.end() ? &entries_[found->second].target : nullptr;
}

}  // namespace clustar::transport::io::udp
