#include "mlt/core/send/flight.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class FlightTest : public testing::Test, protected FlightObserver {
 protected:
  void on_delivered(const SentPacket& packet, TimePoint) override { ++fates[packet.index].delivered; }
  void on_lost(const SentPacket& packet, std::uint8_t, Evidence evidence, TimePoint) override {
    ++fates[packet.index].lost;
    fates[packet.index].evidence = evidence;
  }
  void on_doubted(const SentPacket& packet) override { ++fates[packet.index].doubted; }

  // Packets first .. first + count - 1 of message 0, one path_seq each, at the same moment.
  void send(std::uint32_t first, std::uint32_t count, std::uint8_t path = 0, bool uncredited = false) {
    const std::uint32_t lane = flight.lane(path, 1);
    for (std::uint32_t index = first; index < first + count; ++index) {
      flight.send(lane, {0, index, 1000, false, false, uncredited, false, now}, now);
    }
  }
  static AckBlock block(std::uint32_t largest, std::uint64_t before, std::uint8_t path = 0) {
    AckBlock block;
    block.path = path;
    block.traffic_class = 1;
    block.largest = largest;
    block.before = before;
    return block;
  }

  struct Fate {
    int delivered = 0, lost = 0, doubted = 0;
    Evidence evidence = Evidence::kOrder;
  };
  Options options;
  TimePoint now{std::chrono::seconds(1)};
  Flight flight{options, 4};
  std::map<std::uint32_t, Fate> fates;  // by index
};

TEST_F(FlightTest, ThreeLaterPacketsOfItsLaneMakeOneLost) {
  send(0, 5);
  now += microseconds(10);
  const auto two = flight.on_block(block(2, 0b01), {}, *this, now);  // 1 and 2 came
  ASSERT_TRUE(two);
  EXPECT_EQ(two->packets, 2u);
  EXPECT_EQ(two->bytes, 2000u);
  EXPECT_EQ(two->rtt, microseconds(10));
  EXPECT_EQ(fates[0].lost, 0) << "two later ones";
  ASSERT_TRUE(flight.on_block(block(3, 0b011), {}, *this, now));
  EXPECT_EQ(fates[0].lost, 1);
  EXPECT_EQ(fates[0].evidence, Evidence::kOrder);
  EXPECT_EQ(flight.lost(), 1u);
  EXPECT_EQ(flight.bytes(), 1000u) << "of the last packet";
  EXPECT_TRUE(flight.is_consistent());
}

TEST_F(FlightTest, PacketsOfAnotherLaneProveNothing) {
  send(0, 1, 0);
  send(1, 8, 1);
  now += microseconds(10);
  ASSERT_TRUE(flight.on_block(block(7, ~std::uint64_t{0}, 1), {}, *this, now));
  EXPECT_EQ(fates[0].lost, 0);
}

TEST_F(FlightTest, OneLaterPacketIsEnoughAfterAQuarterOfARoundTrip) {
  send(0, 2);
  now += microseconds(100);
  ASSERT_TRUE(flight.on_block(block(1, 0), {}, *this, now));
  EXPECT_EQ(fates[0].lost, 0);
  ASSERT_LE(flight.next_timeout(), now + microseconds(25));
  now = flight.next_timeout();
  flight.on_timeout(*this, now);
  EXPECT_EQ(fates[0].lost, 1);
  EXPECT_EQ(fates[0].evidence, Evidence::kOrder);
}

// Of the end of a lane one packet is given up, and of the others the receiver is asked.
TEST_F(FlightTest, ATailIsLostOnceWhatLeftLaterHasCome) {
  send(0, 3, 0);
  now += microseconds(5);
  send(3, 1, 1);
  now += microseconds(100);
  for (; flight.next_timeout() < now + milliseconds(1);) {
    now = std::max(now, flight.next_timeout());
    flight.on_timeout(*this, now);
  }
  EXPECT_EQ(fates[0].lost, 0) << "nothing has come at all";
  const TimePoint newest = flight.newest_delivered();
  ASSERT_TRUE(flight.on_block(block(0, 0, 1), {}, *this, now));
  flight.wake_tails(newest, now);
  for (int i = 0; i < 10 && fates[0].lost == 0; ++i) {
    now = flight.next_timeout();
    flight.on_timeout(*this, now);
  }
  EXPECT_EQ(fates[0].lost, 1);
  EXPECT_EQ(fates[0].evidence, Evidence::kTime);
  EXPECT_EQ(fates[1].lost + fates[2].lost, 0);
  EXPECT_EQ(fates[1].doubted, 1);
  EXPECT_EQ(fates[2].doubted, 1);
}

