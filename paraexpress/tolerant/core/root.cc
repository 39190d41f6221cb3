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

std::optional<std::string> Root::admit(Member from, const Note& note) {
  if (count_ == 0) {
    count_ = note.count;
    type_ = note.type;
  }
  if (note.count != count_ || note.type != type_) {
    return fmt::format("its bucket {} has {} elements of {}, that of others {} of {}; all ranks must be told the same",
                       bucket_, note.count, name_of(note.type), count_, name_of(type_));
  }
  if (note.round < offered_[from] || note.round > closing_.next()) {
    return fmt::format("it gives to round {} of bucket {} after round {}, where round {} is open", note.round, bucket_,
                       static_cast<std::int64_t>(offered_[from]) - 1, closing_.next());
  }
  offered_[from] = note.round + 1;
  return std::nullopt;
}

std::optional<std::string> Root::offered(Member from, const Note& note, TimePoint now) {
  if (auto wrong = admit(from, note)) return wrong;
  Offer offer{note.round, note.weight, nullptr, {}};
  if (note.weight == 0) {
    gather(from, std::move(offer), now);
    return std::nullopt;
  }
  const std::size_t bytes = elements() * element_bytes(type_);
  offer.block = wire_.take(bytes);
  if (offer.block == nullptr) return fmt::format("there is no memory for {} bytes of it", bytes);
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

std::optional<std::string> Root::own(const Note& note, Block block, TimePoint now) {
  if (auto wrong = admit(terms_.self, note)) return wrong;
  gather(terms_.self, {note.round, note.weight, std::move(block), {}}, now);
  return std::nullopt;
}

// What came late is dropped: its sender still has it.
void Root::gather(Member from, Offer offer, TimePoint now) {
  closing_.arrived(from, offer.round, offer.weight, now);
  if (offer.round == closing_.next()) gathered_[from] = std::move(offer);
}

tl::expected<std::optional<Root::Result>, std::string> Root::advance(TimePoint now) {
  if (count_ == 0 || !closing_.may_close(now)) return std::nullopt;
  const std::size_t bytes = elements() * element_bytes(type_);
  Block block = wire_.take(bytes + kMostLeftOut * kRangeBytes);
  if (block == nullptr) return tl::unexpected(fmt::format("there is no memory for a result of {} bytes", bytes));
  Result result = add_up(std::move(block));
  const std::size_t message = bytes + result.note.left_out * kRangeBytes;
  for (std::uint32_t i = 1; i < terms_.ranks; ++i) {
    const Member to = (terms_.self + i) % terms_.ranks;
    wire_.say(to, result.note);
    wire_.send(to, result.block, message, {NoteKind::kResult, bucket_, result.note.round});
  }
  closing_.close();
  std::ranges::fill(gathered_, Offer{});
  return result;
}

Root::Result Root::add_up(Block block) {
  Note note{NoteKind::kResult, type_, bucket_, closing_.next(), count_, 0, 0, closing_.contributors()};
  std::vector<Given> given;
  for (Member rank = 0; rank < terms_.ranks; ++rank) {
    if (!note.counted.test(rank)) continue;
    given.push_back({gathered_[rank].block.get(), gathered_[rank].weight, std::move(gathered_[rank].missing)});
    note.weight += gathered_[rank].weight;
  }
  const auto left_out =
      average_into(block.get(), given, elements(), type_, {terms_.ranks, terms_.quorum, terms_.scales}, kMostLeftOut);
  note.left_out = static_cast<std::uint32_t>(left_out.size());
  std::byte* at = block.get() + elements() * element_bytes(type_);
  for (const ElementRange& range : left_out) {
    encode_range(range, std::span<std::byte, kRangeBytes>(at, kRangeBytes));
    at += kRangeBytes;
  }
  return {note, std::move(block)};
}

}  // namespace clustar::paraexpress::tolerant
