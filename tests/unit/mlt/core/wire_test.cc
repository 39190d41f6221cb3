#include "mlt/core/wire.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using Bytes = std::vector<std::byte>;

Bytes wire(const Packet& packet) {
  std::array<std::byte, kMaxHeader> buffer{};
  const std::size_t size = serialize(packet, buffer);
  return {buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(size)};
}

template <class T>
T any(Rng& rng) {  // the edges as often as the rest
  switch (rng.below(4)) {
    case 0: return 0;
    case 1: return std::numeric_limits<T>::max();
    default: return static_cast<T>(rng.next());
  }
}

Identity random_identity(Rng& rng) {
  const auto nibble = [&] {
    const auto value = static_cast<std::uint8_t>(rng.below(Identity::kMaxNibble + 2u));
    return value > Identity::kMaxNibble ? Identity::kUnknown : value;
  };
  Identity identity;
  identity.known = true;
  identity.local_number = rng.chance(0.5);
  identity.number = any<std::uint64_t>(rng) % Identity::kNumbers;
  identity.sender = any<std::uint16_t>(rng);
  identity.transfer = any<std::uint32_t>(rng);
  identity.channel = any<std::uint8_t>(rng);
  identity.function = any<std::uint8_t>(rng);
  identity.datatype = any<std::uint8_t>(rng);
  identity.algorithm = nibble();
  identity.protocol = nibble();
  return identity;
}

OpenRecord random_open(Rng& rng, std::uint32_t packets) {
  OpenRecord open;
  open.tag = static_cast<std::int32_t>(any<std::uint32_t>(rng));
  open.tag_seq = any<std::uint32_t>(rng);
  open.forgotten_below = any<std::uint32_t>(rng);
  open.stage = any<std::uint16_t>(rng);
  open.tolerant = rng.chance(0.5);
  open.communicator = any<std::uint64_t>(rng);
  open.collective = any<std::uint32_t>(rng);
  open.ranks = any<std::uint16_t>(rng);
  open.edges = any<std::uint16_t>(rng);
  open.collective_bytes = any<std::uint64_t>(rng);
  open.tolerance_ppm = static_cast<std::uint32_t>(rng.below(1'000'001));
  open.important = static_cast<std::uint32_t>(rng.below(std::uint64_t{packets} + 1));
  if (rng.chance(0.5)) open.identity = random_identity(rng);
  open.exchange = open.tolerant && rng.chance(0.5);
  return open;
}

struct Shape {
  std::uint32_t bytes;
  std::uint16_t segment;
  std::uint32_t packets;
};
Shape random_shape(Rng& rng) {
  while (true) {
    const auto segment = static_cast<std::uint16_t>(kMinSegment + rng.below(0x10000 - kMinSegment));
    const auto bytes = static_cast<std::uint32_t>(rng.chance(0.2) ? 0 : rng.below(kMaxMessageBytes + 1ull));
    if (packet_count(bytes, segment) <= kMaxPackets) return {bytes, segment, packet_count(bytes, segment)};
  }
}

void make_parity(DataHeader& data, Rng& rng) {
  data.retransmission = data.important = data.quiet = false, data.parity = true, data.passed = 0;
  data.index =
      static_cast<std::uint32_t>(rng.below(16ull * block_count(packet_count(data.message_bytes, data.segment))));
}

DataHeader random_data(Rng& rng) {
  const Shape shape = random_shape(rng);
  DataHeader data;
  data.secret = any<std::uint64_t>(rng);
  data.path = static_cast<std::uint8_t>(rng.below(kMaxPaths));
  data.traffic_class = static_cast<std::uint8_t>(rng.below(8));
  data.retransmission = rng.chance(0.5);
  data.quiet = data.retransmission && rng.chance(0.5);
  data.important = rng.chance(0.5);
  data.ack_now = rng.chance(0.5);
  data.message = any<std::uint32_t>(rng);
  data.index = static_cast<std::uint32_t>(rng.below(shape.packets));
  data.path_seq = any<std::uint32_t>(rng);
  data.message_bytes = shape.bytes;
  data.segment = shape.segment;
  data.passed = any<std::uint16_t>(rng);
  data.sent_units = any<std::uint32_t>(rng);
  data.trip = any<std::uint16_t>(rng);
  if (shape.packets > 1 && rng.chance(0.3)) make_parity(data, rng);
  if (rng.chance(0.5)) data.open = random_open(rng, shape.packets);
  return data;
}

