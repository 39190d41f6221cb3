// What rank 0 tells a newcomer, so that it builds what the members build.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "paraexpress/core/membership.h"
#include "paraexpress/engine/engine.h"

namespace clustar::paraexpress {

// The engine's options of the newcomer's place, from the members'.
std::vector<std::byte> encode_invitation(const Place& place, const EngineOptions& options);
// `options`: of the newcomer; what must be equal on all comes from the invitation. Nothing: it is none.
std::optional<EngineOptions> invited(std::span<const std::byte> invitation, const EngineOptions& options);

inline constexpr std::size_t kMostInvitation = 256;
// A newcomer waits no longer in one step, and in an operation, whatever it is told.
inline constexpr Duration kMostSetup = std::chrono::minutes(1), kMostStall = std::chrono::hours(24 * 30);

}  // namespace clustar::paraexpress
