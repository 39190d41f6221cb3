// How the connecting side begins on every socket. The front is the same for all transports.
//  0       4     6                     8             24
// | magic | ver | the transport's own | token (128 b) | the transport's own |
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace clustar::transport::handshake {

// Random, one per listener. Only who was given its handle knows it.
using Token = std::array<std::byte, 16>;

// What somebody shows who begins like this.
enum class Front : std::uint8_t {
  kShowsToken,
  kOtherProtocol,  // another magic
  kOtherVersion,
  kOtherToken,
};

struct HelloFormat {
  static constexpr std::size_t kFrontSize = 24;
  std::uint32_t magic = 0;
  std::uint16_t version = 0;
  std::size_t size = kFrontSize;  // of the whole hello

  // The first of these that holds, in the order of the bytes. The token is compared in constant time.
  Front judge(std::span<const std::byte, kFrontSize> front, const Token& token) const;
  static std::uint16_t version_of(std::span<const std::byte, kFrontSize> front);
};

// A rank as it travels: 32 bits, all of them set where it is not known.
constexpr std::uint32_t wire_rank(int rank) { return static_cast<std::uint32_t>(rank < 0 ? -1 : rank); }
constexpr int rank_of(std::uint32_t wire) { return wire > 0x7fffffff ? -1 : static_cast<int>(wire); }

}  // namespace clustar::transport::handshake
