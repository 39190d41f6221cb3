// The seals of one connection's packets: AES-256-GCM, a nonce that never comes twice, and a window that lets each
// packet in once.
//
// A sealed header is the core's header, then
//  0         8        24
// | counter | tag    |
// counter: of this direction and path, from 0. Nonce: | path (1) | 0 (3) | counter (8) |. The tag covers the header,
// the counter and the payload; encrypted payload is the ciphertext, as long as the payload.
//
// Each direction and path has its keys, a new one every 2^24 packets: key = HKDF(session key, no salt, "clustar mlt
// packets" || direction || path || counter >> 24). So no key sees more than 2^34 blocks, where RFC 9001, appendix B,
// wants fewer than 2^35, however long a training runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "mlt/core/replay_window.h"
#include "mlt/core/wire.h"
#include "mlt/driver/protection.h"

namespace clustar::mlt::driver {

inline constexpr std::size_t kSealBytes = 8 + crypto::kTagBytes;

class Seal {
 public:
  enum class Side : std::uint8_t { kSender = 0, kReceiver = 1 };
  // The TCP connection beside the packets: a path of its own.
  static constexpr std::uint8_t kControlPath = kMaxPaths;
  static constexpr std::uint64_t kMaxCounter = std::uint64_t{1} << 63;
  static constexpr unsigned kKeyBits = 24;

  // `here`: which side this end is. `first` and `key_bits` are for tests: the first counter, and the logarithm of
  // packets per key.
  Seal(const crypto::Crypto& crypto, const Session& session, Side here, std::uint8_t paths, std::uint64_t first = 0,
       unsigned key_bits = kKeyBits);

  // `header`: the core's, with kSealBytes behind it that are written here. `cipher`: where the payload goes encrypted;
  // null: it travels in clear. False: the counter is at its end, or there is no memory; nothing may be sent any more.
  bool seal(std::uint8_t path, std::span<std::byte> header, std::span<const std::byte> payload, std::byte* cipher);

  enum class Opened : std::uint8_t { kGenuine, kReplayed, kForged };
  // `plain`: where decrypted payload goes; null: it came in clear. What was written is to be used for kGenuine only.
  Opened open(std::uint8_t path, std::span<const std::byte> header, std::span<const std::byte> payload,
              std::byte* plain);

 private:
  static constexpr std::uint64_t kNoEpoch = std::numeric_limits<std::uint64_t>::max();

  struct PacketKey {
    std::uint64_t epoch = kNoEpoch;
    crypto::Aead aead;
  };
  struct Outbound {
    std::uint64_t counter = 0;
    PacketKey key;
  };
  struct Inbound {
    ReplayWindow window;
    std::uint64_t epoch = 0;        // the latest that a genuine packet had
    std::array<PacketKey, 3> keys;  // of the epoch before, this one and the next
  };

  bool make_key(PacketKey& key, Side from, std::uint8_t path, std::uint64_t epoch, crypto::Aead::Use use) const;
  bool has(std::uint8_t path) const { return path < paths_ || path == kControlPath; }
  std::size_t index(std::uint8_t path) const { return path == kControlPath ? paths_ : path; }

  const crypto::Crypto& crypto_;
  const Session session_;
  const Side here_;
  const std::uint8_t paths_;
  const unsigned key_bits_;
  std::vector<Outbound> outbound_;
  std::vector<Inbound> inbound_;
};

}  // namespace clustar::mlt::driver
