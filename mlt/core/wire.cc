#include "mlt/core/wire.h"

#include <algorithm>

#include "mlt/core/compact_header.h"
#include "transport/base/bytes.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

constexpr std::uint8_t kRetransmission = 1, kImportant = 2, kAckNow = 4, kHasOpen = 8, kRestSettled = 16;
constexpr std::uint8_t kParity = 32;
constexpr std::uint8_t kStop = 1, kComplete = 2, kMatched = 4, kAsks = 8;
constexpr std::uint8_t kQuiet = 1;
constexpr unsigned kLevelBits = 4;  // behind them: the open record's flags
constexpr std::size_t kPrefix = 12;
constexpr std::size_t kAckFixed = 24;

template <std::size_t Size>
using Bytes = std::span<const std::byte, Size>;

bool message_in_range(std::uint32_t bytes, std::uint16_t segment) {
  return bytes <= kMaxMessageBytes && segment >= kMinSegment && packet_count(bytes, segment) <= kMaxPackets;
}

constexpr std::uint8_t kNoNibble = 15;
constexpr unsigned kSenderBits = 16;  // behind the number, in one word

std::uint8_t of_nibble(unsigned nibble) {
  return nibble == kNoNibble ? Identity::kUnknown : static_cast<std::uint8_t>(nibble);
}

std::uint8_t nibbles_of(const Identity& identity) {
  const auto nibble = [](std::uint8_t value) { return value > Identity::kMaxNibble ? kNoNibble : value; };
  return static_cast<std::uint8_t>(nibble(identity.algorithm) << 4 | nibble(identity.protocol));
}

bool parse_identity(const WireReader<OpenRecord::kSize>& reader, std::uint8_t flags, Identity& identity) {
  const auto channel = reader.load<std::uint8_t, 15>();
  const auto number = reader.load<std::uint64_t, 48>();
  const auto transfer = reader.load<std::uint32_t, 56>();
  const auto function = reader.load<std::uint8_t, 60>();
  const auto datatype = reader.load<std::uint8_t, 61>();
  const auto nibbles = reader.load<std::uint8_t, 62>();
  const bool local = (flags & OpenRecord::kLocalNumber) != 0;
  if ((flags & OpenRecord::kIdentified) == 0) {
    identity = {};
    return !local && (channel | number | transfer | function | datatype | nibbles) == 0;
  }
  identity = {true,
              local,
              number >> kSenderBits,
              transfer,
              channel,
              function,
              datatype,
              of_nibble(nibbles >> 4u),
              of_nibble(nibbles & 15u),
              static_cast<std::uint16_t>(number)};
  return true;
}

bool parse_open(Bytes<OpenRecord::kSize> bytes, OpenRecord& open) {
  const WireReader reader(bytes);
  open.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 0>());
  open.tag_seq = reader.load<std::uint32_t, 4>();
  open.forgotten_below = reader.load<std::uint32_t, 8>();
  open.stage = reader.load<std::uint16_t, 12>();
  const auto flags = reader.load<std::uint8_t, 14>();
  open.level = flags >> kLevelBits;
  open.tolerant = (flags & OpenRecord::kTolerant) != 0;
  open.exchange = (flags & OpenRecord::kExchange) != 0;
  open.communicator = reader.load<std::uint64_t, 16>();
  open.collective = reader.load<std::uint32_t, 24>();
  open.ranks = reader.load<std::uint16_t, 28>();
  open.edges = reader.load<std::uint16_t, 30>();
  open.collective_bytes = reader.load<std::uint64_t, 32>();
  open.tolerance_ppm = reader.load<std::uint32_t, 40>();
  open.important = reader.load<std::uint32_t, 44>();
  return (open.tolerant || !open.exchange) && open.tolerance_ppm <= 1'000'000 && open.important <= kMaxPackets &&
         parse_identity(reader, flags, open.identity);
}

