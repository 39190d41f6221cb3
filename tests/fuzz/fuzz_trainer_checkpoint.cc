// Checkpoints: any bytes are refused, or what is parsed of them is written again with the same size. All entries are
// read before the checksum is looked at.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "bench/trainer/checkpoint/file.h"
#include "tests/fuzz/input.h"

namespace {

namespace trainer = clustar::bench::trainer;
using clustar::fuzz::require;

// Arrays of whole floats only, as write_checkpoint() takes them.
void write_again(const trainer::Checkpoint& checkpoint, std::span<const std::byte> bytes) {
  std::vector<std::vector<float>> values;
  std::vector<trainer::ArrayView> arrays;
  for (const auto& [name, raw] : checkpoint.arrays) {
    if (raw.size() % sizeof(float) != 0) return;
    values.emplace_back(raw.size() / sizeof(float));
    if (!raw.empty()) std::memcpy(values.back().data(), raw.data(), raw.size());
  }
  std::size_t i = 0;
  for (const auto& [name, raw] : checkpoint.arrays) arrays.push_back({name, values[i++]});
  std::vector<std::byte> again;
  const auto checksum = trainer::write_checkpoint(checkpoint.facts, arrays, [&](std::span<const std::byte> piece) {
    again.insert(again.end(), piece.begin(), piece.end());
    return clustar::Result<void>();
  });
  // Entries may lie in another order than that of their names.
  require(checksum.has_value() && again.size() == bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const auto head = trainer::parse_checkpoint_head(bytes);
  if (head) require(head->bytes <= size);
  const auto checkpoint = trainer::parse_checkpoint(bytes);
  if (!checkpoint) return 0;
  require(head.has_value() && head->facts == checkpoint->facts);
  write_again(*checkpoint, bytes);
  return 0;
}
