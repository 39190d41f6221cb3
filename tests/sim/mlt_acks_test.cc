// Who asks for acknowledgements, when a receiver gives one by itself, and what a sender concludes from their absence.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "mlt/core/receive/receiver.h"
#include "mlt/core/send/sender.h"
#include "tests/sim/direct.h"
#include "tests/sim/lone_sender.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::uint16_t kSegment = 1408;
constexpr std::uint32_t kMuch = 1u << 24;  // units of credit

Options with_window(std::uint64_t packets) {
  Options options = opted_in();
  options.paths = 1;
  options.segment = kSegment;
  options.burst_bytes = 1 << 20;
  options.congestion = FixedRate({.window = packets * kSegment, .rate = 100'000'000'000});
  options.line_rate = 100'000'000'000;
  options.pace_bytes = 1 << 20;
  return options;
}

class Sends : public LoneSender {
 public:
  explicit Sends(const Options& given) : LoneSender(given, 1) {}

  std::uint32_t send(std::uint32_t packets, const SendTerms& terms = {}) {
    sender.on_posted({1, 7, posted_++, packets * kSegment, credit}, now);
    return sender.send(packets * kSegment, 7, terms, now).value();
  }
  // All of the lane that came before `last`, too.
  void acknowledge(const Transmit& last) {
    Ack ack;
    ack.secret = 1;
    ack.credit_units = credit;
    ack.count = 1;
    ack.blocks[0] = {last.path, last.traffic_class, 0, std::get<DataHeader>(last.header).path_seq, ~std::uint64_t{0},
                     0};
    sender.on_ack(ack, now);
  }

  std::uint32_t credit = kMuch;  // units in all

 private:
  std::uint32_t posted_ = 0;
};

bool asks(const Transmit& transmit) { return std::get<DataHeader>(transmit.header).ack_now; }

// Packets of a long message between two that ask, once the window is what it will be.
std::vector<std::uint32_t> gaps_between_asks(const Options& options) {
  Sends alone(options);
  alone.send(100);
  std::vector<std::uint32_t> gaps;
  std::uint32_t since = 0;
  for (std::vector<Transmit> out = alone.poll(); !out.empty(); out = alone.poll()) {
    for (const Transmit& one : out) {
      ++since;
      if (!asks(one)) continue;
      gaps.push_back(since);
      since = 0;
    }
    alone.now += microseconds(100);
    alone.acknowledge(out.back());
  }
  EXPECT_EQ(since, 0u) << "the last packet of a message asks";
  gaps.pop_back();
  return gaps;
}

TEST(MltAcks, AreAskedForByQuartersOfAWindow) {
  for (const auto& [window, gap] : std::vector<std::pair<std::uint64_t, std::uint32_t>>{
           {1, 1}, {2, 2}, {3, 2}, {4, 2}, {8, 2}, {12, 3}, {16, 4}, {40, 10}}) {
    const std::vector<std::uint32_t> gaps = gaps_between_asks(with_window(window));
    ASSERT_FALSE(gaps.empty()) << window;
    for (const std::uint32_t one : gaps) EXPECT_EQ(one, gap) << "of a window of " << window;
  }
}

// Of one and a half packets the second does not go before the first is acknowledged.
TEST(MltAcks, AWindowHoldsWholePackets) {
  for (const auto& [window, gap] : std::vector<std::pair<std::uint64_t, std::uint32_t>>{
           {kSegment - 1, 1}, {kSegment * 3 / 2, 1}, {2 * kSegment - 1, 1}, {kSegment * 5 / 2, 2}}) {
    Options options = with_window(1);
    options.congestion = FixedRate({.window = window, .rate = 100'000'000'000});
    for (const std::uint32_t one : gaps_between_asks(options)) EXPECT_EQ(one, gap) << window << " bytes";
  }
}

TEST(MltAcks, TheEndOfABurstAsksWhereTheReceiverWaitsHalfARoundTripOrLonger) {
  Options options = with_window(1000);
  options.ack_delay = options.base_rtt;
  options.burst_bytes = 10 * kSegment + 900;  // ten packets and what no packet fills
  Sends alone(options);
  alone.send(35);
  const std::vector<Transmit> out = alone.poll();
  ASSERT_EQ(out.size(), 35u);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(asks(out[i]), i % 10 == 9 || i == 34) << i;
}

// There the receiver's own delay and the quarters of the window tell enough, and a burst would ask for each 16 KiB.
TEST(MltAcks, OnALongPathTheEndOfABurstDoesNotAsk) {
  Options options = with_window(1000);
  options.ack_delay = options.base_rtt / 2;
  options.burst_bytes = 10 * kSegment;
  Sends alone(options);
  alone.send(35);
  const std::vector<Transmit> out = alone.poll();
  ASSERT_EQ(out.size(), 35u);
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(asks(out[i]), i == 34) << i;
}

// A pause for want of credit: three packets left that did not ask. A mouse passes them, and is acknowledged alone.
TEST(MltAcks, WhatDidNotAskIsNotLostBeforeTheReceiversDelay) {
  Options options = with_window(1000);
  options.ack_delay = milliseconds(5);
  options.probe_floor = milliseconds(50);
  Sends alone(options);
  constexpr std::uint32_t kRounds = 20, kAhead = 3;
  alone.credit = 0;
  for (std::uint32_t i = 0; i < kRounds; ++i) {  // round trips of 100 us
    alone.credit += units(kSegment);
    const std::uint32_t message = alone.send(1);
    const std::vector<Transmit> one = alone.poll();
    ASSERT_EQ(one.size(), 1u);
    alone.now += microseconds(100);
    alone.acknowledge(one.front());
    State over;
    over.stop = over.complete = over.matched = true;
    over.message = message;
    alone.sender.on_state(over, alone.now);
    while (alone.sender.poll_done()) continue;
  }
  alone.credit += kAhead * units(kSegment);
  alone.send(20);  // no mouse
  const std::vector<Transmit> bulk = alone.poll();
  ASSERT_EQ(bulk.size(), kAhead);
  for (const Transmit& one : bulk) ASSERT_FALSE(asks(one));
  alone.now += microseconds(10);
  ASSERT_TRUE(alone.sender.send(kSegment, 8, {}, alone.now));
  const std::vector<Transmit> mouse = alone.poll();
  ASSERT_EQ(mouse.size(), 1u);
  ASSERT_NE(mouse.front().traffic_class, bulk.front().traffic_class);
  alone.now += microseconds(100);
  alone.acknowledge(mouse.front());
  alone.wait(milliseconds(4));
  EXPECT_EQ(alone.sender.counters().lost, 0u);
  alone.wait(milliseconds(2));
  EXPECT_GT(alone.sender.counters().lost, 0u);
}

TEST(MltAcks, AProbeAnswersAQuestionOnlyWhereItProvesSomething) {
  Sends alone(with_window(1000));
  const std::uint32_t message = alone.send(11, tolerant_terms());
  const std::vector<Transmit> all = alone.poll();
  ASSERT_EQ(all.size(), 11u);
  const auto question = [&](std::uint32_t missing) {
    State state;
    state.matched = state.asks = true;
    state.message = message;
    state.credit_units = 0;
    state.count = 11;
    for (std::uint32_t i = 0; i < missing; ++i) state.missing[i / 8] |= std::byte{0x80} >> (i % 8);
    alone.now += microseconds(1);
    alone.sender.on_state(state, alone.now);
    alone.poll();
  };
  question(11);
  EXPECT_EQ(alone.sender.counters().probes, 0u) << "all of it is on its way";
  alone.acknowledge(all.back());
  question(1);
  EXPECT_EQ(alone.sender.counters().probes, 1u) << "nothing of it is on its way";
}

TEST(MltAcks, AProbeAsksForCredit) {
  Sends alone(with_window(1000));
  alone.credit = units(3 * kSegment);
  const std::uint32_t message = alone.send(11);
  ASSERT_EQ(alone.poll().size(), 3u);
  State state;
  state.matched = state.asks = true;
  state.message = message;
  state.count = 11;
  state.missing[0] = std::byte{0xff};
  state.missing[1] = std::byte{0xe0};
  alone.now += microseconds(1);
  alone.sender.on_state(state, alone.now);
  alone.poll();
  EXPECT_EQ(alone.sender.counters().probes, 1u);
}

class Receives {
 public:
  explicit Receives(const Options& given, std::uint32_t packets) : options(given), receiver(options, 1) {
    EXPECT_TRUE(receiver.post(7, packets * kSegment, ledgers, now));
    while (receiver.poll_control(now)) continue;
    header.secret = 1;
    header.segment = kSegment;
    header.message_bytes = packets * kSegment;
    header.open = OpenRecord{};
    header.open->tag = 7;
  }

  // Whether it acknowledges at once.
  bool take(std::uint32_t number) {
    header.index = header.path_seq = number;
    sent_units += units(kSegment);
    header.sent_units = sent_units;
    receiver.on_data(header, {kSegment}, ledgers, now);
    bool acknowledged = false;
    while (const auto packet = receiver.poll_control(now)) acknowledged |= std::holds_alternative<Ack>(*packet);
    return acknowledged;
  }

  Options options;
  LedgerBook ledgers{LedgerBook::Options{}};
  TimePoint now{seconds(1)};
  Receiver receiver;
  DataHeader header;
  std::uint32_t sent_units = 0;
};

TEST(MltAcks, AHoleIsToldWhenItIsSeenAndWhenItProvesALoss) {
  Options options = with_window(1000);
  options.ack_every = 200;
  Receives receives(options, 100);
  const std::vector<std::uint32_t> numbers{0, 1, 2, 3, 5, 6, 7, 8, 9};
  std::vector<std::uint32_t> told;
  for (const std::uint32_t number : numbers) {
    if (receives.take(number)) told.push_back(number);
  }
  EXPECT_EQ(told, (std::vector<std::uint32_t>{5, 7})) << "4 is missing, and three behind it are enough";
}

// A packet costs whole units of credit, so that the sum of what is left grows by less than it seems.
TEST(MltAcks, TheEndOfAMessageIsNotToldPacketByPacket) {
  Options options = with_window(1000);
  options.ack_every = 200;
  options.segment = 1368;
  constexpr std::uint32_t kPackets = 60;
  Receiver receiver(options, 1);
  LedgerBook ledgers{LedgerBook::Options{}};
  const TimePoint now{seconds(1)};
  ASSERT_TRUE(receiver.post(7, kPackets * options.segment, ledgers, now));
  DataHeader header;
  header.secret = 1;
  header.segment = options.segment;
  header.message_bytes = kPackets * options.segment;
  header.open = OpenRecord{};
  header.open->tag = 7;
  const auto told = [&] {
    int acks = 0;
    while (const auto packet = receiver.poll_control(now)) acks += std::holds_alternative<Ack>(*packet) ? 1 : 0;
    return acks;
  };
  receiver.grant(256 * 1024);
  told();
  int acks = 0;
  for (std::uint32_t i = 0; i < kPackets; ++i) {
    header.index = header.path_seq = i;
    header.sent_units += units(options.segment);
    receiver.on_data(header, {options.segment}, ledgers, now);
    receiver.grant(256 * 1024);
    acks += told();
  }
  EXPECT_LE(acks, 2) << "of " << kPackets << " packets";
}

}  // namespace
}  // namespace clustar::mlt::test