void write_open(const OpenRecord& open, std::span<std::byte, OpenRecord::kSize> out) {
  WireWriter writer(out);
  writer.store<0>(static_cast<std::uint32_t>(open.tag));
  writer.store<4>(open.tag_seq);
  writer.store<8>(open.forgotten_below);
  writer.store<12>(open.stage);
  const Identity& identity = open.identity;
  const bool local = identity.known && identity.local_number;
  writer.store<14>(static_cast<std::uint8_t>(
      std::min(open.level, kMaxLevel) << kLevelBits | (open.tolerant ? OpenRecord::kTolerant : 0) |
      (identity.known ? OpenRecord::kIdentified : 0) | (local ? OpenRecord::kLocalNumber : 0) |
      (open.tolerant && open.exchange ? OpenRecord::kExchange : 0)));
  writer.store<16>(open.communicator);
  writer.store<24>(open.collective);
  writer.store<28>(open.ranks);
  writer.store<30>(open.edges);
  writer.store<32>(open.collective_bytes);
  writer.store<40>(open.tolerance_ppm);
  writer.store<44>(open.important);
  if (!identity.known) return;
  writer.store<15>(identity.channel);
  writer.store<48>(identity.number << kSenderBits | identity.sender);
  writer.store<56>(identity.transfer);
  writer.store<60>(identity.function);
  writer.store<61>(identity.datatype);
  writer.store<62>(nibbles_of(identity));
}

// What only some packets may say, and which indices there are.
bool data_in_range(const DataHeader& data) {
  if (!message_in_range(data.message_bytes, data.segment) || (data.quiet && !data.retransmission)) return false;
  const std::uint32_t packets = packet_count(data.message_bytes, data.segment);
  if (!data.parity) return data.index < packets;
  return !data.retransmission && !data.important && data.passed == 0 && packets > 1 &&
         data.index / kMaxParity < block_count(packets);
}

bool parse_data(std::span<const std::byte> bytes, DataHeader& data) {
  if (bytes.size() < DataHeader::kSize) return false;
  const WireReader reader(bytes.first<DataHeader::kSize>());
  const auto flags = reader.load<std::uint8_t, 2>();
  data.path = path_of(reader.load<std::uint8_t, 3>());
  data.traffic_class = class_of(reader.load<std::uint8_t, 3>());
  data.secret = reader.load<std::uint64_t, 4>();
  data.retransmission = (flags & kRetransmission) != 0;
  data.important = (flags & kImportant) != 0;
  data.ack_now = (flags & kAckNow) != 0;
  data.quiet = (flags & kRestSettled) != 0;
  data.parity = (flags & kParity) != 0;
  data.message = reader.load<std::uint32_t, 12>();
  data.index = reader.load<std::uint32_t, 16>();
  data.path_seq = reader.load<std::uint32_t, 20>();
  data.message_bytes = reader.load<std::uint32_t, 24>();
  data.segment = reader.load<std::uint16_t, 28>();
  data.passed = reader.load<std::uint16_t, 30>();
  data.sent_units = reader.load<std::uint32_t, 32>();
  data.trip = reader.load<std::uint16_t, 36>();
  const bool has_open = (flags & kHasOpen) != 0;
  const std::size_t length = DataHeader::kSize + (has_open ? OpenRecord::kSize : 0);
  if (bytes.size() != length || flags > 63 || !data_in_range(data)) return false;
  if (!has_open) {
    data.open.reset();
  } else {
    if (!data.open) data.open.emplace();
    const bool known = parse_open(bytes.subspan<DataHeader::kSize, OpenRecord::kSize>(), *data.open);
    if (!known || data.open->important > packet_count(data.message_bytes, data.segment)) return false;
  }
  return true;
}