Ack random_ack(Rng& rng) {
  Ack ack;
  ack.secret = any<std::uint64_t>(rng);
  ack.credit_units = any<std::uint32_t>(rng);
  ack.finished_below = any<std::uint32_t>(rng);
  ack.count = static_cast<std::uint8_t>(rng.below(Ack::kMaxBlocks + 1));
  for (std::size_t i = 0; i < ack.count; ++i) {
    ack.blocks[i] = {static_cast<std::uint8_t>(rng.below(kMaxPaths)),
                     static_cast<std::uint8_t>(rng.below(8)),
                     any<std::uint16_t>(rng),
                     any<std::uint32_t>(rng),
                     any<std::uint64_t>(rng),
                     any<std::uint16_t>(rng)};
  }
  return ack;
}

Posted random_posted(Rng& rng) {
  return {any<std::uint64_t>(rng), static_cast<std::int32_t>(any<std::uint32_t>(rng)), any<std::uint32_t>(rng),
          static_cast<std::uint32_t>(rng.below(kMaxMessageBytes + 1ull)), any<std::uint32_t>(rng)};
}

State random_state(Rng& rng) {
  State state;
  state.secret = any<std::uint64_t>(rng);
  state.complete = rng.chance(0.3);
  state.stop = state.complete || rng.chance(0.5);
  state.matched = rng.chance(0.5);
  state.asks = !state.stop && rng.chance(0.5);
  state.message = any<std::uint32_t>(rng);
  state.credit_units = any<std::uint32_t>(rng);
  state.finished_below = any<std::uint32_t>(rng);
  if (state.complete) return state;
  state.count = static_cast<std::uint16_t>(rng.below(State::kWindow + 1));
  state.base = static_cast<std::uint32_t>(rng.below(kMaxPackets - state.count + 1));
  state.want = static_cast<std::uint16_t>(rng.below(state.count + 1u));
  for (std::uint32_t i = 0; i < state.count; ++i) {
    if (rng.chance(0.5)) state.missing[i / 8] |= std::byte{0x80} >> (i % 8);
  }
  return state;
}

Probe random_probe(Rng& rng) {
  const Shape shape = random_shape(rng);
  Probe probe;
  probe.secret = any<std::uint64_t>(rng);
  probe.message = any<std::uint32_t>(rng);
  probe.quiet = rng.chance(0.3);
  probe.sent = probe.quiet ? shape.packets : static_cast<std::uint32_t>(rng.below(shape.packets + 1ull));
  probe.message_bytes = shape.bytes;
  probe.segment = shape.segment;
  probe.window = static_cast<std::uint16_t>(rng.below(shape.packets) / State::kWindow);
  probe.sent_units = any<std::uint32_t>(rng);
  probe.open = random_open(rng, shape.packets);
  return probe;
}

Packet random_packet(Rng& rng, std::uint64_t type) {
  switch (type) {
    case 0: return random_data(rng);
    case 1: return random_ack(rng);
    case 2: return random_posted(rng);
    case 3: return random_state(rng);
    default: return random_probe(rng);
  }
}

TEST(MltWire, EveryTypeRoundTripsOverItsWholeRange) {
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    const Packet packet = random_packet(rng, rng.below(5));
    const Bytes bytes = wire(packet);
    const auto parsed = parse(bytes);
    ASSERT_TRUE(parsed.has_value()) << "type " << packet.index();
    ASSERT_EQ(*parsed, packet) << "type " << packet.index();
    ASSERT_EQ(wire(*parsed), bytes);
    ASSERT_LE(bytes.size(), kMaxHeader);
  }
}

