// The record that says what a message is: on which packets it rides, and what comes before it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "mlt/core/receiver.h"
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

TEST(MltRecord, RidesOnTheFirstPacketsAndThenNowAndThenUntilItIsThere) {
  const Options options = one_path();
  Direct direct(options);
  bool acks = false;
  direct.loses_control = [&](const Packet& packet) { return !acks && std::holds_alternative<Ack>(packet); };
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run(microseconds(9));  // one way and not yet back
  const std::size_t first = direct.data.size();
  ASSERT_GE(first, 24u);
  for (std::size_t i = 0; i < first; ++i) {
    const auto& header = std::get<DataHeader>(direct.data[i].header);
    EXPECT_EQ(header.open.has_value(), i < 4 || (i + 1) % 8 == 0) << i;
  }
  acks = true;
  direct.run_until_received(1);
  const auto& last = std::get<DataHeader>(direct.data.back().header);
  EXPECT_FALSE(last.open.has_value()) << "it was acknowledged long ago";
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
    EXPECT_EQ(lost, 5) << "the eighth packet brought it";
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
  ASSERT_EQ(receiver.on_data(data, options.segment, false, ledgers, now).kind, Placement::Kind::kStage);
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

TEST(MltRecord, TheLongestSilenceBeforeAQuestionIsAnOption) {
  for (const Duration bad : {Duration(0), Duration(std::chrono::seconds(2))}) {
    Options options;
    options.ask_cap = bad;
    EXPECT_THROW(Endpoint(options, 1), std::invalid_argument);
  }
}

}  // namespace
}  // namespace clustar::mlt::test
