#include "bench/lossy/receipt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace clustar::bench::lossy {
namespace {

using transport::MissingRange;

constexpr std::size_t kStampEvery = 4096;
using Stamp = std::array<std::byte, 8>;

Stamp stamp(int sender, std::uint64_t sequence, std::size_t page) {
  const std::uint64_t value = (sequence << 24 ^ static_cast<std::uint64_t>(sender) << 56 ^ page) * 0x9E3779B97F4A7C15u;
  Stamp bytes;
  std::memcpy(bytes.data(), &value, bytes.size());
  return bytes;
}

}  // namespace

void write_stamps(std::span<std::byte> message, int sender, std::uint64_t sequence) {
  for (std::size_t at = 0; at + sizeof(Stamp) <= message.size(); at += kStampEvery) {
    std::ranges::copy(stamp(sender, sequence, at / kStampEvery), message.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

Result<void> check_bytes(std::span<const std::byte> message, int sender, std::uint64_t sequence,
                         std::span<const MissingRange> missing) {
  for (const MissingRange& range : missing) {
    if (range.offset <= message.size() && range.length <= message.size() - range.offset) continue;
    return fail(ErrorCode::kInternal, fmt::format("a message of sender {} misses bytes beyond its end", sender));
  }
  for (std::size_t at = 0; at + sizeof(Stamp) <= message.size(); at += kStampEvery) {
    const Stamp sent = stamp(sender, sequence, at / kStampEvery);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      const std::size_t byte = at + i;
      const bool is_missing = std::ranges::any_of(missing, [&](const MissingRange& range) {
        return byte >= range.offset && byte - range.offset < range.length;
      });
      if (message[byte] == (is_missing ? std::byte{0} : sent[i])) continue;
      return fail(ErrorCode::kInternal,
                  fmt::format("byte {} of a message of sender {} {}", byte, sender,
                              is_missing ? "is reported missing but is not zero" : "is not what was sent"));
    }
  }
  return {};
}

std::optional<std::uint64_t> allowed_missing(const Terms& terms) {
  if (terms.arm.mode == MltMode::kStaticDeadline) return std::nullopt;
  constexpr std::uint64_t kMillion = 1'000'000;
  const std::uint64_t bytes = terms.round_bytes();
  return bytes / kMillion * terms.arm.tolerance_ppm + bytes % kMillion * terms.arm.tolerance_ppm / kMillion;
}

Result<void> check_missing(const Terms& terms, std::uint32_t round, std::uint64_t missing) {
  const auto allowed = allowed_missing(terms);
  if (!allowed || missing <= *allowed) return {};
  return fail(ErrorCode::kInternal,
              fmt::format("{} breaks its loss contract: {} of {} bytes are missing in round {}, at most {} may be",
                          terms.arm.name, missing, terms.round_bytes(), round, *allowed));
}

}  // namespace clustar::bench::lossy
