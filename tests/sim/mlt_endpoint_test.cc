// Two endpoints and a cable: what one connection does in named situations.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>

#include "tests/sim/direct.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(MltEndpoint, AMessageTooLongForItsReceiveGivesItsStagingBack) {
  Options options;
  options.max_staged = 1;
  Direct direct(options);
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(direct.send(100));
    direct.run(milliseconds(1));
    ASSERT_TRUE(direct.post(10));
    direct.run(milliseconds(1));
    EXPECT_EQ(direct.truncated, i + 1);
  }
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().refused, 0u);
}

TEST(MltEndpoint, AFullWindowOfMessagesMakesRoomForTheNext) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(direct.post(1000) && direct.send(1000));
    direct.run(milliseconds(5));
    ASSERT_EQ(direct.received, 4 * (round + 1));
    ASSERT_EQ(direct.sent, 4 * (round + 1));
  }
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().ignored, 0u);
}

TEST(MltEndpoint, ReceivesAreBoundedUntilTheyAreReleased) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  Endpoint& to = direct.to;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(to.post(direct.receiver, 7, 0, direct.now));
  EXPECT_FALSE(to.post(direct.receiver, 7, 0, direct.now));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(direct.send(0));
  direct.run(microseconds(20));
  EXPECT_TRUE(to.post(direct.receiver, 7, 0, direct.now));
}

TEST(MltEndpoint, ALongMessageFollowsATinyOneThatCameUnposted) {
  for (const std::uint32_t unscheduled : {0u, 4096u}) {
    Options options;
    options.unscheduled_bytes = unscheduled;
    Direct direct(options);
    ASSERT_TRUE(direct.send(1));
    direct.run(milliseconds(2));
    ASSERT_TRUE(direct.post(1));
    direct.run(milliseconds(2));
    ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
    direct.run(milliseconds(20));
    EXPECT_EQ(direct.received, 2) << unscheduled;
    EXPECT_EQ(direct.sent, 2) << unscheduled;
  }
}

TEST(MltEndpoint, AMapOfImportantPacketsOfAnotherSizeIsRefused) {
  Direct direct;
  PacketBitmap important;
  ASSERT_TRUE(important.reset(3));
  SendTerms terms;
  terms.tolerant = true;
  terms.important = &important;
  EXPECT_FALSE(direct.from.send(direct.sender, 1408, 7, terms, direct.now));
  EXPECT_TRUE(direct.from.send(direct.sender, 3 * 1408, 7, terms, direct.now));
}

// A probe of a message for which the receiver has no room is no silence.
TEST(MltEndpoint, AReceiveThatWaitsForMinutesIsNoLostPeer) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  ASSERT_TRUE(direct.send(100'000));
  direct.run(std::chrono::minutes(2));
  EXPECT_FALSE(direct.from.sender(direct.sender).peer_lost());
  ASSERT_TRUE(direct.post(100'000));
  direct.run(seconds(1));
  EXPECT_EQ(direct.received, 1);
}

// The oldest messages wait for receives that do not come; those of another tag pass them, however many.
TEST(MltEndpoint, MessagesWithoutReceivesDoNotHoldUpAnotherTag) {
  Options options;
  options.max_messages = 4;
  Direct direct(options);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(direct.send(100, 1));
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.sent, 3) << "staged: their memory is free again";
  ASSERT_TRUE(direct.post(100, 2));
  ASSERT_TRUE(direct.send(100, 2));
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.received, 1);
  EXPECT_FALSE(direct.send(100, 2)) << "four of one connection, three of them unreceived";
  EXPECT_TRUE(direct.from.sender(direct.sender).full());
  direct.run(seconds(2));
  ASSERT_TRUE(direct.post(100, 1));
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.received, 2);
  ASSERT_TRUE(direct.send(100, 2) && direct.post(100, 2));
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.received, 3);
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().ignored, 0u);
}

TEST(MltEndpoint, TagsAreBounded) {
  Options options;
  options.max_tags = 2;
  Direct direct(options);
  EXPECT_TRUE(direct.send(1, 1) && direct.send(1, 2) && direct.send(1, 1));
  EXPECT_FALSE(direct.send(1, 3));
  EXPECT_FALSE(direct.from.sender(direct.sender).full()) << "so it is no matter of waiting";
  EXPECT_TRUE(direct.post(1, 1) && direct.post(1, 2));
  EXPECT_FALSE(direct.post(1, 3));
  EXPECT_FALSE(direct.to.receiver(direct.receiver).full());
}

