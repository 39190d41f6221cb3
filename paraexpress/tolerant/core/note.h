// What ranks of a tolerant group say to each other: that a contribution to a round, or a round's result, follows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "paraexpress/sums/reduce.h"
#include "paraexpress/tolerant/core/terms.h"

namespace clustar::paraexpress::tolerant {

enum class NoteKind : std::uint8_t {
  kContribution,  // to the part whose root the receiver is; its elements follow unless `weight` is 0
  kResult,        // of the part whose root the sender is; its elements and `left_out` ranges follow
};

struct Note {
  NoteKind kind = NoteKind::kContribution;
  DataType type = DataType::kFloat32;  // or kFloat64
  std::uint32_t bucket = 0;
  std::uint64_t round = 0;
  std::uint64_t count = 0;     // elements of the whole bucket: 1 ..
  std::uint32_t weight = 0;    // gradients in it; in a result kMostWeight per rank at most
  std::uint32_t left_out = 0;  // of a result: ranges
  Members counted{};           // of a result: whose contributions are in it
  bool fresh = false;          // a contribution with a gradient that was computed for this round

  bool operator==(const Note&) const = default;
};

// On the wire, big-endian: version, kind, type, fresh (1 byte each), bucket (4), round (8), count (8), weight (4),
// left_out (4), counted (32: rank r is bit r % 8 of byte r / 8).
inline constexpr std::size_t kNoteBytes = 64;

void encode_note(const Note& note, std::span<std::byte, kNoteBytes> out);
// Nothing: this is no note, or one that makes no sense in such a group.
std::optional<Note> parse_note(std::span<const std::byte> message, const Terms& terms);

// Behind a result's elements, a range each: its first element and the one behind the last (8 bytes each, big-endian).
inline constexpr std::size_t kRangeBytes = 16;
void encode_range(const ElementRange& range, std::span<std::byte, kRangeBytes> out);
ElementRange parse_range(std::span<const std::byte, kRangeBytes> bytes);

}  // namespace clustar::paraexpress::tolerant