TEST(MltWire, EveryTruncationAndExtensionIsRefused) {
  Rng rng(2);
  for (int i = 0; i < 200; ++i) {
    Bytes bytes = wire(random_packet(rng, rng.below(5)));
    const std::size_t whole = bytes.size();
    for (std::size_t size = 0; size < whole; ++size) {
      EXPECT_FALSE(parse(std::span(bytes).first(size))) << size << " of " << whole;
    }
    for (int more = 0; more < 64; ++more) {
      bytes.push_back(std::byte{0});
      EXPECT_FALSE(parse(bytes)) << bytes.size() << " instead of " << whole;
    }
  }
}

// Whatever parses is written as the same bytes again: no bit of a packet is ignored.
TEST(MltWire, AFlippedBitIsRefusedOrChangesThePacket) {
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    const Packet packet = random_packet(rng, rng.below(5));
    const Bytes bytes = wire(packet);
    for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= std::byte{1} << (bit % 8);
      const auto parsed = parse(flipped);
      if (!parsed) continue;
      ASSERT_NE(*parsed, packet) << "type " << packet.index() << ", bit " << bit;
      ASSERT_EQ(wire(*parsed), flipped) << "type " << packet.index() << ", bit " << bit;
    }
  }
}

TEST(MltWire, OtherVersionsAndTypesAreRefused) {
  Rng rng(4);
  for (std::uint64_t type = 0; type < 5; ++type) {
    Bytes bytes = wire(random_packet(rng, type));
    for (int value = 0; value < 256; ++value) {
      Bytes other = bytes;
      other[0] = static_cast<std::byte>(value);
      EXPECT_EQ(parse(other).has_value(), value == kWireVersion);
      EXPECT_EQ(peek_secret(other).has_value(), value == kWireVersion);
      other = bytes;
      other[1] = static_cast<std::byte>(value);
      EXPECT_FALSE((value < 1 || value > 5) && parse(other)) << value;
    }
  }
}

TEST(MltWire, TheSecretIsReadFromEveryTypeAndNeedsTwelveBytes) {
  Rng rng(5);
  for (std::uint64_t type = 0; type < 5; ++type) {
    const Packet packet = random_packet(rng, type);
    const Bytes bytes = wire(packet);
    const std::uint64_t secret = std::visit([](const auto& known) { return known.secret; }, packet);
    EXPECT_EQ(peek_secret(bytes), secret);
    EXPECT_EQ(peek_secret(std::span(bytes).first(12)), secret);
    EXPECT_FALSE(peek_secret(std::span(bytes).first(11)));
  }
}