TEST(MltEndpoint, OptionsAreChecked) {
  const auto refused = [](auto change) {
    Options options;
    change(options);
    EXPECT_THROW(Endpoint(options, 1), std::invalid_argument);
  };
  refused([](Options& o) { o.segment = 63; });
  refused([](Options& o) { o.paths = 0; });
  refused([](Options& o) { o.paths = 33; });
  refused([](Options& o) { o.unscheduled_bytes = (1u << 20) + 1; });
  refused([](Options& o) { o.max_messages = 0; });
  refused([](Options& o) { o.max_tags = 0; });
  refused([](Options& o) { o.max_in_flight = 0; });
  refused([](Options& o) { o.ack_every = 0; });
  refused([](Options& o) { o.probe_floor = o.probe_cap + Duration(1); });
  refused([](Options& o) { o.base_rtt = Duration(0); });
  refused([](Options& o) { o.line_rate = 0; });
  refused([](Options& o) { o.peer_timeout = o.probe_cap; });
}

TEST(MltEndpoint, ATimeInWhichNobodyCalledIsNoSilenceOfThePeer) {
  Direct direct;
  ASSERT_TRUE(direct.send(100'000));
  direct.run(milliseconds(1));
  direct.now += std::chrono::minutes(2);
  direct.run(milliseconds(200));
  EXPECT_FALSE(direct.from.sender(direct.sender).peer_lost());
  direct.loses_control = [](const Packet&) { return true; };
  direct.run(seconds(40));
  EXPECT_TRUE(direct.from.sender(direct.sender).peer_lost()) << "this is";
}

TEST(MltEndpoint, EachKindOfPacketHasItsClass) {
  const auto classes_of = [](std::uint32_t bytes, const SendTerms& terms, const Options& options = {}) {
    Direct direct(opted_in(options));
    EXPECT_TRUE(direct.post(bytes) && direct.send(bytes, 7, terms));
    direct.run(milliseconds(5));
    EXPECT_EQ(direct.received, 1);
    std::set<int> classes;
    for (const Transmit& transmit : direct.data) classes.insert(transmit.traffic_class);
    return classes;
  };
  EXPECT_EQ(classes_of(16 * 1024, {}), std::set<int>{6}) << "small and reliable";
  EXPECT_EQ(classes_of(16 * 1024 + 1, {}), std::set<int>{4}) << "long and reliable";
  SendTerms terms;
  terms.tolerant = true;
  terms.bulk = PacketKind::kFrontLayerBulk;
  EXPECT_EQ(classes_of(100'000, terms), std::set<int>{3});
  terms.bulk = PacketKind::kBackLayerBulk;
  PacketBitmap important;
  ASSERT_TRUE(important.reset(packet_count(100'000, Options{}.segment)));
  important.set(3);
  terms.important = &important;
  EXPECT_EQ(classes_of(100'000, terms), (std::set<int>{1, 5}));
  Options options;
  options.classes = Classes({.traffic_class = {7, 2, 5, 4, 3, 0}});
  EXPECT_EQ(classes_of(100'000, terms, options), (std::set<int>{0, 5}));
  EXPECT_EQ(classes_of(100, {}, options), std::set<int>{2});
}

TEST(MltEndpoint, TheReceiverAsksForATailThatDoesNotCome) {
  Direct direct;
  bool once = true;
  direct.loses = [&](const DataHeader& header) {
    const bool last = header.index + 1 == packet_count(header.message_bytes, header.segment);
    return last && std::exchange(once, false);
  };
  ASSERT_TRUE(direct.post(100'000) && direct.send(100'000));
  EXPECT_LT(direct.run_until_received(1), microseconds(200)) << "a probe would come after half a millisecond";
  EXPECT_FALSE(once);
}

// Path 0 swallows a whole burst, and nothing follows there while the message goes on elsewhere for a millisecond.
TEST(MltEndpoint, ALostEndOfABurstIsSeenByWhatComesOnOtherPaths) {
  Options options;
  options.paths = 2;
  Direct direct(options);
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run_until_received(1);  // now round trips are known
  std::optional<TimePoint> lost;
  std::optional<TimePoint> again;
  std::uint8_t path = 0;
  std::uint32_t index = 0;
  direct.loses = [&](const DataHeader& header) {
    if (!lost && header.message == 1 && header.index == 100) {
      lost = direct.now;
      path = header.path;
      index = header.index;
    }
    if (lost && header.index == index && header.retransmission) again = again.value_or(direct.now);
    return lost && !again && header.path == path;
  };
  ASSERT_TRUE(direct.post(16 << 20) && direct.send(16 << 20));
  direct.run_until_received(2);
  ASSERT_TRUE(lost && again);
  EXPECT_LT(*again - *lost, microseconds(300)) << "not only when the message has come to its end";
}

// Switches let control pass bulk: the answer to a probe says that all of a queue is missing.
TEST(MltEndpoint, WhatWaitsInASwitchIsNotSentAgain) {
  constexpr std::uint32_t kBytes = 8 * 1408;
  Direct direct;
  TimePoint served{};
  direct.holds = [&](const DataHeader&) { return direct.now < served; };
  const auto through_a_queue = [&] {
    const std::size_t before = direct.data.size();
    const int received = direct.received;
    served = direct.now + milliseconds(6);
    EXPECT_TRUE(direct.post(kBytes) && direct.send(kBytes));
    direct.run(milliseconds(20));
    EXPECT_EQ(direct.received, received + 1);
    return direct.data.size() - before;
  };
  EXPECT_GE(through_a_queue(), 8u);  // what nobody has seen yet may be taken for loss
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes));
    direct.run(milliseconds(1));
  }
  EXPECT_EQ(through_a_queue(), 8u);
}

TEST(MltEndpoint, WhatTheBudgetAllowsIsNeitherSentAgainNorWaitedFor) {
  Direct direct;
  direct.loses = [](const DataHeader& header) { return header.index % 50 == 7; };
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, tolerant_terms()));
  const Duration took = direct.run_until_received(1);
  EXPECT_LE(direct.from.sender(direct.sender).counters().retransmitted, 10u)
      << "only what was lost at the end, and what nothing followed on its lane for a round trip";
  EXPECT_EQ(direct.missing, 15 * 1408u);
  direct.run(milliseconds(1));
  EXPECT_EQ(direct.sent_missing, 15u) << "and its sender knows";
  Direct clean;
  ASSERT_TRUE(clean.post(1 << 20) && clean.send(1 << 20, 7, tolerant_terms()));
  EXPECT_LT(took, clean.run_until_received(1) + microseconds(100));
}

// The cap of a message is a tenth: of what is lost beyond it nobody has to ask for.
TEST(MltEndpoint, TheExcessIsSentAgainAtOnce) {
  Direct direct;
  direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 5 == 0; };
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, tolerant_terms()));
  const Duration took = direct.run_until_received(1);
  EXPECT_GT(direct.missing, 0u);
  EXPECT_LE(direct.missing, 74 * 1408u);
  const std::uint64_t again = direct.from.sender(direct.sender).counters().retransmitted;
  EXPECT_GE(again, 149u - 74u);
  EXPECT_LE(again, 100u) << "a reserve is kept for the end; what nothing followed on its lane goes again";
  Direct clean;
  ASSERT_TRUE(clean.post(1 << 20) && clean.send(1 << 20, 7, tolerant_terms()));
  EXPECT_LT(took, clean.run_until_received(1) + microseconds(150));
}

TEST(MltEndpoint, NothingMayBeLostOfWhoDidNotOptIn) {
  for (const bool sender_too : {false, true}) {
    Direct direct(sender_too ? opted_in() : Options{});
    EXPECT_EQ(direct.send(100'000, 7, tolerant_terms()), sender_too);
  }
  Direct direct;
  ASSERT_TRUE(direct.send(1 << 20, 7, tolerant_terms()));
  direct.options.max_tolerance_ppm = 0;  // from now on, and for the receiver
  direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 50 == 7; };
  ASSERT_TRUE(direct.post(1 << 20));
  direct.run_until_received(1);
  EXPECT_EQ(direct.missing, 0u) << "the receiver's word counts";
}

TEST(MltEndpoint, EachConnectionHasALimitOfItsOwnAtBothEnds) {
  const SendTerms terms = tolerant_terms();
  for (const bool enough : {true, false}) {
    Options own = opted_in();
    own.max_tolerance_ppm = terms.tolerance_ppm - (enough ? 0 : 1);
    Direct direct(enough ? Options{} : opted_in());  // the endpoints' own would say the opposite
    direct.from.close(direct.sender);
    direct.to.close(direct.receiver);
    const Options asking = opted_in();
    direct.sender = direct.from.open_sender(2, Direct::kSecret, direct.now, asking);
    direct.receiver = direct.to.open_receiver(1, Direct::kSecret, direct.now, own);
    direct.loses = [](const DataHeader& header) { return !header.retransmission && header.index % 50 == 7; };
    ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, terms));
    direct.run_until_received(1);
    EXPECT_EQ(direct.missing > 0, enough);
    EXPECT_EQ(direct.to.ledgers().totals().eligible_bytes > 0, enough);
    const Options none;
    direct.from.close(direct.sender);
    direct.sender = direct.from.open_sender(2, Direct::kSecret + 1, direct.now, none);
    EXPECT_FALSE(direct.send(1 << 20, 7, terms));
    direct.from.close(direct.sender);  // before its options
    direct.to.close(direct.receiver);
  }
}

// As when two cores take turns at a connection. Seen once, it is waited for; nothing is sent twice any more, or given
// up.
TEST(MltEndpoint, WhatOthersOvertakeIsNotLostForEver) {
  for (const bool tolerant : {false, true}) {
    Options options = opted_in();
    options.paths = 1;
    Direct direct(options);
    std::size_t until = 0;
    direct.holds = [&](const DataHeader& header) {
      if (header.index != 200 || header.retransmission) return false;
      if (until == 0) until = direct.data.size() + 20;
      return direct.data.size() < until;
    };
    const auto send_one = [&](int count) {
      until = 0;
      EXPECT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, tolerant ? tolerant_terms() : SendTerms{}));
      direct.run_until_received(count);
      direct.run(milliseconds(1));
    };
    for (int i = 1; i <= 3; ++i) send_one(i);
    const Sender::Counters before = direct.from.sender(direct.sender).counters();
    EXPECT_GE(before.lost, 1u) << "or this tests nothing";
    for (int i = 4; i <= 10; ++i) send_one(i);
    EXPECT_EQ(direct.from.sender(direct.sender).counters().lost, before.lost);
    EXPECT_EQ(direct.from.sender(direct.sender).counters().retransmitted, before.retransmitted);
    EXPECT_EQ(direct.missing, 0u);
  }
}

