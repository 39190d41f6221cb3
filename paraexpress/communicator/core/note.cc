#include "paraexpress/communicator/core/note.h"

#include "transport/base/bytes.h"

namespace clustar::paraexpress {
namespace {

constexpr std::uint8_t kVersion = 1;

}  // namespace

void encode_note(const Note& note, std::span<std::byte, kNoteBytes> out) {
  WireWriter<kNoteBytes> writer(out);
  writer.store<0>(kVersion);
  writer.store<1>(static_cast<std::uint8_t>(note.kind));
  writer.store<2>(static_cast<std::uint8_t>(note.key.use));
  writer.store<3>(static_cast<std::uint8_t>(note.carries ? 1 : 0));
  writer.store<4>(note.id);
  writer.store<8>(note.key.number);
  writer.store<16>(note.bytes);
}

std::optional<Note> parse_note(std::span<const std::byte> message) {
  if (message.size() < kNoteBytes) return std::nullopt;
  const WireReader<kNoteBytes> reader(message.first<kNoteBytes>());
  const auto kind = reader.load<std::uint8_t, 1>(), use = reader.load<std::uint8_t, 2>();
  const auto carries = reader.load<std::uint8_t, 3>();
  if (reader.load<std::uint8_t, 0>() != kVersion || kind > static_cast<std::uint8_t>(NoteKind::kBye) || use >= kUses ||
      carries > 1 || (carries == 1 && kind != static_cast<std::uint8_t>(NoteKind::kOffer))) {
    return std::nullopt;
  }
  Note note;
  note.kind = static_cast<NoteKind>(kind);
  note.carries = carries == 1;
  note.key = {static_cast<Use>(use), reader.load<std::uint64_t, 8>()};
  note.id = reader.load<std::uint32_t, 4>();
  note.bytes = reader.load<std::uint64_t, 16>();
  // A receiver of a short message has no registered memory for it.
  if (note.kind == NoteKind::kOffer && note.carries != (note.bytes <= kMostCarried)) return std::nullopt;
  const std::size_t rest = message.size() - kNoteBytes;
  if (rest != (note.carries ? note.bytes : 0)) return std::nullopt;
  return note;
}

}  // namespace clustar::paraexpress
