// The record that says what a message is: on which packets it rides, and what comes before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>
#include <variant>

#include "mlt/core/receive/receiver.h"
#include "tests/sim/direct.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

Options one_path() {
  Options options = opted_in();
  options.paths = 1;
  options.unscheduled_bytes = 16 * 1024;  // twelve packets may be stored before their receive is known
  return options;
}

// More of them leave before the first is acknowledged.
Options short_packets() {
  Options options = one_path();
  options.segment = 704;
  return options;
}

TEST(MltRecord, RidesOnTheFirstPacketsAndThenNowAndThenUntilItIsThere) {
  Direct direct(short_packets());
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run(microseconds(9));  // one way and not yet back
  const std::size_t first = direct.data.size();
  ASSERT_GE(first, 70u);
  for (std::size_t i = 0; i < first; ++i) {
    const auto& header = std::get<DataHeader>(direct.data[i].header);
    EXPECT_EQ(header.open.has_value(), i < 4 || (i + 1) % 64 == 0) << i;
  }
  direct.run(microseconds(11));
  const std::size_t known = direct.data.size();
  direct.run_until_received(1);
  ASSERT_GT(direct.data.size(), known + 100);
  for (std::size_t i = known; i < direct.data.size(); ++i) {
    EXPECT_FALSE(std::get<DataHeader>(direct.data[i].header).open.has_value()) << i;
  }
}

// Where one hides the record, so may more, and what comes without it is stored for some packets only.
TEST(MltRecord, RidesMoreOftenForASecondAfterALoss) {
  for (const auto& [later, every] : {std::pair(milliseconds(500), 16u), std::pair(milliseconds(1500), 64u)}) {
    Direct direct(short_packets());
    int lost = 0;
    direct.loses = [&](const DataHeader& header) { return header.index == 700 && lost++ == 0; };
    ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
    direct.run_until_received(1);
    ASSERT_EQ(lost, 2) << "lost and repeated";
    direct.run(later);
    direct.data.clear();
    ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
    direct.run(microseconds(9));
    ASSERT_GE(direct.data.size(), 70u);
    for (std::size_t i = 0; i < direct.data.size(); ++i) {
      const auto& header = std::get<DataHeader>(direct.data[i].header);
      EXPECT_EQ(header.open.has_value(), i < 4 || (i + 1) % every == 0) << i;
    }
  }
}

TEST(MltRecord, RidesOnTheFirstPacketsOfEachLane) {
  Options options = one_path();
  options.paths = 8;
  options.burst_bytes = 6 * 1408;
  Direct direct(options);
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run_until_received(1);  // by now it knows paths
  direct.run(milliseconds(1));
  direct.data.clear();
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run(microseconds(9));
  std::uint8_t path = options.paths;
  std::uint32_t on_path = 0, lanes = 0;
  for (const Transmit& transmit : direct.data) {
    const auto& header = std::get<DataHeader>(transmit.header);
    if (std::exchange(path, header.path) != header.path) {
      on_path = 0;
      ++lanes;
    }
    EXPECT_EQ(header.open.has_value(), ++on_path <= 4 || on_path % 64 == 0) << on_path;
  }
  EXPECT_GE(lanes, 3u);
}

TEST(MltRecord, PacketsThatComeBeforeItAreStored) {
  for (const bool tolerant : {false, true}) {
    const Options options = one_path();
    Direct direct(options);
    int lost = 0;
    direct.loses = [&](const DataHeader& header) { return header.open && !header.retransmission && lost++ < 4; };
    constexpr std::uint32_t kBytes = 12 * 1408;
    ASSERT_TRUE(direct.post(kBytes) && direct.send(kBytes, 7, tolerant ? tolerant_terms() : SendTerms{}));
    direct.run_until_received(1);
    const auto resent = std::count_if(direct.data.begin(), direct.data.end(), [](const Transmit& transmit) {
      const auto& header = std::get<DataHeader>(transmit.header);
      EXPECT_TRUE(header.open || !header.retransmission) << "nobody has it yet";
      return header.retransmission;
    });
    EXPECT_GT(resent, 0);
    EXPECT_LE(resent, 4);
    EXPECT_EQ(direct.to.receiver(direct.receiver).counters().refused, 0u) << tolerant;
    EXPECT_LE(direct.missing, tolerant ? 2 * 1408u : 0u);
  }
}