TEST(MltEndpoint, ManySmallMessagesDoNotFloodWhoDidNotAsk) {
  Direct direct;
  direct.loses_control = [](const Packet&) { return true; };
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(direct.send(1400));
  direct.run(microseconds(100));
  std::uint64_t bytes = 0;
  for (const Transmit& transmit : direct.data) bytes += transmit.length;
  EXPECT_GE(bytes, 11u * 1400u);
  EXPECT_LE(bytes, 16u * 1024u);
}

TEST(MltEndpoint, WhatCannotBeSentOrReceivedIsRefused) {
  Direct direct;
  EXPECT_FALSE(direct.send(kMaxMessageBytes + 1));
  EXPECT_FALSE(direct.post(kMaxMessageBytes + 1));
  SendTerms terms = tolerant_terms();
  terms.tolerance_ppm = 1'000'001;
  EXPECT_FALSE(direct.send(1000, 7, terms));
  EXPECT_FALSE(direct.from.sender(direct.sender).full());
  EXPECT_TRUE(direct.post(kMaxMessageBytes));
}

TEST(MltEndpoint, ABudgetWithRoomDoesNotLiftTheCapOfAMessage) {
  Direct direct;
  const TimePoint until = direct.now + milliseconds(5);
  direct.loses = [&](const DataHeader& header) { return header.index % 5 == 0 && direct.now < until; };
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, tolerant_terms()));
  direct.run(until - direct.now - microseconds(1));
  EXPECT_EQ(direct.received, 0) << "a fifth is missing, a tenth may be";
  direct.run(milliseconds(20));
  EXPECT_EQ(direct.received, 1);
  EXPECT_LE(direct.missing, 74u * 1408u);
}

