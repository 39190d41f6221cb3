#include "transport/verbs/core/recv_matcher.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace clustar::transport::verbs {

std::optional<RecvMatcher::Posted> RecvMatcher::post(std::span<const Part> parts) {
  assert(!parts.empty() && parts.size() <= kMaxRecvParts);
  if (posted_ - consumed_ + parts.size() > kRing) return std::nullopt;
  const auto group = groups_.open(parts.size());
  if (!group) return std::nullopt;
  wanted_.clear();
  early_.clear();
  for (std::uint32_t part = 0; part < parts.size(); ++part) {
    const std::uint32_t seq = slots_.next_seq(parts[part].tag);
    if (const auto place = find_early(parts[part].tag, seq)) {
      const MessageHeader& header = places_[*place].header;
      places_[*place].state = PlaceState::kMatched;
      --held_;
      const std::uint64_t bytes = std::min(header.total, parts[part].length);
      groups_.identify(*group, part, header.identity);
      groups_.finish(*group, part, bytes);
      early_.push_back({*group, part, *place, bytes});
      continue;
    }
    const std::uint32_t index = slots_.take(parts[part].tag, seq, parts[part].length, *group, part);
    Slot& slot = slots_[index];
    slot.number = posted_++;
    wanted_.push_back({part, slot.number, seq, make_slot(index, slot.generation)});
  }
  return Posted{*group, &wanted_, &early_};
}

bool RecvMatcher::on_stripe(const Immediate& immediate, const std::optional<MessageHeader>& header) {
  const std::uint32_t index = slot_index(immediate.slot);
  if (index >= kMaxSlots) return false;
  Slot& slot = slots_[index];
  const std::uint64_t bit = std::uint64_t{1} << immediate.stripe;
  // The immediate has room for the lower half of the generation.
  if (!slot.used || (slot.generation & 0xff) != immediate.slot >> 16 || (slot.arrived & bit) != 0) return false;
  slot.arrived |= bit;
  if (immediate.stripe == 0) {
    if (immediate.has_header) {
      if (!header || !learn(slot, *header)) return false;
    } else {
      slot.stripes = 1;
      slot.total = slot.length;
    }
  }
  if (slot.stripes == 0) return true;
  const std::uint64_t all = slot.stripes == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << slot.stripes) - 1;
  if ((slot.arrived & ~all) != 0) return false;
  if (slot.arrived != all) return true;
  note_consumed(slot.number + 1);
  finish(index, slot.total);
  return true;
}

bool RecvMatcher::learn(Slot& slot, const MessageHeader& header) {
  const auto index = slots_.index_of(slot);
  if (header.slot != make_slot(index, slot.generation) || header.tag != slot.tag || header.seq != slot.seq ||
      header.total > slot.length) {
    return false;
  }
  slot.stripes = header.stripes;
  slot.total = header.total;
  groups_.identify(slot.group, slot.part, header.identity);
  note_consumed(header.consumed);
  return true;
}

RecvMatcher::Arrival RecvMatcher::on_eager(std::uint32_t place, const std::optional<MessageHeader>& header) {
  if (place >= kEagerSlots || !header || places_[place].state != PlaceState::kEmpty) return {};
  note_consumed(header->consumed);
  Place& taken = places_[place];
  taken.header = *header;
  if (slots_.is_future(header->tag, header->seq)) {
    if (find_early(header->tag, header->seq)) return {};
    taken.state = PlaceState::kHeld;
    ++held_;
    return {Fate::kKept, {}};
  }
  const auto found = slots_.find(header->tag, header->seq, [](const Slot& slot) { return slot.arrived == 0; });
  if (!found) return {};
  const Slot slot = slots_[*found];
  taken.state = PlaceState::kMatched;
  const std::uint64_t bytes = std::min(header->total, slot.length);
  groups_.identify(slot.group, slot.part, header->identity);
  finish(*found, bytes);
  return {Fate::kMatched, {slot.group, slot.part, place, bytes}};
}

void RecvMatcher::free_place(std::uint32_t place) {
  assert(places_[place].state == PlaceState::kMatched);
  places_[place].state = PlaceState::kFreed;
  while (places_[freed_ % kEagerSlots].state == PlaceState::kFreed) {
    places_[freed_ % kEagerSlots].state = PlaceState::kEmpty;
    ++freed_;
  }
}

void RecvMatcher::on_consumed(std::uint32_t number24) {
  note_consumed(consumed_ + ((number24 - consumed_) & 0xffffff));
}

// What comes by several queue pairs may say less than was known.
void RecvMatcher::note_consumed(std::uint32_t number) {
  if (number - consumed_ <= posted_ - consumed_) consumed_ = number;
}

std::optional<std::uint32_t> RecvMatcher::find_early(int tag, std::uint32_t seq) const {
  if (held_ == 0) return std::nullopt;
  for (std::uint32_t i = 0; i < kEagerSlots; ++i) {
    const Place& place = places_[i];
    if (place.state == PlaceState::kHeld && place.header.tag == tag && place.header.seq == seq) return i;
  }
  return std::nullopt;
}

void RecvMatcher::finish(std::uint32_t index, std::uint64_t bytes) {
  Slot& slot = slots_[index];
  groups_.finish(slot.group, slot.part, bytes);
  slots_.release(index);
}

}  // namespace clustar::transport::verbs
