// What a receiver holds the messages of a round against: the stamps of their senders, and how much may be missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "bench/lossy/endpoint.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// 8 bytes in each page of a message that say which message this is: cheap enough to be compared in every round.
void write_stamps(std::span<std::byte> message, int sender, std::uint64_t sequence);

// What is there is what was sent, and what is missing reads as zero (transport.h). kInternal: it is not.
Result<void> check_bytes(std::span<const std::byte> message, int sender, std::uint64_t sequence,
                         std::span<const transport::MissingRange> missing);

// Bytes of a round that may be missing at the receiver; nothing for the rule of a static deadline, which has no bound.
std::optional<std::uint64_t> allowed_missing(const Terms& terms);
// Of one round. kInternal: more is missing than the arm's contract allows.
Result<void> check_missing(const Terms& terms, std::uint32_t round, std::uint64_t missing);

}  // namespace clustar::bench::lossy
