#include "paraexpress/tolerant/core/note.h"

#include "transport/base/bytes.h"

namespace clustar::paraexpress::tolerant {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kCounted = 32;

}  // namespace

void encode_note(const Note& note, std::span<std::byte, kNoteBytes> out) {
  WireWriter<kNoteBytes> writer(out);
  writer.store<0>(kVersion);
  writer.store<1>(static_cast<std::uint8_t>(note.kind));
  writer.store<2>(static_cast<std::uint8_t>(note.type));
  writer.store<3>(static_cast<std::uint8_t>(note.fresh ? 1 : 0));
  writer.store<4>(note.bucket);
  writer.store<8>(note.round);
  writer.store<16>(note.count);
  writer.store<24>(note.weight);
  writer.store<28>(note.left_out);
  for (std::size_t i = 0; i < kMostGroup / 8; ++i) {
    unsigned byte = 0;
    for (std::size_t bit = 0; bit < 8; ++bit) byte |= static_cast<unsigned>(note.counted[i * 8 + bit]) << bit;
    out[kCounted + i] = static_cast<std::byte>(byte);
  }
}

std::optional<Note> parse_note(std::span<const std::byte> message, const Terms& terms) {
  if (message.size() != kNoteBytes) return std::nullopt;
  const WireReader<kNoteBytes> reader(message.first<kNoteBytes>());
  const auto kind = reader.load<std::uint8_t, 1>();
  const auto type = static_cast<DataType>(reader.load<std::uint8_t, 2>());
  if (reader.load<std::uint8_t, 0>() != kVersion || kind > static_cast<std::uint8_t>(NoteKind::kResult) ||
      (type != DataType::kFloat32 && type != DataType::kFloat64) || reader.load<std::uint8_t, 3>() > 1) {
    return std::nullopt;
  }
  Note note;
  note.kind = static_cast<NoteKind>(kind);
  note.type = type;
  note.bucket = reader.load<std::uint32_t, 4>();
  note.round = reader.load<std::uint64_t, 8>();
  note.count = reader.load<std::uint64_t, 16>();
  note.weight = reader.load<std::uint32_t, 24>();
  note.left_out = reader.load<std::uint32_t, 28>();
  note.fresh = reader.load<std::uint8_t, 3>() == 1;
  for (std::size_t i = 0; i < kMostGroup; ++i) {
    note.counted[i] = (static_cast<unsigned>(message[kCounted + i / 8]) >> (i % 8) & 1) != 0;
  }
  const bool sense = note.bucket < terms.buckets && note.count >= 1 && note.count <= kMostElements &&
                     note.round < std::uint64_t{1} << 62 && note.weight <= kMostWeight &&
                     (note.counted >> terms.ranks).none();
  const bool result = note.kind == NoteKind::kResult;
  const bool fits = result ? note.left_out <= note.count && !note.fresh
                           : note.left_out == 0 && note.counted.none() && note.fresh <= (note.weight > 0);
  return sense && fits ? std::optional(note) : std::nullopt;
}

void encode_range(const ElementRange& range, std::span<std::byte, kRangeBytes> out) {
  WireWriter<kRangeBytes> writer(out);
  writer.store<0>(range.begin);
  writer.store<8>(range.end);
}

ElementRange parse_range(std::span<const std::byte, kRangeBytes> bytes) {
  const WireReader<kRangeBytes> reader(bytes);
  return {reader.load<std::uint64_t, 0>(), reader.load<std::uint64_t, 8>()};
}

}  // namespace clustar::paraexpress::tolerant
