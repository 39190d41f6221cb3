// The format of checkpoints: named texts and named arrays, with a checksum over all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::trainer {

//   0            8          12         16
//   +------------+----------+----------+--------------------------------------------------+----------+
//   | "clustrcp" | format 1 | texts n  | n texts, arrays m (u32), m arrays                | checksum |
//   +------------+----------+----------+--------------------------------------------------+----------+
//   text: u32 bytes of its name, u32 bytes of its value, name, value
//   array: u32 bytes of its name, u64 bytes of its values, name, values
// Numbers and values have the byte order of the machine. The checksum is digest() of the pieces that were written, each
// seeded by that of the piece before: of accidents, not of adversaries.
using Facts = std::map<std::string, std::string>;
struct ArrayView {
  std::string name;
  std::span<const float> values;
};
inline constexpr std::uint32_t kMaxFactBytes = 1u << 16;  // of a name, and of a value
inline constexpr std::uint32_t kMaxEntries = 1u << 16;    // facts, and arrays

struct Checkpoint {
  Facts facts;
  std::map<std::string, std::span<const std::byte>> arrays;  // in the bytes that were parsed
  std::uint64_t checksum = 0;
};

// Gives the file's bytes to `write`, piece by piece; its first error ends it. Returns the checksum.
using WritePiece = std::function<Result<void>(std::span<const std::byte>)>;
Result<std::uint64_t> write_checkpoint(const Facts& facts, std::span<const ArrayView> arrays, const WritePiece& write);

// How many of them stand behind the facts.
std::uint64_t bytes_behind_facts(std::span<const ArrayView> arrays);

struct CheckpointHead {
  Facts facts;
  std::uint64_t bytes = 0;  // up to where the arrays begin
};
// Of a file that begins with `bytes`, all facts within. No checksum has been looked at. Errors as those below.
Result<CheckpointHead> parse_checkpoint_head(std::span<const std::byte> bytes);

// kInvalidArgument, without the file's name: no checkpoint, of another format, cut off, damaged. Any bytes may be
// given.
Result<Checkpoint> parse_checkpoint(std::span<const std::byte> bytes);

}  // namespace clustar::bench::trainer