TEST(MltRecord, OneThatContradictsWhatWasStoredIsIgnored) {
  const Options options = one_path();
  LedgerBook ledgers{LedgerBook::Options{}};
  Receiver receiver(options, Direct::kSecret);
  const TimePoint now{std::chrono::seconds(1)};
  ASSERT_TRUE(receiver.post(7, 100'000, ledgers, now));
  DataHeader data;
  data.secret = Direct::kSecret;
  data.message_bytes = 100'000;
  data.segment = options.segment;
  data.index = first_index(Direct::kSecret, 0, packet_count(100'000, options.segment));
  data.passed = 1;  // as of a tolerant message
  ASSERT_EQ(receiver.on_data(data, {options.segment}, ledgers, now).kind, Placement::Kind::kStage);
  Probe probe;
  probe.secret = Direct::kSecret;
  probe.message_bytes = 100'000;
  probe.segment = options.segment;
  probe.open.tag = 7;
  receiver.on_probe(probe, ledgers, now);
  EXPECT_EQ(receiver.counters().ignored, 1u);
  EXPECT_FALSE(receiver.poll_unstage()) << "nothing was matched";
  probe.open.tolerant = true;
  probe.open.ranks = probe.open.edges = 4;
  probe.open.collective_bytes = 1 << 20;
  receiver.on_probe(probe, ledgers, now);
  EXPECT_TRUE(receiver.poll_unstage());
  EXPECT_TRUE(receiver.is_consistent());
}

// A sender with many receivers sends each of them something now and then. That is its pace, not a loss.
TEST(MltRecord, ThePaceOfASenderIsKnownFromOneMessageToTheNext) {
  Options options = one_path();
  options.ask_cap = milliseconds(1);
  Direct direct(options);
  TimePoint begun{};
  int questions = 0;
  direct.holds = [&](const DataHeader& header) { return direct.now < begun + header.index * microseconds(200); };
  direct.loses_control = [&](const Packet& packet) {
    const auto* state = std::get_if<State>(&packet);
    if (state != nullptr && state->asks) ++questions;
    return false;
  };
  const auto receive_one = [&](int count) {
    begun = direct.now;
    EXPECT_TRUE(direct.post(8 * 1408) && direct.send(8 * 1408));
    direct.run_until_received(count);
    return std::exchange(questions, 0);
  };
  EXPECT_GT(receive_one(1), 0);
  EXPECT_EQ(receive_one(2), 0);
}

// What waited for its receive came late by no fault of the sender.
TEST(MltRecord, AReceiveThatComesLateIsNoPauseOfTheSender) {
  Options options = one_path();
  options.ask_cap = milliseconds(5);
  Direct direct(options);
  ASSERT_TRUE(direct.send(100 * 1408));
  direct.run(milliseconds(10));
  ASSERT_TRUE(direct.post(100 * 1408));
  direct.run_until_received(1);
  bool lost = false;
  std::optional<TimePoint> asked;
  direct.loses = [&](const DataHeader& header) { return header.index == 7 && !std::exchange(lost, true); };
  direct.loses_control = [&](const Packet& packet) {
    const auto* state = std::get_if<State>(&packet);
    if (state != nullptr && state->asks) asked = asked.value_or(direct.now);
    return false;
  };
  const TimePoint begun = direct.now;
  ASSERT_TRUE(direct.post(8 * 1408) && direct.send(8 * 1408));
  direct.run_until_received(2);
  ASSERT_TRUE(lost && asked);
  EXPECT_LT(*asked - begun, microseconds(200));
}

TEST(MltRecord, ASenderIsNeverToldThatAllIsThereBeforeItsRecordIs) {
  const Options options = one_path();
  LedgerBook ledgers{LedgerBook::Options{}};
  Receiver receiver(options, Direct::kSecret);
  const TimePoint now{std::chrono::seconds(1)};
  DataHeader data;
  data.secret = Direct::kSecret;
  data.message_bytes = 2u * options.segment;
  data.segment = options.segment;
  EXPECT_EQ(receiver.on_data(data, {options.segment}, ledgers, now).kind, Placement::Kind::kStage);
  data.index = data.path_seq = 1;
  EXPECT_EQ(receiver.on_data(data, {options.segment}, ledgers, now).kind, Placement::Kind::kDrop);
  data.path_seq = 2;
  data.open.emplace().tag = 7;
  EXPECT_EQ(receiver.on_data(data, {options.segment}, ledgers, now).kind, Placement::Kind::kStage);
  EXPECT_TRUE(receiver.is_consistent());
}

TEST(MltRecord, TheLongestSilenceBeforeAQuestionIsAnOption) {
  for (const Duration bad : {Duration(0), Duration(std::chrono::seconds(2))}) {
    Options options;
    options.ask_cap = bad;
    EXPECT_THROW(Endpoint(options, 1), std::invalid_argument);
  }
}

}  // namespace
}  // namespace clustar::mlt::test