// One packet waits for 3 ms in a path that the others pass, and the sender falls asleep: all was sent, nothing is lost.
TEST(MltEndpoint, SilenceIsNoProofOfLoss) {
  Direct direct;
  direct.holds = [&](const DataHeader& header) {
    return header.path == 3 && direct.now < TimePoint(seconds(1) + milliseconds(3));
  };
  direct.loses_control = [&](const Packet& packet) { return std::holds_alternative<Probe>(packet); };
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20, 7, tolerant_terms()));
  direct.run(milliseconds(50));
  EXPECT_EQ(direct.received, 1);
  EXPECT_EQ(direct.missing, 0u);
}

TEST(MltEndpoint, APacketOfAnotherLengthThanItSaysIsIgnored) {
  Direct direct;
  ASSERT_TRUE(direct.post(3000));
  DataHeader header;
  header.secret = Direct::kSecret;
  header.message_bytes = 3000;
  header.segment = 1408;
  header.open = OpenRecord{};
  header.open->tag = 7;
  std::array<std::byte, kMaxHeader> bytes{};
  const std::size_t size = serialize(header, bytes);
  for (const std::uint32_t length : {0u, 1407u, 1409u}) {
    const auto arrival = direct.to.on_packet(std::span(bytes).first(size), length, false, direct.now);
    EXPECT_EQ(arrival.placement.kind, Placement::Kind::kDrop);
  }
  EXPECT_EQ(direct.to.receiver(direct.receiver).counters().ignored, 3u);
}

