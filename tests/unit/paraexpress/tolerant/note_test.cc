#include "paraexpress/tolerant/core/note.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "transport/base/rng.h"

namespace clustar::paraexpress::tolerant {
namespace {

constexpr Terms kTerms{.self = 0, .ranks = 19, .buckets = 7};
using Bytes = std::array<std::byte, kNoteBytes>;

TEST(TolerantNote, ComesBackAsItWasWritten) {
  Rng rng(1);
  for (int i = 0; i < 500; ++i) {
    Note note{rng.below(2) == 0 ? NoteKind::kContribution : NoteKind::kResult,
              rng.below(2) == 0 ? DataType::kFloat32 : DataType::kFloat64,
              static_cast<std::uint32_t>(rng.below(7)),
              rng.below(std::uint64_t{1} << 40),
              1 + rng.below(std::uint64_t{1} << 40),
              static_cast<std::uint32_t>(1 + rng.below(1 << 20)),
              0,
              {},
              false};
    note.fresh = note.kind == NoteKind::kContribution && rng.below(2) == 0;
    if (note.kind == NoteKind::kResult) {
      note.left_out = static_cast<std::uint32_t>(rng.below(std::min<std::uint64_t>(note.count, 1 << 30)));
      for (std::size_t rank = 0; rank < kTerms.ranks; ++rank) note.counted[rank] = rng.below(2) == 0;
    }
    Bytes bytes{};
    encode_note(note, bytes);
    ASSERT_EQ(parse_note(bytes, kTerms), note);
    ASSERT_FALSE(parse_note(std::span(bytes).first(kNoteBytes - 1), kTerms));
  }
}

TEST(TolerantNote, WhatMakesNoSenseInTheGroupIsRefused) {
  const Note good{.kind = NoteKind::kResult, .bucket = 6, .round = 3, .count = 5, .weight = 1};
  const auto parses = [](const Note& note) {
    Bytes bytes{};
    encode_note(note, bytes);
    return parse_note(bytes, kTerms).has_value();
  };
  ASSERT_TRUE(parses(good));
  Note note = good;
  note.bucket = 7;
  EXPECT_FALSE(parses(note));
  note = good;
  note.count = 0;
  EXPECT_FALSE(parses(note));
  note = good;
  note.left_out = 6;
  EXPECT_FALSE(parses(note));
  note = good;
  note.counted.set(19);
  EXPECT_FALSE(parses(note));
  note = good;
  note.type = DataType::kInt32;
  EXPECT_FALSE(parses(note));
  note = good;
  note.kind = NoteKind::kContribution;
  note.counted.set(1);
  EXPECT_FALSE(parses(note));
  Bytes bytes{};
  encode_note(good, bytes);
  for (const std::size_t at : {0U, 1U, 3U}) {
    Bytes wrong = bytes;
    wrong[at] = std::byte{9};
    EXPECT_FALSE(parse_note(wrong, kTerms)) << at;
  }
}

}  // namespace
}  // namespace clustar::paraexpress::tolerant