TEST_F(FlightTest, AStateSettlesWhatHadTheTimeToCome) {
  send(0, 3);
  State state;
  state.count = 3;
  state.missing[0] = std::byte{0b0110'0000};  // 1 and 2
  now += microseconds(10);
  Flight::Delivery told = flight.on_state(0, state, false, *this, now);
  EXPECT_EQ(told.packets, 1u);
  EXPECT_FALSE(told.lost) << "they may be on their way";
  now += milliseconds(100);
  told = flight.on_state(0, state, false, *this, now);
  EXPECT_EQ(told.packets, 0u) << "each is told of once";
  EXPECT_TRUE(told.lost);
  EXPECT_EQ(fates[1].evidence, Evidence::kTime);
  EXPECT_EQ(fates[2].lost, 1);
  EXPECT_EQ(flight.bytes(), 0u);
}

TEST_F(FlightTest, WhatWasNeverSentIsRefused) {
  EXPECT_FALSE(flight.on_block(block(0, 0), {}, *this, now)) << "no lane";
  send(0, 2);
  EXPECT_FALSE(flight.on_block(block(2, 0), {}, *this, now));
  EXPECT_FALSE(flight.on_block(block(0xffff'ffff, 0), {}, *this, now));
  EXPECT_FALSE(flight.on_block(block(0, 0, 4), {}, *this, now)) << "no such path";
  EXPECT_TRUE(fates.empty());
  EXPECT_EQ(flight.bytes(), 2000u);
}

TEST_F(FlightTest, WhatIsForgottenIsNotToldOf) {
  send(0, 4, 0, true);
  EXPECT_EQ(flight.uncredited_bytes(), 4000u);
  flight.forget(0);
  EXPECT_EQ(flight.bytes(), 0u);
  EXPECT_EQ(flight.uncredited_bytes(), 0u);
  ASSERT_TRUE(flight.on_block(block(3, ~std::uint64_t{0}), {}, *this, now)) << "a late acknowledgement";
  EXPECT_TRUE(fates.empty());
}

TEST_F(FlightTest, ALaneIsFullUntilItsOldestPacketIsSettled) {
  options.max_in_flight = 4;
  Flight small(options, 4);
  const std::uint32_t lane = small.lane(0, 1);
  for (std::uint32_t i = 0; i < 4; ++i) small.send(lane, {0, i, 1000, false, false, false, false, now}, now);
  EXPECT_FALSE(small.has_room());
  ASSERT_TRUE(small.on_block(block(0, 0), {}, *this, now + microseconds(1)));
  EXPECT_TRUE(small.has_room());
}

// Whatever is acknowledged, in whatever order: of each packet one word, and sums that agree.
TEST_F(FlightTest, EachPacketHasOneFate) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Rng rng(seed);
    Flight random(options, 4);
    fates.clear();
    std::uint32_t sent = 0;
    std::vector<std::uint32_t> last(4, 0);
    for (int step = 0; step < 200; ++step) {
      now += microseconds(rng.below(50));
      const auto path = static_cast<std::uint8_t>(rng.below(4));
      switch (rng.below(4)) {
        case 0:
        case 1: {
          const std::uint32_t lane = random.lane(path, 1);
          if (!random.has_room()) break;
          random.send(lane, {0, sent++, 1000, false, false, rng.chance(0.2), rng.chance(0.1), now}, now);
          last[path] = random.next_seq(lane);
          break;
        }
        case 2:
          (void)random.on_block(block(static_cast<std::uint32_t>(rng.below(last[path] + 3)), rng.next(), path), {},
                                *this, now);
          break;
        default: random.on_timeout(*this, now);
      }
      ASSERT_TRUE(random.is_consistent()) << "seed " << seed;
    }
    std::uint64_t settled = 0;
    for (const auto& [index, fate] : fates) {
      ASSERT_LE(fate.delivered + fate.lost, 1) << "seed " << seed << ", packet " << index;
      settled += static_cast<std::uint64_t>(fate.delivered + fate.lost);
    }
    ASSERT_EQ(random.bytes(), 1000 * (sent - settled)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace clustar::mlt