bool parse_ack(std::span<const std::byte> bytes, Ack& ack) {
  if (bytes.size() < kAckFixed) return false;
  const WireReader reader(bytes.first<kAckFixed>());
  ack.secret = reader.load<std::uint64_t, 4>();
  ack.credit_units = reader.load<std::uint32_t, 12>();
  ack.finished_below = reader.load<std::uint32_t, 16>();
  ack.count = reader.load<std::uint8_t, 20>();
  const bool reserved = reader.load<std::uint16_t, 2>() != 0 || reader.load<std::uint8_t, 21>() != 0 ||
                        reader.load<std::uint16_t, 22>() != 0;
  if (reserved || ack.count > Ack::kMaxBlocks || bytes.size() != kAckFixed + ack.count * AckBlock::kSize) {
    return false;
  }
  for (std::size_t i = 0; i < ack.count; ++i) {
    const WireReader block(bytes.subspan(kAckFixed + i * AckBlock::kSize).first<AckBlock::kSize>());
    AckBlock& out = ack.blocks[i];
    out.path = path_of(block.load<std::uint8_t, 0>());
    out.traffic_class = class_of(block.load<std::uint8_t, 0>());
    out.marked = block.load<std::uint16_t, 2>();
    out.largest = block.load<std::uint32_t, 4>();
    out.before = block.load<std::uint64_t, 8>();
    out.delay_us = block.load<std::uint16_t, 16>();
    out.waited_us = block.load<std::uint16_t, 18>();
    if (block.load<std::uint8_t, 1>() != 0) return false;
  }
  return true;
}

bool parse_posted(std::span<const std::byte> bytes, Posted& posted) {
  if (bytes.size() != Posted::kSize) return false;
  const WireReader reader(bytes.first<Posted::kSize>());
  posted.secret = reader.load<std::uint64_t, 4>();
  posted.tag = static_cast<std::int32_t>(reader.load<std::uint32_t, 12>());
  posted.tag_seq = reader.load<std::uint32_t, 16>();
  posted.length = reader.load<std::uint32_t, 20>();
  posted.credit_units = reader.load<std::uint32_t, 24>();
  if (reader.load<std::uint16_t, 2>() != 0 || posted.length > kMaxMessageBytes) return false;
  return true;
}

bool parse_state(std::span<const std::byte> bytes, State& state) {
  if (bytes.size() < State::kFixed) return false;
  const WireReader reader(bytes.first<State::kFixed>());
  const auto flags = reader.load<std::uint8_t, 2>();
  state.secret = reader.load<std::uint64_t, 4>();
  state.stop = (flags & kStop) != 0;
  state.complete = (flags & kComplete) != 0;
  state.matched = (flags & kMatched) != 0;
  state.asks = (flags & kAsks) != 0;
  state.message = reader.load<std::uint32_t, 12>();
  state.credit_units = reader.load<std::uint32_t, 16>();
  state.base = reader.load<std::uint32_t, 20>();
  state.count = reader.load<std::uint16_t, 24>();
  state.want = reader.load<std::uint16_t, 26>();
  state.finished_below = reader.load<std::uint32_t, 28>();
  const bool in_range = flags <= 15 && reader.load<std::uint8_t, 3>() == 0 && state.count <= State::kWindow &&
                        state.base <= kMaxPackets - state.count && state.want <= state.count;
  if (!in_range || (state.complete && (!state.stop || state.base != 0 || state.count != 0))) return false;
  if (state.asks && state.stop) return false;
  const auto bitmap = bytes.subspan<State::kFixed>();
  if (bitmap.size() != state.bitmap_bytes()) return false;
  const auto rest = std::copy(bitmap.begin(), bitmap.end(), state.missing.begin());
  std::fill(rest, state.missing.end(), std::byte{});
  for (std::size_t i = state.count; i < 8 * bitmap.size(); ++i) {
    if (state.is_missing(static_cast<std::uint32_t>(i))) return false;
  }
  return true;
}

