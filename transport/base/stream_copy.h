// A copy past the caches, for destinations that are long and not read soon: they need not be fetched first, and push
// nothing out. docs/results/udp-ways-2026-11-20.md has it against memcpy.
#pragma once

#include <cstddef>

namespace clustar {

// `from` and `to` do not overlap. What was written may be seen late by others: order_streamed() before telling them, by
// the thread that copied, or one that took a lock from it (unlocking a mutex orders these stores on x86, too).
void stream_copy(std::byte* to, const std::byte* from, std::size_t length);
void order_streamed();

}  // namespace clustar
