// Headers of written packets: each is sent twice, in as few datagrams as that needs.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "tests/unit/transport/io/recording_io.h"
#include "transport/base/bytes.h"
#include "transport/io/verbs/uc/outbox.h"

namespace clustar::transport::io::verbs::uc {
namespace {

using Number = std::pair<PeerId, std::uint32_t>;

struct World {
  World() { box = std::move(*Outbox::make(below)); }

  bool gather(PeerId peer, std::uint32_t number, std::size_t bytes = 40, std::uint32_t session = 5) {
    std::vector<std::byte> text(bytes, static_cast<std::byte>(number));
    WrittenHeader header{.grant = number * 3, .segment = number, .pair = pair_key(1, 4)};
    header.header = text;
    return box->gather(peer, {Kind::kHeaders, 0, session, 9}, number, header);
  }
  void burst(PeerId peer, std::uint32_t first, std::uint32_t count, std::size_t bytes = 40) {
    ASSERT_TRUE(box->flush(now));  // UcIo's step
    for (std::uint32_t i = 0; i < count; ++i) ASSERT_TRUE(gather(peer, first + i, bytes));
    box->close();
    ASSERT_TRUE(box->flush(now));
  }
  void pass(Duration time) {
    now += time;
    ASSERT_TRUE(box->flush(now));
  }
  // How often each header arrived, all of it right.
  std::map<Number, int> arrived() const {
    std::map<Number, int> times;
    for (const RecordingIo::Sent& sent : below.sent) {
      const auto preamble = Preamble::parse(sent.header);
      EXPECT_EQ(preamble->kind, Kind::kHeaders);
      std::span<const std::byte> rest = sent.payload;
      std::uint32_t number = WireReader<kBatchFixed>(rest.first<kBatchFixed>()).load<std::uint32_t, 0>();
      rest = rest.subspan(kBatchFixed);
      for (std::uint16_t i = 0; i < preamble->number; ++i, ++number) {
        const auto header = WrittenHeader::parse(rest);
        if (!header) {
          ADD_FAILURE() << "header " << i << " of " << preamble->number;
          break;
        }
        EXPECT_EQ(header->grant, number * 3);
        EXPECT_EQ(header->segment, number);
        EXPECT_TRUE(
            std::ranges::all_of(header->header, [&](std::byte b) { return b == static_cast<std::byte>(number); }));
        rest = rest.subspan(header->size());
        ++times[{sent.packet.peer, number}];
      }
      EXPECT_TRUE(rest.empty());
    }
    return times;
  }
  void expect_all_twice(std::size_t headers) const {
    const auto times = arrived();
    EXPECT_EQ(times.size(), headers);
    for (const auto& [number, count] : times) EXPECT_EQ(count, 2) << number.first << " " << number.second;
  }

  RecordingIo below;
  std::unique_ptr<Outbox> box;
  TimePoint now{std::chrono::seconds(1)};
};

TEST(UcOutbox, TheSecondCopyRidesWithTheNextBurst) {
  World w;
  for (std::uint32_t i = 0; i < 10; ++i) w.burst(7, 1 + 2 * i, 2);
  EXPECT_EQ(w.below.sent.size(), 10u) << "a datagram for each burst";
  EXPECT_TRUE(w.box->owes());
  w.pass(Outbox::kNextBatch);
  EXPECT_FALSE(w.box->owes());
  EXPECT_EQ(w.below.sent.size(), 11u);
  EXPECT_NE(w.below.sent[10].packet.path, w.below.sent[9].packet.path) << "by another path";
  const auto times = w.arrived();
  ASSERT_EQ(times.size(), 20u);
  // The datagram that goes again has the repeated headers of the burst before, too.
  for (const auto& [number, count] : times)
    EXPECT_EQ(count, number.second >= 17 && number.second < 19 ? 3 : 2) << number.second;
}

TEST(UcOutbox, WaitsForTheNextBurstForAMomentOnly) {
  World w;
  w.burst(7, 1, 2);
  w.pass(Outbox::kNextBatch / 2);
  EXPECT_EQ(w.below.sent.size(), 1u);
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 2u);
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 2u);
  w.expect_all_twice(2);
}