bool parse_probe(std::span<const std::byte> bytes, Probe& probe) {
  if (bytes.size() != Probe::kSize) return false;
  const WireReader reader(bytes.first<Probe::kSize>());
  probe.secret = reader.load<std::uint64_t, 4>();
  probe.message = reader.load<std::uint32_t, 12>();
  probe.sent = reader.load<std::uint32_t, 16>();
  probe.message_bytes = reader.load<std::uint32_t, 20>();
  probe.segment = reader.load<std::uint16_t, 24>();
  probe.window = reader.load<std::uint16_t, 26>();
  probe.sent_units = reader.load<std::uint32_t, 28>();
  if (!parse_open(bytes.subspan<32, OpenRecord::kSize>(), probe.open)) return false;
  const auto flags = reader.load<std::uint8_t, 2>();
  if (flags > kQuiet || reader.load<std::uint8_t, 3>() != 0) return false;
  probe.quiet = (flags & kQuiet) != 0;
  if (!message_in_range(probe.message_bytes, probe.segment)) return false;
  const std::uint32_t packets = packet_count(probe.message_bytes, probe.segment);
  if (probe.sent > packets || probe.open.important > packets) return false;
  if (probe.window * std::uint32_t{State::kWindow} >= packets) return false;
  if (probe.quiet && probe.sent != packets) return false;
  return true;
}

// Into what `packet` holds already, if it is of the same kind: clearing a header costs as much as reading it.
template <class Header>
bool read(std::span<const std::byte> bytes, bool parse(std::span<const std::byte>, Header&), Packet& packet) {
  if (!std::holds_alternative<Header>(packet)) packet.emplace<Header>();
  return parse(bytes, *std::get_if<Header>(&packet));
}

template <std::size_t Size>
void write_prefix(WireWriter<Size>& writer, PacketType type, std::uint8_t flags, std::uint8_t lane,
                  std::uint64_t secret) {
  writer.template store<0>(kWireVersion);
  writer.template store<1>(static_cast<std::uint8_t>(type));
  writer.template store<2>(flags);
  writer.template store<3>(lane);
  writer.template store<4>(secret);
}

std::size_t write(const DataHeader& data, std::span<std::byte> out) {
  const auto flags = static_cast<std::uint8_t>(
      (data.retransmission ? kRetransmission : 0) | (data.important ? kImportant : 0) | (data.ack_now ? kAckNow : 0) |
      (data.quiet ? kRestSettled : 0) | (data.open ? kHasOpen : 0) | (data.parity ? kParity : 0));
  WireWriter writer(out.first<DataHeader::kSize>());
  write_prefix(writer, PacketType::kData, flags, lane_of(data.path, data.traffic_class), data.secret);
  writer.store<12>(data.message);
  writer.store<16>(data.index);
  writer.store<20>(data.path_seq);
  writer.store<24>(data.message_bytes);
  writer.store<28>(data.segment);
  writer.store<30>(data.passed);
  writer.store<32>(data.sent_units);
  writer.store<36>(data.trip);
  if (!data.open) return DataHeader::kSize;
  write_open(*data.open, out.subspan<DataHeader::kSize, OpenRecord::kSize>());
  return DataHeader::kSize + OpenRecord::kSize;
}

std::size_t write(const Ack& ack, std::span<std::byte> out) {
  WireWriter writer(out.first<kAckFixed>());
  write_prefix(writer, PacketType::kAck, 0, 0, ack.secret);
  writer.store<12>(ack.credit_units);
  writer.store<16>(ack.finished_below);
  writer.store<20>(ack.count);
  for (std::size_t i = 0; i < ack.count; ++i) {
    WireWriter block(out.subspan(kAckFixed + i * AckBlock::kSize).first<AckBlock::kSize>());
    block.store<0>(lane_of(ack.blocks[i].path, ack.blocks[i].traffic_class));
    block.store<2>(ack.blocks[i].marked);
    block.store<4>(ack.blocks[i].largest);
    block.store<8>(ack.blocks[i].before);
    block.store<16>(ack.blocks[i].delay_us);
    block.store<18>(ack.blocks[i].waited_us);
  }
  return kAckFixed + ack.count * AckBlock::kSize;
}

