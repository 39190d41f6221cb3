// Both ends of what passed on each lane: what a sender counts, and what it spares.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <variant>

#include "tests/sim/direct.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kBytes = 1 << 20;

TEST(MltProof, FirstTransmissionsAreCountedByMessageAndLane) {
  Direct direct;
  direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 9 == 4; };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes, 7, tolerant_terms()));
  ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes));
  direct.run_until_received(4);
  std::map<std::pair<std::uint32_t, std::uint8_t>, std::uint16_t> counts;
  std::map<std::uint32_t, std::uint32_t> sums;
  for (const Transmit& transmit : direct.data) {
    const auto& header = std::get<DataHeader>(transmit.header);
    const bool tolerant = header.message < 3;
    auto& count = counts[{header.message, lane_of(header.path, header.traffic_class)}];
    if (tolerant && !header.retransmission) ++count, ++sums[header.message];
    ASSERT_EQ(header.passed, tolerant ? count : 0);
  }
  for (std::uint32_t message = 0; message < 3; ++message) EXPECT_EQ(sums[message], packet_count(kBytes, 1408));
}

TEST(MltProof, TheReceiverEndsAMessageWithoutAnyWordOfTheSender) {
  Direct direct;
  direct.loses = [](const DataHeader& header) { return header.index % 50 == 7; };
  direct.loses_control = [](const Packet& packet) { return std::holds_alternative<Probe>(packet); };
  ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes, 7, tolerant_terms()));
  const Duration took = direct.run_until_received(1);
  EXPECT_EQ(direct.missing, 15 * 1408u);
  Direct clean;
  ASSERT_TRUE(clean.post(kBytes) && clean.send(kBytes, 7, tolerant_terms()));
  EXPECT_LT(took, clean.run_until_received(1) + microseconds(10)) << "no round trip more";
}

// The sender spares no more than the receiver gives up: what it spared and is wanted would cost a round trip.
TEST(MltProof, WhatTheSenderSparesIsHardlyEverWanted) {
  Direct direct;
  SendTerms one_percent = tolerant_terms();
  one_percent.tolerance_ppm = 10'000;
  int wanted = 0;
  direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 20 == 7; };
  direct.loses_control = [&](const Packet& packet) {
    const auto* state = std::get_if<State>(&packet);
    wanted += state != nullptr && state->want > 0 ? 1 : 0;
    return false;
  };
  for (int i = 1; i <= 20; ++i) {
    ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes, 7, one_percent));
    direct.run_until_received(i);
    direct.run(milliseconds(1));
  }
  EXPECT_GT(direct.missing, 0u);
  EXPECT_LE(direct.missing, 20u * kBytes / 100);
  EXPECT_LE(wanted, 4);
  EXPECT_LT(direct.from.sender(direct.sender).counters().retransmitted, 20u * 38) << "38 of each are lost";
}

}  // namespace
}  // namespace clustar::mlt::test