TEST(MltEndpoint, AProbeIsAnsweredByFewPackets) {
  Direct direct;
  ASSERT_TRUE(direct.post(kMaxMessageBytes) && direct.send(kMaxMessageBytes));
  direct.loses = [](const DataHeader&) { return true; };
  direct.run(milliseconds(2));
  int states = 0;
  bool probed = false;
  direct.loses_control = [&](const Packet& packet) {
    probed = probed || std::holds_alternative<Probe>(packet);
    states += std::holds_alternative<State>(packet) ? 1 : 0;
    return std::holds_alternative<Probe>(packet) && states > 0;
  };
  direct.run(milliseconds(2));
  EXPECT_TRUE(probed);
  EXPECT_GT(states, 0);
  EXPECT_LE(states, 8 * 16) << "of 1,490 windows, 8 to each question";
}

TEST(MltEndpoint, ManyMessagesWithoutReceivesAreQuiet) {
  Direct direct;
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(direct.send(4000));
  direct.run(seconds(2));
  int probes = 0;
  direct.loses_control = [&](const Packet& packet) {
    probes += std::holds_alternative<Probe>(packet) ? 1 : 0;
    return false;
  };
  const std::size_t before = direct.data.size();
  direct.run(seconds(1));
  EXPECT_LE(probes, 1000);
  EXPECT_EQ(direct.data.size(), before) << "what found no room would find none again";
  for (int i = 0; i < 256; ++i) ASSERT_TRUE(direct.post(4000));
  direct.run(milliseconds(500));
  EXPECT_EQ(direct.received, 256);
}

// However many packets come between two looks at what is to be sent, and whatever is lost between them.
TEST(MltEndpoint, EachPacketThatCameInOrderIsAcknowledged) {
  Options options;
  options.segment = 64;
  LedgerBook ledgers{LedgerBook::Options{}};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    Receiver receiver(options, 1);
    TimePoint now{std::chrono::seconds(1)};
    DataHeader data;
    data.secret = 1;
    data.segment = 64;
    data.message_bytes = 64 * 20000;
    data.open.emplace();
    ASSERT_TRUE(receiver.post(0, data.message_bytes, ledgers, now));
    QuestionBudget questions;
    std::set<std::uint32_t> came, told;
    while (data.index < 19000) {
      for (std::uint64_t burst = 1 + rng.below(300); burst > 0; --burst) {
        if (rng.below(20) == 0) data.path_seq += static_cast<std::uint32_t>(rng.below(rng.below(4) == 0 ? 120 : 4));
        now += std::chrono::microseconds(1);
        receiver.on_data(data, {64}, ledgers, now);
        came.insert(data.path_seq++);
        ++data.index;
      }
      receiver.on_timeout(ledgers, questions, now += std::chrono::seconds(1));
      while (const auto packet = receiver.poll_control(now)) {
        const auto* ack = std::get_if<Ack>(&*packet);
        for (std::size_t i = 0; ack != nullptr && i < ack->count; ++i) {
          const AckBlock& block = ack->blocks[i];
          told.insert(block.largest);
          for (std::uint32_t back = 0; back < 64; ++back) {
            if ((block.before >> back & 1) != 0) told.insert(block.largest - 1 - back);
          }
        }
      }
      ASSERT_TRUE(came == told) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace clustar::mlt::test
