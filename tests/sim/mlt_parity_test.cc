// Parity at both ends: when it goes, what is rebuilt by it, and what stays as it was.
#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <variant>

#include "tests/sim/direct.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kBytes = 1 << 20;

Options with_parity() {
  Options options = opted_in();
  options.parity = true;
  options.parity_from = Duration(0);
  return options;
}

bool first_of_a_hundred(const DataHeader& header) {
  return !header.parity && !header.retransmission && header.index % 100 == 7;
}

Sender::Counters count(Direct& direct) { return direct.from.sender(direct.sender).counters(); }

void run(Direct& direct, int messages, const SendTerms& terms = {}, std::uint32_t length = kBytes) {
  for (int i = 0; i < messages; ++i) {
    ASSERT_TRUE(direct.post(length) && direct.send(kBytes, 7, terms));
    direct.run_until_received(direct.received + 1);
    direct.run(milliseconds(1));
  }
}

TEST(MltParity, ALineThatLosesNothingCarriesNone) {
  Direct direct(with_parity());
  run(direct, 20);
  EXPECT_EQ(count(direct).parity, 0u);
}

TEST(MltParity, WhatIsLostIsRebuilt) {
  Direct direct(with_parity());
  direct.loses = first_of_a_hundred;
  run(direct, 20);
  EXPECT_EQ(direct.missing, 0u);
  EXPECT_GT(count(direct).parity, 0u);
  EXPECT_GT(direct.rebuilt, 100u);
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().rebuilt, direct.rebuilt);
  EXPECT_LT(count(direct).parity, count(direct).packets / 8);
}

TEST(MltParity, WhatIsLostAtTheEndCostsNoRoundTrip) {
  const auto time_of_last = [](bool parity) {
    Options options = with_parity();
    options.parity = parity;
    Direct direct(options);
    direct.loses = [](const DataHeader& header) {
      return !header.parity && !header.retransmission && header.index == 18;
    };
    Duration took{};
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(direct.post(20 * options.segment) && direct.send(20 * options.segment));
      took = direct.run_until_received(i + 1);
      direct.run(milliseconds(1));
    }
    return took;
  };
  EXPECT_LT(time_of_last(true) + microseconds(5), time_of_last(false));
}

TEST(MltParity, ItIsOfTheBlockBeforeItAndNeverSentAgain) {
  Direct direct(with_parity());
  direct.loses = [](const DataHeader& header) { return header.parity || first_of_a_hundred(header); };
  run(direct, 10);
  EXPECT_EQ(direct.missing, 0u);
  EXPECT_EQ(direct.rebuilt, 0u);
  EXPECT_GT(count(direct).parity, 0u);
  std::set<std::tuple<std::uint32_t, std::uint32_t>> seen;
  std::map<std::uint32_t, std::uint32_t> sent;
  for (const Transmit& transmit : direct.data) {
    const auto& header = std::get<DataHeader>(transmit.header);
    if (!header.parity) {
      if (!header.retransmission) ++sent[header.message];
      continue;
    }
    EXPECT_TRUE(seen.emplace(header.message, header.index).second);
    EXPECT_EQ(transmit.length, direct.options.segment);
    EXPECT_GE(sent[header.message],
              std::min((header.index / kMaxParity + 1) * kParityBlock, packet_count(kBytes, direct.options.segment)));
  }
}

// It had the time to come as all that the receiver tells of: it must not fill the window of who has only that left.
TEST(MltParity, WhatIsLostOfItDoesNotStayOnItsWay) {
  Options options = with_parity();
  options.congestion = FixedRate({.window = options.segment, .rate = options.line_rate});
  Direct direct(options);
  direct.loses = [&](const DataHeader& header) {
    return direct.received >= 10 ? direct.data.size() % 7 < 4 : first_of_a_hundred(header);
  };
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(direct.post(3000) && direct.send(3000));
    direct.run_until_received(i + 1);
  }
  EXPECT_EQ(direct.received, 100);
}