TEST(UcOutbox, WaitsLongerWhereBurstsAreFurtherApart) {
  World w;
  for (std::uint32_t i = 0; i < 40; ++i) {
    w.burst(7, 1 + 2 * i, 2);
    w.pass(std::chrono::microseconds(300));
    w.pass(std::chrono::microseconds(300));
  }
  EXPECT_LT(w.below.sent.size(), 55u) << "the first ones alone, then with the next";
  w.pass(Outbox::kLongestWait);
  const std::size_t sent = w.below.sent.size();
  EXPECT_FALSE(w.box->owes());
  w.pass(Outbox::kLongestWait);
  EXPECT_EQ(w.below.sent.size(), sent);
  const auto times = w.arrived();
  EXPECT_EQ(times.size(), 80u);
  for (const auto& [number, count] : times) EXPECT_GE(count, 2) << number.second;
}

TEST(UcOutbox, AnotherPeersBurstDoesNotTakeItAlong) {
  World w;
  w.burst(7, 1, 2);
  w.burst(8, 1, 2);
  w.burst(7, 3, 2);
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 6u);
  w.expect_all_twice(6);
}

TEST(UcOutbox, NorDoesOneOfAnotherSessionOrWithAGap) {
  World w;
  w.burst(7, 1, 2);
  w.burst(7, 4, 1);
  ASSERT_TRUE(w.gather(7, 5, 40, 6));
  w.box->close();
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 6u);
  w.expect_all_twice(4);
}

TEST(UcOutbox, AllKindsOfBurstsArriveTwice) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    World w;
    Rng rng(seed);
    w.below.can.max_packet = 200 + rng.next() % 800;
    w.box = std::move(*Outbox::make(w.below));
    std::map<PeerId, std::uint32_t> next;
    std::size_t gathered = 0;
    for (int burst = 0; burst < 60; ++burst) {
      const PeerId peer = rng.next() % 8 == 0 ? 8 : 7;
      const std::uint64_t count = 1 + rng.next() % 12;
      for (std::uint64_t i = 0; i < count; ++i) {
        if (w.gather(peer, 1 + next[peer], 1 + rng.next() % 90)) ++next[peer], ++gathered;
      }
      w.box->close();
      w.below.room = rng.next() % 4 == 0 ? 1 : 100;
      w.pass(std::chrono::microseconds(rng.next() % 60));
    }
    w.below.room = 10'000;
    w.pass(Outbox::kLongestWait);
    EXPECT_TRUE(w.box->empty());
    const auto times = w.arrived();
    EXPECT_EQ(times.size(), gathered) << seed;
    for (const auto& [number, count] : times) EXPECT_TRUE(count == 2 || count == 3) << seed << ": " << number.second;
  }
}

TEST(UcOutbox, APeerThatIsForgottenIsToldNothingMore) {
  World w;
  w.burst(7, 1, 2);
  w.box->forget(7);
  EXPECT_FALSE(w.box->owes());
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 1u);
  w.burst(8, 1, 1);
  w.pass(Outbox::kNextBatch);
  EXPECT_EQ(w.below.sent.size(), 3u);
}

TEST(UcOutbox, ABlockIsNotWrittenWhileTheDeviceMayReadIt) {
  World w;
  w.below.can.in_flight = 8;
  w.below.can.copies = false;
  w.box = std::move(*Outbox::make(w.below));
  std::map<std::size_t, std::size_t> last;  // offset of a block's memory: the datagram that named it last
  for (std::uint32_t i = 0; i < 2000; ++i) w.burst(7, 1 + i, 1);
  for (std::size_t i = 0; i < w.below.sent.size(); ++i) {
    const std::size_t offset = w.below.sent[i].packet.payload.offset;
    const auto before = last.find(offset);
    const bool again = before != last.end() && before->second + 1 < i;
    EXPECT_TRUE(!again || i - before->second >= 8) << i;
    last[offset] = i;
  }
}

}  // namespace
}  // namespace clustar::transport::io::verbs::uc
