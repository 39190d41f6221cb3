#include "transport/io/decorators/faulty_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/unit/transport/io/recording_io.h"

namespace clustar::transport::io {
namespace {

using std::chrono::microseconds;
using testing::ElementsAre;
using testing::SizeIs;

struct Bed {
  explicit Bed(std::string_view text, std::size_t held_packets = 1024, Capabilities can = RecordingIo().can) {
    auto owned = std::make_unique<RecordingIo>();
    inner = owned.get();
    inner->can = can;
    const auto spec = FaultSpec::parse(text);
    EXPECT_TRUE(spec) << text;
    io = std::move(FaultyIo::create(std::move(owned), *spec, {held_packets, &clock}).value());
  }
  std::size_t send(std::span<const TxPacket> offered) {
    auto taken = io->send(offered);
    EXPECT_TRUE(taken) << taken.error().message;
    return taken.value_or(0);
  }
  std::size_t send(std::uint32_t number) {
    const TxPacket packet = packets.numbered(number);
    return send(std::span(&packet, 1));
  }
  // Everything, letting time pass when nothing is taken.
  void send_all(std::span<const TxPacket> rest) {
    for (int rounds = 0; !rest.empty() && rounds < 1'000'000; ++rounds) {
      const std::size_t taken = send(rest);
      rest = rest.subspan(taken);
      if (taken == 0) advance(microseconds(10));
    }
    EXPECT_TRUE(rest.empty());
  }
  void advance(Duration duration) {
    clock.time += duration;
    io->wait(Duration(0));
  }
  std::vector<std::uint32_t> sent() const { return numbers(inner->sent); }

