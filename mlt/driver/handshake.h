// What the two sides of a connection say before its first packet, over TCP. Integers are big-endian; every parse checks
// magic, version and ranges and answers nullopt for anything else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "mlt/core/options.h"
#include "transport/api/shared_config.h"
#include "transport/api/transport.h"
#include "transport/handshake/core/hello.h"
#include "transport/handshake/core/invitation.h"
#include "transport/io/address_blob.h"
#include "transport/net/endpoint.h"

namespace clustar::mlt::driver {

inline constexpr std::uint16_t kHandshakeVersion = 11;

namespace handshake = transport::handshake;
namespace io = transport::io;
namespace net = transport::net;
using handshake::Token;

// What both ends must have alike; a difference is an error at connect that names the setting.
struct SharedSettings {
  std::uint16_t segment = 0;
  std::uint8_t paths = 0;
  std::uint16_t max_messages = 0;
  std::uint16_t max_staged = 0;
  std::uint32_t unscheduled_bytes = 0;
  std::uint8_t recovery = 0;            // Recovery::number(); 0: MLT's own
  std::uint32_t max_tolerance_ppm = 0;  // 0 .. 1,000,000: of the channel, not of the device
  std::string io = "udp";               // PacketBackend::name(): what carries the packets

  // `options`: the device's; what may be lost is each channel's own.
  static SharedSettings of(const Options& options, std::uint32_t max_tolerance_ppm, std::string io);
  bool operator==(const SharedSettings&) const = default;
};
// "<setting> is <here> here and <there> at the peer: <what to do>", of the first that differs.
std::optional<std::string> difference(const SharedSettings& here, const SharedSettings& there);

// With a pre-shared key the two sides prove to each other that they have it, and open nothing before:
//   connecting side: hello                       accepting side: refuses, or welcome
//                    confirm, open for packets                   open for packets, ready
// Each nonce is fresh, and each proof covers all that was said: a hello that is played again gets a welcome with
// another nonce, and no further.
enum class PskMode : std::uint8_t { kNone = 0, kAuthenticate = 1, kEncrypt = 2 };
using Proof = std::array<std::byte, 32>;
using PskNonce = std::array<std::byte, 32>;
struct Psk {
  PskMode mode = PskMode::kNone;
  PskNonce nonce{};  // zero without a pre-shared key, as the proof
  Proof proof{};
};

// Why a greeting goes no further.
enum class Verdict : std::uint8_t {
  kFine = 0,
  kPskFile = 1,    // one side has a pre-shared key, the other has none
  kPskSecret = 2,  // not the same secret
  kPskMode = 3,
};
// Of the modes alone: the secrets can still differ.
Verdict compare(PskMode here, PskMode there);
// "psk_mode is <here> here and <there> at the peer: <what to do>"; names the setting.
std::string explain(Verdict verdict, PskMode here, PskMode there);

//  0       8     10      12         13      14     15         16                20            24                40
// | magic | ver | segm. | psk mode | paths | rec. | 0        | messages, staged | unscheduled | token (128 bit) | ...
//  40              60                  64              96     100
// | endpoint (20) | max_tolerance_ppm | digests (8 x 4) | rank | io (16) |
// endpoint: | family 4 or 6 | 0 | port (2) | address (16) |
struct HandleInfo {
  Token token{};
  SharedSettings settings;
  PskMode psk_mode = PskMode::kNone;  // what it is decides the handshake, not this
  transport::net::Endpoint endpoint;
  transport::SharedConfig config;

  static std::optional<HandleInfo> parse(const transport::Handle& handle);
  transport::Handle serialize() const;
};

// First bytes from the connecting side.
//  0       4     6       8               24              32      34      35     36                 40            44
// | magic | ver | count | token (128 b) | connection id | segm. | paths | mode | messages, staged | unscheduled | ...
//  44               140        141 144                 148       164    168          200          232
// | address (96)     | psk mode | 0 | max_tolerance_ppm | io (16) | rank | nonce (32) | proof (32) |
// count: of the address's bytes; zeroes follow them. io: a name as CLUSTAR_IO has it, at least one zero behind it.
struct Hello {
  static constexpr std::size_t kSize = 232;
  static constexpr std::size_t kProofAt = 200;
  // "CLMH"
  static constexpr handshake::HelloFormat kFormat{.magic = 0x434c4d48, .version = kHandshakeVersion, .size = kSize};
  Token token{};
  std::uint64_t connection_id = 0;  // random
  SharedSettings settings;
  io::AddressBlob address;  // where the connecting side's packets are taken
  int rank = -1;            // of the connecting end; -1 = unknown
  Psk psk;

  static std::optional<Hello> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// The accepting side's answer.
//  0       4     6       8              104       105        106      107 112          144
// | magic | ver | count | address (96) | verdict | psk mode | parity | 0 | nonce (32) | proof (32) |
// parity: 1 when this end, which receives, can rebuild packets; otherwise 0.
struct Welcome {
  static constexpr std::size_t kSize = 176;
  static constexpr std::size_t kProofAt = 144;
  io::AddressBlob address;
  Verdict verdict = Verdict::kFine;
  Psk psk;
  bool parity = false;

  static std::optional<Welcome> parse(std::span<const std::byte, kSize> bytes);
  void serialize_to(std::span<std::byte, kSize> bytes) const;
};

// On every packet of the connection: known to those who know the token, to nobody else.
std::uint64_t secret_of(const Token& token, std::uint64_t connection_id);

}  // namespace clustar::mlt::driver
