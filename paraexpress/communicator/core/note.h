// What ranks say to each other of messages: one is offered, may come, does not fit; and that a rank leaves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "paraexpress/communicator/core/kinds.h"

namespace clustar::paraexpress {

struct MessageKey {
  Use use = Use::kMessage;
  std::uint64_t number = 0;  // the user's tag of a send, or which collective of the communicator it is

  bool operator==(const MessageKey&) const = default;
};

enum class NoteKind : std::uint8_t {
  kOffer,     // `id` is the sender's number of it
  kGo,        // the receiver has posted where it goes
  kRefusal,   // the receiver expects `bytes` in place of what was offered
  kStanding,  // of core/standing.h: key.number, `id` what, `bytes` the count
  kBye,       // there are no more notes
};

struct Note {
  NoteKind kind = NoteKind::kOffer;
  bool carries = false;  // an offer's of up to kMostCarried bytes: the message follows within the note
  MessageKey key{};
  std::uint32_t id = 0;
  std::uint64_t bytes = 0;

  bool operator==(const Note&) const = default;
};

// On the wire, big-endian: version, kind, use, carries (1 byte each), id (4), key's number (8), bytes (8). What an
// offer carries follows.
inline constexpr std::size_t kNoteBytes = 24;
inline constexpr std::size_t kMostNote = 4096;  // with what it carries
inline constexpr std::size_t kMostCarried = kMostNote - kNoteBytes;

void encode_note(const Note& note, std::span<std::byte, kNoteBytes> out);
// Nothing: this is no note, or what it carries is not as long as it says, or not there though it is short.
std::optional<Note> parse_note(std::span<const std::byte> message);

}  // namespace clustar::paraexpress