// Or the fuzzer begins with nothing that parses.
TEST(MltWire, TheFuzzersSeedsAreOfThisVersion) {
  int seeds = 0;
  for (const auto& seed :
       std::filesystem::directory_iterator(std::string(CLUSTAR_SOURCE_DIR) + "/tests/fuzz/corpus/mlt_wire")) {
    std::ifstream file(seed.path(), std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_TRUE(parse(std::as_bytes(std::span(text)))) << seed.path();
    ++seeds;
  }
  EXPECT_GE(seeds, 13);
}

bool accepted(const Packet& packet) { return parse(wire(packet)).has_value(); }

DataHeader data_of(std::uint32_t bytes, std::uint16_t segment, std::uint32_t index = 0) {
  DataHeader data;
  data.message_bytes = bytes;
  data.segment = segment;
  data.index = index;
  return data;
}

TEST(MltWire, DataFieldsAreCheckedAtTheirEdges) {
  EXPECT_TRUE(accepted(data_of(0, kMinSegment)));
  EXPECT_FALSE(accepted(data_of(0, kMinSegment - 1)));
  EXPECT_FALSE(accepted(data_of(0, 0)));
  EXPECT_FALSE(accepted(data_of(0, kMinSegment, 1))) << "an empty message has one packet";
  EXPECT_TRUE(accepted(data_of(129, 64, 2)));
  EXPECT_FALSE(accepted(data_of(128, 64, 2)));
  EXPECT_TRUE(accepted(data_of(kMaxMessageBytes, 1024, kMaxPackets - 1)));
  EXPECT_FALSE(accepted(data_of(kMaxMessageBytes, 1024, kMaxPackets)));
  EXPECT_FALSE(accepted(data_of(kMaxMessageBytes, 1023))) << "too many packets";
  EXPECT_FALSE(accepted(data_of(kMaxMessageBytes + 1, 65535)));
  EXPECT_FALSE(accepted(data_of(0xffffffff, 65535)));
  DataHeader data = data_of(1000, 100);
  data.path = kMaxPaths - 1;
  data.traffic_class = 7;
  EXPECT_TRUE(accepted(data));
}

TEST(MltWire, OpenRecordFieldsAreCheckedAtTheirEdges) {
  DataHeader data = data_of(1000, 100);
  Probe probe;
  probe.message_bytes = 1000;
  probe.segment = 100;
  const auto both = [&](const OpenRecord& open) {
    data.open = probe.open = open;
    EXPECT_EQ(accepted(data), accepted(probe));
    return accepted(data);
  };
  OpenRecord open;
  EXPECT_TRUE(both(open));
  open.tolerance_ppm = 1'000'000;
  EXPECT_TRUE(both(open));
  open.tolerance_ppm = 1'000'001;
  EXPECT_FALSE(both(open));
  open.tolerance_ppm = 0;
  open.important = 10;
  EXPECT_TRUE(both(open));
  open.important = 11;
  EXPECT_FALSE(both(open));
  Bytes bytes = wire(probe);
  bytes[32 + 44 + 3] = std::byte{0};
  ASSERT_TRUE(parse(bytes));
  bytes[32 + 14] = std::byte{8};  // an unknown flag
  EXPECT_FALSE(parse(bytes));
}

TEST(MltWire, AProbeNamesAWindowThatItsMessageHas) {
  Probe probe;
  probe.message_bytes = 100 * 2 * State::kWindow;
  probe.segment = 100;
  probe.window = 1;
  EXPECT_TRUE(accepted(probe));
  probe.window = 2;
  EXPECT_FALSE(accepted(probe));
  probe.message_bytes += 1;
  EXPECT_TRUE(accepted(probe));
  probe.message_bytes = 0;
  EXPECT_FALSE(accepted(probe));
  probe.window = 0;
  EXPECT_TRUE(accepted(probe)) << "an empty message has one packet";
}

TEST(MltWire, AnIdentityIsKnownOrAllZero) {
  Probe probe;
  probe.message_bytes = 1000;
  probe.segment = 100;
  const Bytes unknown = wire(probe);
  ASSERT_TRUE(parse(unknown));
  constexpr std::size_t kFlags = 32 + 14;
  for (const std::size_t at : {15, 48, 55, 56, 59, 60, 61, 62}) {
    Bytes bytes = unknown;
    bytes[32 + at] = std::byte{1};
    EXPECT_FALSE(parse(bytes)) << "byte " << at << " of what is not known";
    bytes[kFlags] |= std::byte{OpenRecord::kIdentified};
    EXPECT_TRUE(parse(bytes)) << at;
  }
  Bytes bytes = unknown;
  bytes[kFlags] = std::byte{OpenRecord::kLocalNumber};
  EXPECT_FALSE(parse(bytes)) << "a local number of nothing";
  bytes[kFlags] = std::byte{OpenRecord::kExchange};
  EXPECT_FALSE(parse(bytes)) << "an exchange without terms";
  bytes[kFlags] = std::byte{OpenRecord::kExchange | OpenRecord::kTolerant};
  EXPECT_TRUE(parse(bytes));
}

// Four bits each: what they cannot say is not known.
TEST(MltWire, AlgorithmAndProtocolAreNotKnownAboveFourteen) {
  Probe probe;
  probe.message_bytes = 1000;
  probe.segment = 100;
  Identity& identity = probe.open.identity;
  identity.known = true;
  for (const int value : {0, 1, 14, 15, 16, 254, 255}) {
    identity.algorithm = static_cast<std::uint8_t>(value);
    identity.protocol = 3;
    const auto parsed = parse(wire(probe));
    ASSERT_TRUE(parsed);
    const Identity& read = std::get<Probe>(*parsed).open.identity;
    EXPECT_EQ(read.algorithm, value <= 14 ? value : Identity::kUnknown);
    EXPECT_EQ(read.protocol, 3);
    EXPECT_EQ(read.function, Identity::kUnknown);
  }
}

TEST(MltWire, FlagsThatContradictThemselvesAreRefused) {
  State state;
  state.asks = true;
  EXPECT_TRUE(accepted(state));
  state.stop = true;
  EXPECT_FALSE(accepted(state)) << "who stops has nothing to ask";
  Probe probe;
  probe.message_bytes = 1000;
  probe.segment = 100;
  probe.sent = 10;
  probe.quiet = true;
  EXPECT_TRUE(accepted(probe));
  probe.sent = 9;
  EXPECT_FALSE(accepted(probe)) << "settled before all was sent";
}

TEST(MltWire, AckFieldsAreCheckedAtTheirEdges) {
  Ack ack;
  ack.count = Ack::kMaxBlocks;
  EXPECT_TRUE(accepted(ack));
  ack.count = 2;
  EXPECT_TRUE(accepted(ack));
  Bytes bytes = wire(ack);
  bytes[20] = std::byte{3};
  EXPECT_FALSE(parse(bytes)) << "more blocks than bytes";
  bytes.resize(24 + 4 * AckBlock::kSize);
  bytes[20] = std::byte{4};
  EXPECT_FALSE(parse(bytes)) << "more blocks than an acknowledgement has";
}

TEST(MltWire, PostedLengthIsChecked) {
  Posted posted;
  posted.length = kMaxMessageBytes;
  EXPECT_TRUE(accepted(posted));
  posted.length = kMaxMessageBytes + 1;
  EXPECT_FALSE(accepted(posted));
}

TEST(MltWire, StateFieldsAreCheckedAtTheirEdges) {
  State state;
  state.count = State::kWindow;
  state.base = kMaxPackets - State::kWindow;
  state.want = State::kWindow;
  EXPECT_TRUE(accepted(state));
  ++state.base;
  EXPECT_FALSE(accepted(state)) << "behind the last packet";
  state.base = 0xffffffff;
  EXPECT_FALSE(accepted(state)) << "the sum wraps";
  state.base = 0;
  state.want = State::kWindow + 1;
  EXPECT_FALSE(accepted(state)) << "wants more than it names";
  state.want = 0;
  state.count = State::kWindow + 1;
  EXPECT_FALSE(accepted(state));
  state.count = 3;
  state.missing[0] = std::byte{0xe0};
  EXPECT_TRUE(accepted(state));
  state.missing[0] = std::byte{0xf0};
  EXPECT_FALSE(accepted(state)) << "a bit behind the window";
  state = State{};
  state.complete = true;
  EXPECT_FALSE(accepted(state)) << "complete, and not over";
  state.stop = true;
  EXPECT_TRUE(accepted(state));
  state.count = 1;
  EXPECT_FALSE(accepted(state)) << "complete, and something is missing";
}

TEST(MltWire, ProbeFieldsAreCheckedAtTheirEdges) {
  Probe probe;
  probe.message_bytes = 1000;
  probe.segment = 100;
  probe.sent = 10;
  EXPECT_TRUE(accepted(probe));
  probe.sent = 11;
  EXPECT_FALSE(accepted(probe));
  probe.sent = 0;
  probe.segment = kMinSegment - 1;
  EXPECT_FALSE(accepted(probe));
  probe.segment = 1023;
  probe.message_bytes = kMaxMessageBytes;
  EXPECT_FALSE(accepted(probe));
}

TEST(MltWire, FirstIndicesSpreadOverTheMessage) {
  std::set<std::uint32_t> seen;
  for (std::uint32_t message = 0; message < 4000; ++message) {
    const std::uint32_t first = first_index(42, message, 100);
    ASSERT_LT(first, 100u);
    seen.insert(first);
  }
  EXPECT_EQ(seen.size(), 100u);
  EXPECT_EQ(first_index(42, 7, 1), 0u);
}

TEST(MltWire, UnitsRoundUpAndDistancesWrap) {
  EXPECT_EQ(units(0), 0u);
  EXPECT_EQ(units(1), 1u);
  EXPECT_EQ(units(64), 1u);
  EXPECT_EQ(units(65), 2u);
  EXPECT_EQ(distance(5, 0xfffffffe), 7);
  EXPECT_EQ(distance(0xfffffffe, 5), -7);
}

}  // namespace
}  // namespace clustar::mlt
