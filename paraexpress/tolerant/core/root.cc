#include "paraexpress/tolerant/core/root.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace clustar::paraexpress::tolerant {

Root::Root(const Terms& terms, Wire& wire, std::uint32_t bucket)
    : terms_(terms),
      wire_(wire),
      bucket_(bucket),
      closing_(terms),
      offered_(terms.ranks),
      on_their_way_(terms.ranks),
      gathered_(terms.ranks) {}

std::optional<Fault> Root::admit(Member from, const Note& note) {
  if (count_ == 0) {
    count_ = note.count;
    type_ = note.type;
    counted_by_ = from;
  }
  if (note.count != count_ || note.type != type_) {
    return Fault{from, ErrorCode::kInvalidUsage,
                 fmt::format("bucket {} has {} elements of {} on rank {}, {} of {} on rank {}; all ranks must be told "
                             "the same",
                             bucket_, note.count, name_of(note.type), from, count_, name_of(type_), counted_by_)};
  }
  if (note.round < offered_[from] || note.round > closing_.next()) {
    return Fault{from, ErrorCode::kRemote,
                 fmt::format("it gives to round {} of bucket {}; allowed: {} to {}", note.round, bucket_,
                             offered_[from], closing_.next())};
  }
  offered_[from] = note.round + 1;
  return std::nullopt;
}

std::optional<Fault> Root::offered(Member from, const Note& note, TimePoint now) {
  if (auto wrong = admit(from, note)) return wrong;
  Offer offer{note.round, note.weight, note.fresh, nullptr, {}};
  if (note.weight == 0) {
    gather(from, std::move(offer), now);
    return std::nullopt;
  }
  const std::size_t bytes = elements() * element_bytes(type_);
  offer.block = wire_.take(bytes);
  if (offer.block == nullptr) return no_memory(terms_.self, bytes);
  wire_.receive(from, offer.block, bytes, {NoteKind::kContribution, bucket_, note.round});
  on_their_way_[from].push_back(std::move(offer));
  return std::nullopt;
}

void Root::came(Member from, std::span<const ElementRange> missing, TimePoint now) {
  Offer offer = std::move(on_their_way_[from].front());
  on_their_way_[from].pop_front();
  const std::size_t element = element_bytes(type_);
  offer.missing = elements_of(missing, element, elements());
  // Of some only a part of their bytes is lost.
  for (const ElementRange& range : offer.missing) {
    std::memset(offer.block.get() + range.begin * element, 0, range.size() * element);
  }
  gather(from, std::move(offer), now);
}

std::optional<Fault> Root::own(const Note& note, Block block, TimePoint now) {
  if (auto wrong = admit(terms_.self, note)) return wrong;
  gather(terms_.self, {note.round, note.weight, note.fresh, std::move(block), {}}, now);
  return std::nullopt;
}

// What came late is dropped: its sender still has it.
void Root::gather(Member from, Offer offer, TimePoint now) {
  closing_.arrived(from, offer.round, offer.weight, offer.fresh, now);
  if (offer.round == closing_.next()) gathered_[from] = std::move(offer);
}

tl::expected<std::optional<Root::Result>, Fault> Root::advance(TimePoint now) {
  if (count_ == 0 || !closing_.may_close(now)) return std::nullopt;
  auto result = add_up();
  if (!result) return tl::unexpected(std::move(result.error()));
  const std::size_t message = elements() * element_bytes(type_) + result->note.left_out * kRangeBytes;
  for (std::uint32_t i = 1; i < terms_.ranks; ++i) {
    const Member to = (terms_.self + i) % terms_.ranks;
    wire_.say(to, result->note);
    wire_.send(to, result->block, message, {NoteKind::kResult, bucket_, result->note.round});
  }
  closing_.close();
  std::ranges::fill(gathered_, Offer{});
  return std::move(*result);
}

tl::expected<Root::Result, Fault> Root::add_up() {
  Note note;
  note.kind = NoteKind::kResult;
  note.type = type_;
  note.bucket = bucket_;
  note.round = closing_.next();
  note.count = count_;
  note.counted = closing_.contributors();
  std::vector<Given> given;
  for (Member rank = 0; rank < terms_.ranks; ++rank) {
    if (!note.counted.test(rank)) continue;
    given.push_back({gathered_[rank].block.get(), gathered_[rank].weight, std::move(gathered_[rank].missing)});
    note.weight += gathered_[rank].weight;
  }
  const AverageTerms terms{terms_.ranks, terms_.quorum, terms_.scales};
  const auto without = left_out(given, elements(), terms);
  note.left_out = static_cast<std::uint32_t>(without.size());
  const std::size_t bytes = elements() * element_bytes(type_), all = bytes + without.size() * kRangeBytes;
  Block block = wire_.take(all);
  if (block == nullptr) return tl::unexpected(no_memory(terms_.self, all));
  average_into(block.get(), given, elements(), type_, terms);
  std::byte* at = block.get() + bytes;
  for (const ElementRange& range : without) {
    encode_range(range, std::span<std::byte, kRangeBytes>(at, kRangeBytes));
    at += kRangeBytes;
  }
  return Result{note, std::move(block), counted_by_};
}

}  // namespace clustar::paraexpress::tolerant
