// What an end says on the control connection before it closes it: packets of the protocol that the other may have
// missed, each behind
//
//  0   1         4
// | H | P (24 b) | header, H bytes | payload, P bytes |
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "mlt/core/wire.h"
#include "mlt/driver/seal.h"
#include "transport/base/time.h"

namespace clustar::mlt::driver {

// A send of up to so many bytes is done when its payload was copied.
inline constexpr std::size_t kBufferedBytes = 4096;
inline constexpr std::uint32_t kBufferedSends = 32;  // of one connection
// On a long path so is one of up to so many bytes (a slice of NCCL's), while all of a connection fit. As much as Linux
// lets kernel TCP hold (tcp_wmem).
inline constexpr std::size_t kFarBufferedBytes = 512 * 1024;
inline constexpr std::size_t kFarBuffer = 4 << 20;
// All that a sender may have to repeat, in packets of the shortest segment.
inline constexpr std::size_t kMaxLastWords =
    (kBufferedSends * kBufferedBytes + kFarBuffer) / kMinSegment * (kMinSegment + 4 + kMaxHeader + kSealBytes);
// How long who closes waits, a few times at most, for room for them.
inline constexpr Duration kLastWordsWait = std::chrono::milliseconds(100);

struct LastWord {
  static constexpr std::size_t kPrefix = 4;
  std::uint32_t header = 0;
  std::uint32_t payload = 0;

  // `bytes`: kPrefix at least. Nothing for what no packet can be.
  static std::optional<LastWord> parse(std::span<const std::byte> bytes) {
    const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
    const LastWord word{at(0), at(1) << 16 | at(2) << 8 | at(3)};
    if (word.header == 0 || word.header > kMaxHeader + kSealBytes || word.payload > 0xffff) return std::nullopt;
    return word;
  }
  static void append(std::vector<std::byte>& words, std::span<const std::byte> header,
                     std::span<const std::byte> payload) {
    words.push_back(static_cast<std::byte>(header.size()));
    for (const int shift : {16, 8, 0}) words.push_back(static_cast<std::byte>(payload.size() >> shift & 0xff));
    words.insert(words.end(), header.begin(), header.end());
    words.insert(words.end(), payload.begin(), payload.end());
  }
};

}  // namespace clustar::mlt::driver
