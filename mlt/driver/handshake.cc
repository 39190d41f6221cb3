#include "mlt/driver/handshake.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mlt/core/recovery.h"
#include "mlt/core/wire.h"
#include "mlt/driver/siphash.h"
#include "transport/base/bytes.h"
#include "transport/io/packet_ios.h"

namespace clustar::mlt::driver {
namespace {

// Peers that differ in the packets would shake hands and then take each other for silent.
static_assert(kHandshakeVersion == 11 && kWireVersion == 8,
              "a new version of the packets is one of the handshake, too");

constexpr std::uint64_t kHandleMagic = 0x434c5553544d4c54;  // "CLUSTMLT"
constexpr std::uint32_t kWelcomeMagic = 0x434c4d57;         // "CLMW"
constexpr std::size_t kEndpointAt = 40;
constexpr std::size_t kToleranceAt = 60;  // in the handle
constexpr std::size_t kConfigAt = 64;
constexpr std::size_t kIoAt = 100;
static_assert(kConfigAt + transport::SharedConfig::kSize <= kIoAt);
constexpr std::size_t kIoSize = kMostIoName + 1;

// Nothing: more bytes than there is room for, or anything behind them.
template <std::size_t At, std::size_t Size>
std::optional<io::AddressBlob> load_address(const WireReader<Size>& reader, std::uint16_t count) {
  std::array<std::byte, io::AddressBlob::kMax> raw;
  reader.template copy_to<At>(std::span(raw));
  if (count > raw.size()) return std::nullopt;
  const auto behind = std::span(raw).subspan(count);
  if (std::ranges::any_of(behind, [](std::byte byte) { return byte != std::byte{0}; })) return std::nullopt;
  return io::AddressBlob::of(std::span(raw).first(count));
}

template <std::size_t At, std::size_t Size>
void store_address(WireWriter<Size>& writer, const io::AddressBlob& address) {
  writer.template copy_from<At>(std::span(address.padded()));
}

// Nothing: no name that CLUSTAR_IO could have. Which there are, is each build's own.
template <std::size_t At, std::size_t Size>
std::optional<std::string> load_io(const WireReader<Size>& reader) {
  std::array<std::byte, kIoSize> raw;
  reader.template copy_to<At>(std::span(raw));
  std::string name;
  for (const std::byte byte : raw) name += static_cast<char>(byte);
  const std::size_t length = std::min(name.find('\0'), name.size());
  const bool padded = length > 0 && length < kIoSize && name.find_first_not_of('\0', length) == std::string::npos;
  name.resize(length);
  if (!padded || name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos) {
    return std::nullopt;
  }
  return name;
}

template <std::size_t At, std::size_t Size>
void store_io(WireWriter<Size>& writer, const std::string& name) {
  std::array<std::byte, kIoSize> raw{};
  std::ranges::copy(std::as_bytes(std::span(name)).first(std::min(name.size(), kMostIoName)), raw.begin());
  writer.template copy_from<At>(std::span<const std::byte, kIoSize>(raw));
}

std::optional<PskMode> psk_mode_of(std::uint8_t byte) {
  if (byte > static_cast<std::uint8_t>(PskMode::kEncrypt)) return std::nullopt;
  return static_cast<PskMode>(byte);
}

template <std::size_t At, std::size_t Size>
void load_psk(const WireReader<Size>& reader, Psk& psk) {
  reader.template copy_to<At>(std::span(psk.nonce));
  reader.template copy_to<At + 32>(std::span(psk.proof));
}

template <std::size_t At, std::size_t Size>
void store_psk(WireWriter<Size>& writer, const Psk& psk) {
  writer.template copy_from<At>(std::span<const std::byte, 32>(psk.nonce));
  writer.template copy_from<At + 32>(std::span<const std::byte, 32>(psk.proof));
}

const char* name_of(PskMode mode) {
  switch (mode) {
    case PskMode::kNone: return "not set";
    case PskMode::kAuthenticate: return "authenticate";
    case PskMode::kEncrypt: return "encrypt";
  }
  return "?";
}

template <class Value>
std::string differs(const char* what, Value here, Value there, const char* advice) {
  return fmt::format("{} is {} here and {} at the peer; {}", what, here, there, advice);
}

}  // namespace

Verdict compare(PskMode here, PskMode there) {
  if (here == there) return Verdict::kFine;
  return here == PskMode::kNone || there == PskMode::kNone ? Verdict::kPskFile : Verdict::kPskMode;
}

std::string explain(Verdict verdict, PskMode here, PskMode there) {
  switch (verdict) {
    case Verdict::kFine: break;
    case Verdict::kPskFile:
      return fmt::format(
          "psk_file is {} here and {} at the peer; set CLUSTAR_PSK_FILE to the same secret on all "
          "ranks, or on none",
          here == PskMode::kNone ? "not set" : "set", there == PskMode::kNone ? "not set" : "set");
    case Verdict::kPskSecret: return "psk_file: the peer's secret is another; copy the same file to all hosts";
    case Verdict::kPskMode:
      return fmt::format("psk_mode is {} here and {} at the peer; set the same CLUSTAR_PSK_MODE on all ranks",
                         name_of(here), name_of(there));
  }
  return "nothing is wrong";
}

SharedSettings SharedSettings::of(const Options& options, std::uint32_t max_tolerance_ppm, std::string io) {
  return {options.segment,
          options.paths,
          static_cast<std::uint16_t>(options.max_messages),
          static_cast<std::uint16_t>(options.max_staged),
          options.unscheduled_bytes,
          options.recovery == nullptr ? std::uint8_t{0} : options.recovery->number(),
          max_tolerance_ppm,
          std::move(io)};
}

std::optional<std::string> difference(const SharedSettings& here, const SharedSettings& there) {
  constexpr const char* kSameBuild = "all ranks must load the same plugin";
  if (here.io != there.io) return differs("io", here.io, there.io, "set the same CLUSTAR_IO on all ranks");
  if (here.recovery != there.recovery) {
    return differs("recovery (0: MLT's own, others for comparisons)", here.recovery, there.recovery,
                   "set the same CLUSTAR_STATIC_DEADLINE on all ranks, or none");
  }
  if (here.segment != there.segment) {
    return differs("segment (payload bytes of a packet, from the interface's MTU)", here.segment, there.segment,
                   "set the same MTU on all hosts");
  }
  if (here.paths != there.paths) return differs("paths", here.paths, there.paths, kSameBuild);
  if (here.max_messages != there.max_messages) {
    return differs("max_messages", here.max_messages, there.max_messages, kSameBuild);
  }
  if (here.max_staged != there.max_staged) {
    return differs("max_staged", here.max_staged, there.max_staged, kSameBuild);
  }
  if (here.unscheduled_bytes != there.unscheduled_bytes) {
    return differs("unscheduled_bytes", here.unscheduled_bytes, there.unscheduled_bytes, kSameBuild);
  }
  if (here.max_tolerance_ppm != there.max_tolerance_ppm) {
    return differs("max_tolerance_ppm (what the communicator may lose)", here.max_tolerance_ppm,
                   there.max_tolerance_ppm, "let all ranks opt in to loss alike, or none");
  }
  return std::nullopt;
}

std::optional<HandleInfo> HandleInfo::parse(const transport::Handle& handle) {
  const WireReader reader{std::span<const std::byte, std::tuple_size_v<transport::Handle>>(handle)};
  const auto endpoint = handshake::parse_endpoint(std::span(handle).subspan<kEndpointAt>());
  const auto psk_mode = psk_mode_of(reader.load<std::uint8_t, 12>());
  auto io_name = load_io<kIoAt>(reader);
  HandleInfo info;
  info.psk_mode = psk_mode.value_or(PskMode::kNone);
  if (reader.load<std::uint64_t, 0>() != kHandleMagic || reader.load<std::uint16_t, 8>() != kHandshakeVersion ||
      !endpoint || !psk_mode || !io_name) {
    return std::nullopt;
  }
  info.settings = {reader.load<std::uint16_t, 10>(),           reader.load<std::uint8_t, 13>(),
                   reader.load<std::uint16_t, 16>(),           reader.load<std::uint16_t, 18>(),
                   reader.load<std::uint32_t, 20>(),           reader.load<std::uint8_t, 14>(),
                   reader.load<std::uint32_t, kToleranceAt>(), std::move(*io_name)};
  reader.copy_to<24>(std::span<std::byte, 16>(info.token));
  info.endpoint = *endpoint;
  const auto config =
      transport::SharedConfig::parse(std::span(handle).subspan<kConfigAt, transport::SharedConfig::kSize>());
  if (!config) return std::nullopt;
  info.config = *config;
  return info;
}

transport::Handle HandleInfo::serialize() const {
  transport::Handle handle;
  WireWriter writer{std::span<std::byte, std::tuple_size_v<transport::Handle>>(handle)};
  writer.store<0>(kHandleMagic);
  writer.store<8>(kHandshakeVersion);
  writer.store<10>(settings.segment);
  writer.store<12>(static_cast<std::uint8_t>(psk_mode));
  writer.store<13>(settings.paths);
  writer.store<14>(settings.recovery);
  writer.store<16>(settings.max_messages);
  writer.store<18>(settings.max_staged);
  writer.store<20>(settings.unscheduled_bytes);
  writer.copy_from<24>(std::span<const std::byte, 16>(token));
  handshake::serialize_endpoint(endpoint, std::span(handle).subspan<kEndpointAt>());
  writer.store<kToleranceAt>(settings.max_tolerance_ppm);
  store_io<kIoAt>(writer, settings.io);
  config.serialize_to(std::span(handle).subspan<kConfigAt, transport::SharedConfig::kSize>());
  return handle;
}

std::optional<Hello> Hello::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto address = load_address<44>(reader, reader.load<std::uint16_t, 6>());
  const auto psk_mode = psk_mode_of(reader.load<std::uint8_t, 140>());
  auto io_name = load_io<148>(reader);
  if (reader.load<std::uint32_t, 0>() != kFormat.magic || reader.load<std::uint16_t, 4>() != kHandshakeVersion ||
      !address || !psk_mode || !io_name) {
    return std::nullopt;
  }
  Hello hello;
  hello.address = *address;
  hello.psk.mode = *psk_mode;
  hello.rank = handshake::rank_of(reader.load<std::uint32_t, 164>());
  load_psk<168>(reader, hello.psk);
  reader.copy_to<8>(std::span<std::byte, 16>(hello.token));
  hello.connection_id = reader.load<std::uint64_t, 24>();
  hello.settings = {reader.load<std::uint16_t, 32>(),  reader.load<std::uint8_t, 34>(),
                    reader.load<std::uint16_t, 36>(),  reader.load<std::uint16_t, 38>(),
                    reader.load<std::uint32_t, 40>(),  reader.load<std::uint8_t, 35>(),
                    reader.load<std::uint32_t, 144>(), std::move(*io_name)};
  return hello;
}