std::size_t write(const Posted& posted, std::span<std::byte> out) {
  WireWriter writer(out.first<Posted::kSize>());
  write_prefix(writer, PacketType::kPosted, 0, 0, posted.secret);
  writer.store<12>(static_cast<std::uint32_t>(posted.tag));
  writer.store<16>(posted.tag_seq);
  writer.store<20>(posted.length);
  writer.store<24>(posted.credit_units);
  return Posted::kSize;
}

std::size_t write(const State& state, std::span<std::byte> out) {
  WireWriter writer(out.first<State::kFixed>());
  const auto flags = static_cast<std::uint8_t>((state.stop ? kStop : 0) | (state.complete ? kComplete : 0) |
                                               (state.matched ? kMatched : 0) | (state.asks ? kAsks : 0));
  write_prefix(writer, PacketType::kState, flags, 0, state.secret);
  writer.store<12>(state.message);
  writer.store<16>(state.credit_units);
  writer.store<20>(state.base);
  writer.store<24>(state.count);
  writer.store<26>(state.want);
  writer.store<28>(state.finished_below);
  const std::size_t bitmap = std::min(state.bitmap_bytes(), state.missing.size());
  std::copy_n(state.missing.begin(), bitmap, out.begin() + State::kFixed);
  return State::kFixed + bitmap;
}

std::size_t write(const Probe& probe, std::span<std::byte> out) {
  WireWriter writer(out.first<Probe::kSize>());
  write_prefix(writer, PacketType::kProbe, probe.quiet ? kQuiet : 0, 0, probe.secret);
  writer.store<12>(probe.message);
  writer.store<16>(probe.sent);
  writer.store<20>(probe.message_bytes);
  writer.store<24>(probe.segment);
  writer.store<26>(probe.window);
  writer.store<28>(probe.sent_units);
  write_open(probe.open, out.subspan<32, OpenRecord::kSize>());
  return Probe::kSize;
}

}  // namespace

static_assert(kMaxHeader == DataHeader::kSize + OpenRecord::kSize && kMaxHeader >= State::kFixed + State::kWindow / 8 &&
              kMaxHeader >= Probe::kSize && kMaxHeader >= kAckFixed + Ack::kMaxBlocks * AckBlock::kSize);

std::optional<std::uint64_t> peek_secret(std::span<const std::byte> bytes) {
  if (bytes.size() < kPrefix || std::to_integer<std::uint8_t>(bytes[0]) != kWireVersion) return std::nullopt;
  return WireReader(bytes.first<kPrefix>()).load<std::uint64_t, 4>();
}

bool parse(std::span<const std::byte> bytes, Packet& packet) {
  if (!peek_secret(bytes)) return false;
  switch (static_cast<PacketType>(bytes[1])) {
    case PacketType::kData: return read(bytes, parse_data, packet);
    case PacketType::kAck: return read(bytes, parse_ack, packet);
    case PacketType::kPosted: return read(bytes, parse_posted, packet);
    case PacketType::kState: return read(bytes, parse_state, packet);
    case PacketType::kProbe: return read(bytes, parse_probe, packet);
  }
  return false;
}

std::optional<Packet> parse(std::span<const std::byte> bytes) {
  std::optional<Packet> packet(std::in_place);
  if (!parse(bytes, *packet)) packet.reset();
  return packet;
}

std::size_t serialize(const Packet& packet, std::span<std::byte> out) {
  return std::visit([&](const auto& known) { return write(known, out); }, packet);
}

std::uint32_t first_index(std::uint64_t secret, std::uint32_t message, std::uint32_t packets) {
  // Neighbouring messages begin far apart.
  return static_cast<std::uint32_t>(mix64(secret + std::uint64_t{message} * kGoldenGamma) % packets);
}

}  // namespace clustar::mlt