TEST(MltParity, AReceiverWithoutRoomDoesWithout) {
  for (const bool has_code : {true, false}) {
    Options options = with_parity();
    options.max_parity = has_code ? 0 : 64;
    Direct direct(options);
    Options deaf = options;
    deaf.parity = has_code;
    direct.to.close(direct.receiver);
    direct.receiver = direct.to.open_receiver(1, Direct::kSecret, direct.now, deaf);
    direct.loses = first_of_a_hundred;
    run(direct, 10);
    EXPECT_GT(count(direct).parity, 0u);
    EXPECT_EQ(direct.rebuilt, 0u);
    EXPECT_EQ(direct.missing, 0u);
    direct.to.close(direct.receiver);  // before its options
  }
}

TEST(MltParity, OneBufferRebuildsWhatMissesOnePacket) {
  Options options = with_parity();
  options.max_parity = 1;
  Direct direct(options);
  direct.loses = first_of_a_hundred;
  run(direct, 10);
  EXPECT_GT(direct.rebuilt, 20u);
  EXPECT_EQ(direct.missing, 0u);
}

TEST(MltParity, WhereTheReceiveIsShorterNothingIsRebuilt) {
  Options options = with_parity();
  options.cut_long = true;
  Direct direct(options);
  direct.loses = first_of_a_hundred;
  run(direct, 10, {}, kBytes - 1);
  EXPECT_GT(count(direct).parity, 0u);
  EXPECT_EQ(direct.rebuilt, 0u);
  EXPECT_EQ(direct.missing, 0u);
}

TEST(MltParity, WithinItsBudgetATolerantMessageNeedsNone) {
  Direct direct(with_parity());
  direct.loses = first_of_a_hundred;
  SendTerms much = tolerant_terms();
  much.collective_bytes = 10'000ull << 20;
  run(direct, 20, much);
  EXPECT_EQ(count(direct).parity, 0u);
  EXPECT_GT(direct.missing, 0u);
}

TEST(MltParity, WhatExceedsTheBudgetIsRebuiltAndNotCharged) {
  Direct direct(with_parity());
  direct.loses = first_of_a_hundred;
  SendTerms little = tolerant_terms();
  little.tolerance_ppm = 1000;
  run(direct, 20, little);
  EXPECT_GT(count(direct).parity, 0u);
  EXPECT_GT(direct.rebuilt, 50u);
  EXPECT_LE(direct.missing, 20u * kBytes / 1000);
  EXPECT_EQ(direct.to.ledgers().totals().missing_bytes, direct.missing);
}

// Which of the rebuilt packets were important nobody says: so nothing of the message is given up any more.
TEST(MltParity, AMessageWithImportantPacketsIsWholeOrWithinItsTerms) {
  Direct direct(with_parity());
  direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 40 == 7; };
  PacketBitmap important(packet_count(kBytes, direct.options.segment));
  ASSERT_TRUE(important.reset(packet_count(kBytes, direct.options.segment)));
  for (std::uint32_t i = 7; i < important.size(); i += 80) important.set(i);
  SendTerms terms = tolerant_terms();
  terms.important = &important;
  run(direct, 20, terms);
  EXPECT_GT(direct.rebuilt, 0u);
  EXPECT_EQ(direct.received, 20);
}

TEST(MltParity, NoWordOfItIsBelievedThatCannotBe) {
  Direct direct(with_parity());
  ASSERT_TRUE(direct.post(kBytes));
  DataHeader header;
  header.secret = Direct::kSecret;
  header.parity = true;
  header.message_bytes = kBytes;
  header.segment = direct.options.segment;
  header.open.emplace().tag = 7;
  const auto say = [&](std::uint32_t payload) {
    std::array<std::byte, kMaxHeader> bytes{};
    const std::size_t size = serialize(header, bytes);
    ++header.path_seq;
    return direct.to.on_packet(std::span(bytes).first(size), payload, false, direct.now).placement.kind;
  };
  EXPECT_EQ(say(header.segment - 1u), Placement::Kind::kDrop) << "not a whole segment";
  EXPECT_EQ(say(header.segment), Placement::Kind::kParity);
  EXPECT_EQ(say(header.segment), Placement::Kind::kDrop) << "twice";
  header.index = block_count(packet_count(kBytes, header.segment)) * kMaxParity;
  EXPECT_EQ(say(header.segment), Placement::Kind::kDrop) << "of no block";
  header.index = 1;
  header.message = 1;
  header.open->tag_seq = 1;
  EXPECT_EQ(say(header.segment), Placement::Kind::kDrop) << "its receive is not posted";
}

}  // namespace
}  // namespace clustar::mlt::test
