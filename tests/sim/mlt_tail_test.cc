// The end of a burst, which nothing follows on its lane.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "mlt/core/send/sender.h"
#include "tests/sim/direct.h"
#include "tests/sim/lone_sender.h"

namespace clustar::mlt::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr std::uint32_t kBurst = 11;  // packets of 1408 B in 16 KiB

class Alone : public LoneSender {
 public:
  explicit Alone(std::uint64_t seed) : LoneSender(opted_in(), seed) {
    for (int i = 0; i < int{2 * kBurst}; ++i) {  // round trips of 100 us, and no burst begun
      const std::vector<Transmit> one = send(1);
      now += microseconds(100);
      acknowledge(one);
      complete(one.front().message);
    }
  }

  // What leaves at once.
  std::vector<Transmit> send(std::uint32_t packets, const SendTerms& terms = {}) {
    sender.on_posted({1, 7, posted_++, packets * 1408, 1u << 24}, now);
    EXPECT_TRUE(sender.send(packets * 1408, 7, terms, now));
    return poll();
  }
  void acknowledge(const std::vector<Transmit>& arrived) {
    for (const Transmit& transmit : arrived) {
      Ack ack;
      ack.credit_units = 1u << 24;
      ack.count = 1;
      ack.blocks[0].path = transmit.path;
      ack.blocks[0].traffic_class = transmit.traffic_class;
      ack.blocks[0].largest = std::get<DataHeader>(transmit.header).path_seq;
      sender.on_ack(ack, now);
    }
  }
  void complete(std::uint32_t message) {
    State state;
    state.stop = state.complete = state.matched = true;
    state.message = message;
    sender.on_state(state, now);
    while (sender.poll_done()) continue;
  }
  // `missing`: all of the message, otherwise its first packet is there.
  void tell(std::uint32_t message, std::uint16_t packets, bool missing) {
    State state;
    state.matched = true;
    state.message = message;
    state.count = packets;
    for (std::uint32_t i = missing ? 0 : 1; i < packets; ++i) state.missing[i / 8] |= std::byte{0x80} >> (i % 8);
    sender.on_state(state, now);
  }

 private:
  std::uint32_t posted_ = 0;
};

int probes(const std::vector<Transmit>& packets, std::uint32_t message) {
  int count = 0;
  for (const Transmit& transmit : packets) {
    const auto* probe = std::get_if<Probe>(&transmit.header);
    count += probe != nullptr && probe->message == message ? 1 : 0;
  }
  return count;
}

// A burst, and 20 us later a packet on another path, which alone is acknowledged. nullopt: it took the same path.
std::optional<std::uint32_t> burst_then_one(Alone& alone, const SendTerms& terms = {}) {
  const std::vector<Transmit> burst = alone.send(kBurst, terms);
  EXPECT_EQ(burst.size(), kBurst);
  alone.now += microseconds(20);
  const std::vector<Transmit> one = alone.send(1);
  if (one.front().path == burst.front().path) return std::nullopt;
  alone.now += microseconds(100);
  alone.acknowledge(one);
  return burst.front().message;
}

TEST(MltTail, OfALostAcknowledgementOnePacketGoesTwice) {
  int looked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Alone alone(seed);
    const auto message = burst_then_one(alone);
    if (!message) continue;
    ++looked;
    const std::vector<Transmit> out = alone.wait(microseconds(100));
    EXPECT_EQ(probes(out, *message), 1);
    EXPECT_EQ(alone.sender.counters().retransmitted, 1u);
    EXPECT_EQ(alone.sender.counters().lost, 1u) << "or the path would be sidelined, and the window shrink";
    alone.complete(*message);
    alone.wait(milliseconds(1));
    EXPECT_EQ(alone.sender.counters().lost, 1u);
  }
  EXPECT_GT(looked, 10);
}

TEST(MltTail, OfALostBurstTheReceiverSaysSo) {
  int looked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Alone alone(seed);
    const auto message = burst_then_one(alone);
    if (!message) continue;
    ++looked;
    alone.wait(microseconds(50));
    alone.tell(*message, kBurst, true);
    alone.poll();
    EXPECT_EQ(alone.sender.counters().retransmitted, kBurst);
    EXPECT_EQ(alone.sender.counters().lost, kBurst);
  }
  EXPECT_GT(looked, 10);
}

TEST(MltTail, AStateWakesItAsAnAcknowledgementDoes) {
  int looked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Alone alone(seed);
    const std::vector<Transmit> lost = alone.send(kBurst);
    alone.now += microseconds(60);
    const std::vector<Transmit> two = alone.send(2);
    if (two.front().path == lost.front().path) continue;
    ++looked;
    alone.wait(microseconds(100));
    ASSERT_EQ(alone.sender.counters().retransmitted, 0u) << "nothing that left later has come";
    alone.tell(two.front().message, 2, false);
    alone.wait(microseconds(50));
    EXPECT_EQ(alone.sender.counters().retransmitted, 1u);
  }
  EXPECT_GT(looked, 10);
}

// It may be in a queue that others pass: no budget pays for it, it goes again, and the receiver is asked what is there.
TEST(MltTail, ATolerantMessageIsNotChargedForWhatMayOnlyBeLate) {
  SendTerms terms;
  terms.tolerant = true;
  terms.ranks = terms.edges = 4;
  terms.collective_bytes = 100 << 20;
  terms.tolerance_ppm = 100'000;
  int looked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Alone alone(seed);
    alone.allowances.open({}, {terms.collective_bytes, terms.ranks, terms.edges, terms.tolerance_ppm});
    alone.allowances.add_eligible({}, 1 << 20);  // of earlier messages
    const auto message = burst_then_one(alone, terms);
    if (!message) continue;
    ++looked;
    EXPECT_EQ(probes(alone.wait(microseconds(100)), *message), 1);
    EXPECT_EQ(alone.sender.counters().lost, 1u);
    EXPECT_EQ(alone.sender.counters().retransmitted, 1u);
    EXPECT_EQ(alone.allowances.totals().charged, 0u);
  }
  EXPECT_GT(looked, 10);
}

// What is sent again goes in a class of its own, where nothing follows it: of one path, too.
TEST(MltTail, ALostRetransmissionIsSeenByWhatComesInOtherClasses) {
  Options options;
  options.paths = 1;
  Direct direct(options);
  ASSERT_TRUE(direct.post(1 << 20) && direct.send(1 << 20));
  direct.run_until_received(1);
  std::vector<TimePoint> left;
  direct.loses = [&](const DataHeader& header) {
    if (header.message != 1 || header.index != 100) return false;
    left.push_back(direct.now);
    return left.size() <= 2;
  };
  ASSERT_TRUE(direct.post(16 << 20) && direct.send(16 << 20));
  direct.run_until_received(2);
  ASSERT_EQ(left.size(), 3u);
  EXPECT_LT(left[2] - left[1], microseconds(300)) << "not only when the message has come to its end";
}

}  // namespace
}  // namespace clustar::mlt::test