  ManualClock clock;
  Packets packets;
  std::unique_ptr<FaultyIo> io;
  RecordingIo* inner = nullptr;
};

std::vector<std::uint32_t> count_up(std::uint32_t count) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

TEST(FaultyIo, WithoutFaultsBurstsPassInOneCall) {
  Bed bed("");
  const auto packets = bed.packets.sequence(500);
  EXPECT_EQ(bed.send(packets), 500u);
  EXPECT_EQ(bed.inner->calls, 1u);
  EXPECT_EQ(bed.sent(), count_up(500));
  EXPECT_EQ(bed.inner->sent[9].packet.payload.mr, packets[9].payload.mr);  // not copied
  EXPECT_EQ(bed.io->counters().untouched, 500u);
}

TEST(FaultyIo, LossTakesItsShareAndLeavesTheRestWhole) {
  Bed bed("loss=0.05,burst=0.001/0.2/0.8,seed=9");
  bed.send_all(bed.packets.sequence(20000));
  const FaultCounters& counted = bed.io->counters();
  EXPECT_EQ(counted.taken, 20000u);
  EXPECT_NEAR(static_cast<double>(counted.lost), 1000, 5 * std::sqrt(1000 * 0.95));
  EXPECT_GT(counted.burst_lost, 0u);
  EXPECT_EQ(bed.inner->sent.size(), 20000 - counted.lost - counted.burst_lost);
  EXPECT_EQ(counted.untouched, bed.inner->sent.size());
  EXPECT_TRUE(std::ranges::is_sorted(bed.sent()));
  for (const auto& sent : bed.inner->sent) ASSERT_TRUE(bed.packets.whole(sent));
  EXPECT_LT(bed.inner->calls, 3000u);  // runs between losses go in one call
}

TEST(FaultyIo, TheSameSeedGivesTheSameBytesWhateverTheBursts) {
  const char* text = "loss=0.05,reorder=0.1/3,duplicate=0.1,corrupt=0.2,seed=4";
  Bed one(text);
  Bed two(text);
  one.send_all(one.packets.sequence(3000));
  for (std::uint32_t i = 0; i < 3000; ++i) ASSERT_EQ(two.send(i), 1u);
  one.advance(FaultSpec::kReorderPatience);
  two.advance(FaultSpec::kReorderPatience);
  ASSERT_EQ(one.inner->sent.size(), two.inner->sent.size());
  for (std::size_t i = 0; i < one.inner->sent.size(); ++i) {
    ASSERT_EQ(one.inner->sent[i].header, two.inner->sent[i].header) << i;
    ASSERT_EQ(one.inner->sent[i].payload, two.inner->sent[i].payload) << i;
  }
  Bed other("loss=0.05,reorder=0.1/3,duplicate=0.1,corrupt=0.2,seed=5");
  other.send_all(other.packets.sequence(3000));
  EXPECT_NE(other.sent(), one.sent());
}

TEST(FaultyIo, BackPressureChangesNoFate) {
  const char* text = "loss=0.2,duplicate=0.1";
  Bed free(text);
  Bed tight(text);
  free.send_all(free.packets.sequence(2000));
  const auto packets = tight.packets.sequence(2000);
  std::span<const TxPacket> rest = packets;
  for (int i = 0; !rest.empty() && i < 100'000; ++i) {
    tight.inner->room = static_cast<std::size_t>(i % 3);
    rest = rest.subspan(tight.send(rest));
  }
  tight.inner->room = 100;
  tight.advance(Duration(0));
  EXPECT_EQ(tight.sent(), free.sent());
  EXPECT_EQ(tight.io->held(), 0u);
}

TEST(FaultyIo, AReorderedPacketLetsThatManyPass) {
  for (const char* text : {"reorder=0.02/3", "reorder=0.02/3,delay=10us"}) {
    Bed bed(text, 8192);
    bed.send_all(bed.packets.sequence(5000));
    bed.advance(microseconds(10));
    bed.advance(FaultSpec::kReorderPatience);
    const auto order = bed.sent();
    ASSERT_THAT(order, SizeIs(5000));
    EXPECT_EQ(std::set<std::uint32_t>(order.begin(), order.end()).size(), 5000u);
    std::size_t late = 0, by_three = 0;
    for (std::size_t i = 0; i < order.size(); ++i) {
      const auto moved = static_cast<std::int64_t>(i) - order[i];
      late += moved > 0;
      by_three += moved == 3;
      ASSERT_LE(moved, 3 + 3);  // its three, and others that were held back meanwhile
      ASSERT_GE(moved, -6);
    }
    const auto reordered = static_cast<double>(bed.io->counters().reordered);
    EXPECT_NEAR(reordered, 100, 50);
    EXPECT_NEAR(static_cast<double>(late), reordered, 20);
    EXPECT_GT(static_cast<double>(by_three), reordered * 0.75) << text;
    for (const auto& sent : bed.inner->sent) ASSERT_TRUE(bed.packets.whole(sent));
  }
}

TEST(FaultyIo, TheLastPacketsAreNotHeldForEver) {
  Bed bed("reorder=1/3");
  EXPECT_EQ(bed.send(0) + bed.send(1), 2u);
  EXPECT_THAT(bed.sent(), SizeIs(0));
  bed.io->wait(std::chrono::seconds(1));
  EXPECT_EQ(bed.inner->waited.back(), FaultSpec::kReorderPatience);  // wakes for them
  bed.advance(FaultSpec::kReorderPatience - Duration(1));
  EXPECT_THAT(bed.sent(), SizeIs(0));
  bed.advance(Duration(1));
  EXPECT_THAT(bed.sent(), ElementsAre(0, 1));
}

TEST(FaultyIo, ReordersByTime) {
  Bed bed("reorder=1/20us,path=1");
  TxPacket held = bed.packets.numbered(0, 32, 1);
  EXPECT_EQ(bed.send(std::span(&held, 1)), 1u);
  bed.send(1);  // of another path: passes
  bed.clock.time += microseconds(20);
  bed.send(2);
  EXPECT_THAT(bed.sent(), ElementsAre(1, 0, 2));
}

TEST(FaultyIo, DuplicatesFollowTheirOriginals) {
  Bed bed("duplicate=1");
  bed.send_all(bed.packets.sequence(3));
  EXPECT_THAT(bed.sent(), ElementsAre(0, 0, 1, 1, 2, 2));
  for (const auto& sent : bed.inner->sent) EXPECT_TRUE(bed.packets.whole(sent));
  EXPECT_EQ(bed.io->counters().duplicated, 3u);
}

std::size_t differing_bits(std::span<const std::byte> a, std::span<const std::byte> b) {
  std::size_t bits = 0;
  for (std::size_t i = 0; i < a.size(); ++i) bits += std::popcount(std::to_integer<unsigned>(a[i] ^ b[i]));
  return bits;
}

TEST(FaultyIo, CorruptionFlipsOneBitOfACopy) {
  for (const char* where : {"", "/header", "/payload"}) {
    Bed bed("corrupt=1" + std::string(where));
    const std::vector<std::byte> before = bed.packets.bytes();
    const std::string_view place = where;
    std::size_t in_header = 0;
    for (std::uint32_t i = 0; i < 400; ++i) {
      ASSERT_EQ(bed.send(i), 1u);
      const TxPacket made = bed.packets.numbered(i);
      const auto& sent = bed.inner->sent.back();
      ASSERT_EQ(sent.payload.size(), 32u);
      const std::size_t header = differing_bits(sent.header, made.header.bytes());
      const std::size_t payload = differing_bits(sent.payload, std::span(before).subspan(made.payload.offset, 32));
      ASSERT_EQ(header + payload, 1u);
      in_header += header;
    }
    EXPECT_EQ(bed.packets.bytes(), before);
    EXPECT_EQ(bed.io->counters().corrupted, 400u);
    if (place.empty()) {
      EXPECT_NEAR(static_cast<double>(in_header), 80, 40);  // 8 bytes of 40
    } else {
      EXPECT_EQ(in_header, place == "/header" ? 400u : 0u);
    }
  }
}

TEST(FaultyIo, DelayedPacketsLeaveInOrderWhenTheyAreDue) {
  Bed bed("delay=100us,jitter=50us");
  bed.send_all(bed.packets.sequence(200));
  EXPECT_EQ(bed.io->held(), 200u);
  bed.advance(microseconds(99));
  EXPECT_THAT(bed.sent(), SizeIs(0));
  bed.advance(microseconds(52));
  EXPECT_EQ(bed.sent(), count_up(200));
  EXPECT_EQ(bed.io->held(), 0u);
}

TEST(FaultyIo, JitterKeepsTheOrder) {
  Bed bed("jitter=3ns");  // often none
  for (std::uint32_t i = 0; i < 1000; ++i) {
    ASSERT_EQ(bed.send(i), 1u);
    bed.clock.time += Duration(1);
  }
  bed.advance(microseconds(100));
  EXPECT_EQ(bed.sent(), count_up(1000));
}

TEST(FaultyIo, ReceiveAndSendLetTimePassToo) {
  Bed bed("delay=10us,class=0");
  bed.send(0);
  bed.clock.time += microseconds(10);
  RxPacket none;
  EXPECT_EQ(bed.io->receive(std::span(&none, 1)).value(), 0u);
  EXPECT_THAT(bed.sent(), ElementsAre(0));
  bed.send(1);
  bed.clock.time += microseconds(10);
  TxPacket other_class = bed.packets.numbered(2, 32, 0, 5);
  bed.send(std::span(&other_class, 1));
  EXPECT_THAT(bed.sent(), ElementsAre(0, 1, 2));
}

TEST(FaultyIo, TheCallersMemoryIsFreeAfterSend) {
  Bed bed("delay=10us");
  const std::vector<std::byte> before = bed.packets.bytes();
  bed.send(0);
  std::ranges::fill(bed.packets.bytes(), std::byte{0});
  bed.advance(microseconds(10));
  ASSERT_THAT(bed.inner->sent, SizeIs(1));
  EXPECT_TRUE(std::ranges::equal(bed.inner->sent[0].payload, std::span(before).first(32)));
}

TEST(FaultyIo, FullMemoryIsBackPressure) {
  Bed bed("delay=10us", 16);
  const auto packets = bed.packets.sequence(40);
  EXPECT_EQ(bed.send(packets), 16u);
  EXPECT_EQ(bed.send(std::span(packets).subspan(16)), 0u);
  EXPECT_EQ(bed.io->held(), 16u);
  EXPECT_EQ(bed.io->counters().back_pressure, 2u);
  bed.io->wait(std::chrono::seconds(1));
  EXPECT_EQ(bed.inner->waited.back(), microseconds(10));  // until there is room
  bed.clock.time += microseconds(10);
  EXPECT_EQ(bed.send(std::span(packets).subspan(16)), 16u);
  bed.advance(microseconds(10));
  EXPECT_EQ(bed.send(std::span(packets).subspan(32)), 8u);
  bed.advance(microseconds(10));
  EXPECT_EQ(bed.sent(), count_up(40));
}

TEST(FaultyIo, WaitTellsOfRoomThatItMadeItself) {
  Bed bed("delay=10us", 2);
  const auto packets = bed.packets.sequence(3);
  EXPECT_EQ(bed.send(packets), 2u);
  bed.clock.time += microseconds(10);
  bed.io->wait(std::chrono::seconds(1));
  EXPECT_EQ(bed.inner->waited.back(), Duration(0));
}

TEST(FaultyIo, MemoryThatTheBackendStillReadsIsNotReused) {
  Capabilities can = RecordingIo().can;
  can.copies = false;
  Bed bed("corrupt=1/header", 4, can);
  const auto packets = bed.packets.sequence(8);
  std::set<std::size_t> offsets;
  EXPECT_EQ(bed.send(std::span(packets).first(2)), 2u);
  for (const auto& sent : bed.inner->sent) offsets.insert(sent.packet.payload.offset);
  EXPECT_EQ(offsets.size(), 2u);
  bed.io->wait(Duration(0));
  bed.inner->sent.clear();
  bed.send_all(packets);
  EXPECT_THAT(bed.inner->sent, SizeIs(8));
  for (std::size_t i = 1; i < 8; ++i) {
    EXPECT_NE(bed.inner->sent[i].packet.payload.offset, bed.inner->sent[i - 1].packet.payload.offset) << i;
  }
}

TEST(FaultyIo, AFullBackendHandsNothingOn) {
  Capabilities can = RecordingIo().can;
  can.copies = false;
  Bed bed("corrupt=1/header", 2, can);
  const auto packets = bed.packets.sequence(3);
  bed.inner->room = 1;
  EXPECT_EQ(bed.send(packets), 2u);  // one is handed over, one waits
  EXPECT_EQ(bed.send(std::span(packets).subspan(2)), 0u);
  EXPECT_EQ(bed.io->counters().back_pressure, 0u);
  bed.inner->room = 1;
  EXPECT_EQ(bed.send(std::span(packets).subspan(2)), 1u);  // the second went, and with it the first
  EXPECT_EQ(bed.inner->sent.size(), 2u);
}

TEST(FaultyIo, AFullBackendKeepsTheOrder) {
  Bed bed("delay=10us");
  bed.send_all(bed.packets.sequence(100));
  bed.inner->room = 10;
  bed.advance(microseconds(10));
  EXPECT_EQ(bed.sent(), count_up(10));
  EXPECT_EQ(bed.send(100), 0u);  // those that wait go first
  bed.io->wait(std::chrono::seconds(1));
  EXPECT_EQ(bed.inner->waited.back(), std::chrono::seconds(1));  // for the backend alone
  bed.inner->room = 1000;
  EXPECT_EQ(bed.send(100), 1u);
  bed.advance(microseconds(10));
  EXPECT_EQ(bed.sent(), count_up(101));
}

TEST(FaultyIo, BadPacketsAreTheBackendsToRefuse) {
  Bed bed("loss=1,delay=10us");
  TxPacket bad = bed.packets.numbered(1);
  bad.header = Header();
  auto taken = bed.io->send(std::span(&bad, 1));
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(bed.send(2), 1u);
  EXPECT_EQ(bed.io->counters().lost, 1u);
}

TEST(FaultyIo, ARefusedPacketLeavesTheOthersFates) {
  Bed all("loss=0.3");
  Bed one_bad("loss=0.3");
  auto packets = all.packets.sequence(400);
  all.send_all(packets);
  std::vector<std::uint32_t> expected = all.sent();
  const std::uint32_t bad = expected[100];
  std::erase(expected, bad);
  packets[bad].peer = one_bad.inner->bad_peer;
  std::span<const TxPacket> rest = packets;
  while (!rest.empty()) {
    const auto taken = one_bad.io->send(rest);
    rest = rest.subspan(taken ? *taken : 1);
  }
  EXPECT_EQ(one_bad.sent(), expected);
}

TEST(FaultyIo, AHeldPacketThatTheBackendRefusesIsCounted) {
  Bed bed("delay=10us");
  TxPacket bad = bed.packets.numbered(1);
  bad.peer = bed.inner->bad_peer;
  EXPECT_EQ(bed.send(std::span(&bad, 1)) + bed.send(2), 2u);
  bed.advance(microseconds(10));
  EXPECT_THAT(bed.sent(), ElementsAre(2));
  EXPECT_EQ(bed.io->counters().refused, 1u);
  EXPECT_EQ(bed.io->held(), 0u);
}

TEST(FaultyIo, TheDevicesEndIsReported) {
  Bed bed("delay=10us");
  bed.send(1);
  bed.inner->broken = true;
  bed.advance(microseconds(10));
  const TxPacket packet = bed.packets.numbered(2);
  EXPECT_EQ(bed.io->send(std::span(&packet, 1)).error().code, ErrorCode::kSystem);
  RxPacket none;
  EXPECT_EQ(bed.io->receive(std::span(&none, 1)).error().code, ErrorCode::kSystem);
}

TEST(FaultyIo, MemoryOfAnotherKindIsNotTouched) {
  Bed bed("duplicate=1,corrupt=1,delay=10us");
  Packets elsewhere(gdr::MemoryKind::kCuda);
  const TxPacket packet = elsewhere.numbered(1);
  EXPECT_EQ(bed.send(std::span(&packet, 1)), 1u);
  ASSERT_THAT(bed.inner->sent, SizeIs(1));
  EXPECT_EQ(bed.inner->sent[0].packet.payload.mr, packet.payload.mr);
  EXPECT_EQ(bed.io->counters().not_copied, 1u);
}

TEST(FaultyIo, MemoryThatCannotBeRegisteredIsAnErrorAtOnce) {
  auto inner = std::make_unique<RecordingIo>();
  inner->registers = false;
  const auto io = FaultyIo::create(std::move(inner), FaultSpec::parse("duplicate=0.1").value());
  ASSERT_FALSE(io);
  EXPECT_EQ(io.error().code, ErrorCode::kUnavailable);
}

TEST(FaultyIo, ReceivedPacketsAreLostAndReleased) {
  Bed bed("loss=0.5,direction=in");
  for (std::uint32_t i = 0; i < 2000; ++i) {
    bed.inner->incoming.push_back({});
    bed.inner->incoming.back().cookie = i;
  }
  std::vector<std::uint64_t> cookies;
  RxPacket burst[16];
  while (const std::size_t count = bed.io->receive(burst).value()) {
    for (const RxPacket& packet : std::span(burst, count)) cookies.push_back(packet.cookie);
  }
  EXPECT_NEAR(static_cast<double>(cookies.size()), 1000, 5 * std::sqrt(500));
  EXPECT_EQ(bed.inner->unreleased, cookies.size());
  EXPECT_EQ(bed.io->counters().received_lost, 2000 - cookies.size());
  EXPECT_TRUE(std::ranges::is_sorted(cookies));
  EXPECT_EQ(bed.send(bed.packets.sequence(100)), 100u);
  EXPECT_THAT(bed.inner->sent, SizeIs(100));  // what is sent is not lost
}

}  // namespace
}  // namespace clustar::transport::io
