#include "paraexpress/tolerant/core/party.h"

#include <algorithm>
#include <utility>

namespace clustar::paraexpress::tolerant {

Party::Party(const Terms& terms, Wire& wire) : terms_(terms), wire_(wire), seats_(terms.buckets) {}

Party::Seat& Party::seat(std::uint32_t bucket) {
  if (seats_[bucket] == nullptr) seats_[bucket] = std::make_unique<Seat>(terms_, wire_, bucket);
  return *seats_[bucket];
}

std::optional<Fault> Party::begin(std::uint32_t bucket, std::byte* elements, std::uint64_t count, DataType type,
                                  bool gives, TimePoint now) {
  Seat& one = seat(bucket);
  return one.giver.begin(elements, count, type, gives,
                         [&](const Note& note, Block block) { return one.root.own(note, std::move(block), now); });
}

std::optional<Fault> Party::heard(Member from, const Note& note, TimePoint now) {
  Seat& one = seat(note.bucket);
  return note.kind == NoteKind::kContribution ? one.root.offered(from, note, now) : one.giver.told(from, note);
}

std::optional<Fault> Party::came(Member from, const Ticket& ticket, std::span<const ElementRange> missing,
                                 TimePoint now) {
  Seat& one = seat(ticket.bucket);
  if (ticket.kind == NoteKind::kResult) return one.giver.came(from);
  one.root.came(from, missing, now);
  return std::nullopt;
}

void Party::sent(Member to, const Ticket& ticket, std::span<const ElementRange> missing) {
  if (ticket.kind == NoteKind::kContribution) seat(ticket.bucket).giver.sent(to, ticket.round, missing);
}

std::optional<Fault> Party::advance(TimePoint now) {
  for (const auto& one : seats_) {
    if (one == nullptr) continue;
    auto closed = one->root.advance(now);
    if (!closed) return std::move(closed.error());
    if (!*closed) continue;
    Root::Result& result = **closed;
    if (auto wrong = one->giver.own_result(result.counted_by, result.note, std::move(result.block))) return wrong;
  }
  return std::nullopt;
}

bool Party::should_compute() {
  bool late = false;
  std::uint32_t owed = 0;
  for (const auto& one : seats_) {
    if (one == nullptr) continue;
    late = late || one->giver.is_late();
    owed = std::max(owed, one->giver.owed());
  }
  return pace_.should_compute(late, owed);
}

std::optional<TimePoint> Party::next() const {
  std::optional<TimePoint> first;
  for (const auto& one : seats_) {
    const auto at = one == nullptr ? std::nullopt : one->root.look_again();
    if (at && (!first || *at < *first)) first = at;
  }
  return first;
}

}  // namespace clustar::paraexpress::tolerant