void Hello::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kFormat.magic);
  writer.store<4>(kHandshakeVersion);
  writer.store<6>(static_cast<std::uint16_t>(address.bytes().size()));
  writer.copy_from<8>(std::span<const std::byte, 16>(token));
  writer.store<24>(connection_id);
  writer.store<32>(settings.segment);
  writer.store<34>(settings.paths);
  writer.store<35>(settings.recovery);
  writer.store<36>(settings.max_messages);
  writer.store<38>(settings.max_staged);
  writer.store<40>(settings.unscheduled_bytes);
  store_address<44>(writer, address);
  writer.store<140>(static_cast<std::uint8_t>(psk.mode));
  writer.store<144>(settings.max_tolerance_ppm);
  store_io<148>(writer, settings.io);
  writer.store<164>(handshake::wire_rank(rank));
  store_psk<168>(writer, psk);
}

std::optional<Welcome> Welcome::parse(std::span<const std::byte, kSize> bytes) {
  const WireReader reader(bytes);
  const auto address = load_address<8>(reader, reader.load<std::uint16_t, 6>());
  const auto verdict = reader.load<std::uint8_t, 104>();
  const auto mode = psk_mode_of(reader.load<std::uint8_t, 105>());
  const auto parity = reader.load<std::uint8_t, 106>();
  if (reader.load<std::uint32_t, 0>() != kWelcomeMagic || reader.load<std::uint16_t, 4>() != kHandshakeVersion ||
      !address || verdict > static_cast<std::uint8_t>(Verdict::kPskMode) || !mode || parity > 1) {
    return std::nullopt;
  }
  Welcome welcome;
  welcome.address = *address;
  welcome.verdict = static_cast<Verdict>(verdict);
  welcome.psk.mode = *mode;
  welcome.parity = parity == 1;
  load_psk<112>(reader, welcome.psk);
  return welcome;
}

void Welcome::serialize_to(std::span<std::byte, kSize> bytes) const {
  WireWriter writer(bytes);
  writer.store<0>(kWelcomeMagic);
  writer.store<4>(kHandshakeVersion);
  writer.store<6>(static_cast<std::uint16_t>(address.bytes().size()));
  store_address<8>(writer, address);
  writer.store<104>(static_cast<std::uint8_t>(verdict));
  writer.store<105>(static_cast<std::uint8_t>(psk.mode));
  writer.store<106>(static_cast<std::uint8_t>(parity ? 1 : 0));
  store_psk<112>(writer, psk);
}

std::uint64_t secret_of(const Token& token, std::uint64_t connection_id) { return siphash(token, connection_id); }

}  // namespace clustar::mlt::driver
