// What a rank keeps of a bucket, as bytes: for a restart.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "paraexpress/tolerant/core/giver.h"

namespace clustar::paraexpress::tolerant {

// Big-endian: version, type (1 byte each), parts (2), gradients owed by part (4 each), elements of the bucket (8); then
// the elements, as they are in memory: none where all are zero.
std::size_t saved_bytes(const Residual& residual);
// `out` is as long as that.
void save(const Residual& residual, std::span<std::byte> out);
// Nothing: save() did not write this.
std::optional<Residual> parse_saved(std::span<const std::byte> bytes);

}  // namespace clustar::paraexpress::tolerant
