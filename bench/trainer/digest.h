// A 64-bit digest of parameters, to tell whether replicas are bit-equal. Finds accidents, not adversaries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::bench::trainer {

// Any changed bit, swapped word or changed length gives another digest (but for 64-bit coincidences).
std::uint64_t digest(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace clustar::bench::trainer
