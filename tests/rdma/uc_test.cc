// Payload written into place by UC: where it lands, what is lost, and that nothing is written after cancel().
#include <algorithm>
#include <cstring>
#include <functional>
#include <set>
#include <string>

#include "tests/rdma/link.h"
#include "tests/rdma/two_ends.h"
#include "tests/rdma/uc_ends.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;
using transport::conformance::PayloadBuffer;
using transport::conformance::Received;

constexpr std::size_t kSegment = 896;

// A message of end 0 to end 1, whose packets carry its number and theirs.
class UcWrites : public ::testing::Test {
 protected:
  void SetUp() override {
    auto created = UcBed::create({.pair_pause = 4s}, 4);
    if (!created && created.error().code == ErrorCode::kUnavailable) GTEST_SKIP() << created.error().message;
    bed = must(std::move(created));
  }
  // Expects slot `slot` and has the grant heard.
  io::PlacementHint expect(PayloadBuffer& target, std::uint64_t slot) {
    const std::uint64_t heard = bed->uc(0).counters().grants_heard;
    const auto landing = bed->uc(1).expect(bed->peer(1, 0), slot, {target.mr.get(), 0, target.bytes.size()}, kSegment);
    EXPECT_NE(landing.id, 0u);
    EXPECT_TRUE(bed->until([&] { return bed->uc(0).counters().grants_heard > heard; }));
    return landing;
  }
  std::vector<io::TxPacket> packets(const PayloadBuffer& source, std::uint64_t slot, std::uint8_t path = 0) {
    std::vector<io::TxPacket> all;
    for (std::size_t offset = 0; offset < source.bytes.size(); offset += kSegment) {
      io::TxPacket& one = all.emplace_back();
      one.peer = bed->peer(0, 1);
      one.path = path;
      one.header.resize(12);
      const auto segment = static_cast<std::uint32_t>(offset / kSegment);
      std::memcpy(one.header.bytes().data(), &slot, 8);
      std::memcpy(one.header.bytes().data() + 8, &segment, 4);
      one.payload = {source.mr.get(), offset, std::min(kSegment, source.bytes.size() - offset)};
      one.destination = {slot, segment, kSegment};
    }
    return all;
  }
  static std::uint32_t segment_of(const Received& packet) {
    std::uint32_t segment = 0;
    std::memcpy(&segment, packet.header.data() + 8, 4);
    return segment;
  }
  void send(std::span<const io::TxPacket> all) {
    ASSERT_TRUE(bed->until([&] {
      all = all.subspan(must(bed->uc(0).send(all)));
      return all.empty();
    }));
  }
  // The pair is made by the first packet that could use it, which goes as a datagram.
  void bring_up_pair(std::uint8_t path = 0) {
    PayloadBuffer source(bed->end(0), kSegment, 1);
    PayloadBuffer target(bed->end(1), kSegment, 2);
    const std::size_t before = bed->uc(0).pairs_up(bed->peer(0, 1));
    const auto landing = expect(target, 0xfff0u + path);
    send(packets(source, 0xfff0u + path, path));
    ASSERT_TRUE(bed->until([&] { return bed->uc(0).pairs_up(bed->peer(0, 1)) > before; }))
        << bed->uc(0).describe() << (bed->ends[0]->warnings.empty() ? "" : bed->ends[0]->warnings[0])
        << (bed->ends[1]->warnings.empty() ? "" : bed->ends[1]->warnings[0]);
    bed->uc(1).cancel(landing);
    bed->until([&] { return !bed->received[1].empty(); });
    bed->received[1].clear();
  }
  // Puts in by hand what came by datagrams, as a protocol above does.
  static void fill(PayloadBuffer& target, const Received& packet) {
    if (packet.info.placed) return;
    std::ranges::copy(packet.payload,
                      target.bytes.begin() + static_cast<std::ptrdiff_t>(segment_of(packet) * kSegment));
  }

  std::unique_ptr<UcBed> bed;
};

TEST_F(UcWrites, AMessageLandsInPlaceWithoutACopyOfOurs) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 100 * kSegment + 17, 3);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 4);
  const auto landing = expect(target, 7);
  // A packet that brought the pair up may have been written already.
  const auto sent = bed->uc(0).counters();
  const auto came = bed->uc(1).counters();
  send(packets(source, 7));
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 101; })) << bed->uc(1).describe();
  EXPECT_EQ(target.bytes, source.bytes);
  for (const Received& packet : bed->received[1]) {
    EXPECT_TRUE(packet.info.placed);
    EXPECT_EQ(packet.info.peer, bed->peer(1, 0));
    const auto* bytes = source.bytes.data() + segment_of(packet) * kSegment;
    EXPECT_EQ(std::memcmp(packet.payload.data(), bytes, packet.payload.size()), 0);
  }
  EXPECT_EQ(bed->uc(0).counters().datagrams_sent, sent.datagrams_sent) << "none of it went by datagrams";
  EXPECT_EQ(bed->uc(0).counters().packets_written - sent.packets_written, 101u);
  EXPECT_EQ(bed->uc(1).counters().packets_placed - came.packets_placed, 101u);
  bed->uc(1).cancel(landing);
  EXPECT_TRUE(bed->ends[0]->warnings.empty() && bed->ends[1]->warnings.empty());
}

TEST_F(UcWrites, WhatIsSentAgainAndWhatHasNoPlaceGoesByDatagrams) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 4 * kSegment, 5);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 6);
  const auto landing = expect(target, 8);
  send(packets(source, 8));
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 4; }));
  send(packets(source, 8));   // again
  send(packets(source, 99));  // nobody expects it
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 12; }));
  EXPECT_EQ(std::ranges::count_if(bed->received[1], [](const Received& one) { return one.info.placed; }), 4);
  bed->uc(1).cancel(landing);
}

TEST_F(UcWrites, EveryPathHasItsPair) {
  for (std::uint8_t path = 0; path < 4; ++path) bring_up_pair(path);
  PayloadBuffer source(bed->end(0), 64 * kSegment, 7);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 8);
  const auto landing = expect(target, 9);
  std::vector<io::TxPacket> all = packets(source, 9);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].path = static_cast<std::uint8_t>(i % 4);
  send(all);
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 64; }));
  EXPECT_EQ(target.bytes, source.bytes);
  for (const Received& packet : bed->received[1]) {
    EXPECT_TRUE(packet.info.placed);
    EXPECT_EQ(packet.info.path, segment_of(packet) % 4);
  }
  bed->uc(1).cancel(landing);
}

// The promise on which a receive may complete: with packets of the message still on their way, twice and out of order,
// nothing changes any more once cancel() has returned.
TEST_F(UcWrites, NothingIsWrittenAfterCancel) {
  bring_up_pair();
  const Netem trouble("delay 30ms 10ms 25% reorder 30% duplicate 30%");
  for (std::uint64_t round = 0; round < 8; ++round) {
    PayloadBuffer source(bed->end(0), 48 * kSegment, 9);
    PayloadBuffer target(bed->end(1), source.bytes.size(), 10);
    const auto landing = expect(target, 100 + round);
    const std::uint64_t written = bed->uc(0).counters().packets_written;
    send(packets(source, 100 + round));
    ASSERT_EQ(bed->uc(0).counters().packets_written, written + 48);
    // Some have come, others have not.
    const std::size_t some = round * 6;
    bed->until([&] { return bed->received[1].size() >= some; }, 200ms);
    bed->uc(1).cancel(landing);
    std::ranges::fill(target.bytes, std::byte{0xc5});
    const std::uint64_t came = bed->uc(1).counters().packets_placed;
    bed->until([] { return false; }, 120ms);  // longer than anything is on its way
    EXPECT_TRUE(std::ranges::all_of(target.bytes, [](std::byte one) { return one == std::byte{0xc5}; })) << round;
    EXPECT_EQ(bed->uc(1).counters().packets_placed, came) << "and none is told as placed";
    bed->received[1].clear();
  }
  EXPECT_EQ(bed->uc(1).counters().unsure, 0u);
}

// The same memory is open again, for another message: what is late of the old one does not reach it.
TEST_F(UcWrites, AnOldGrantDoesNotOpenItsMemoryAgain) {
  bring_up_pair();
  PayloadBuffer old(bed->end(0), 32 * kSegment, 11);
  PayloadBuffer fresh(bed->end(0), old.bytes.size(), 12);
  PayloadBuffer target(bed->end(1), old.bytes.size(), 13);
  const auto first = expect(target, 20);
  const Netem slow("delay 40ms");
  send(packets(old, 20));
  bed->uc(1).cancel(first);
  std::ranges::fill(target.bytes, std::byte{0});
  const auto second = bed->uc(1).expect(bed->peer(1, 0), 21, {target.mr.get(), 0, target.bytes.size()}, kSegment);
  ASSERT_NE(second.id, 0u);
  bed->until([] { return false; }, 100ms);
  EXPECT_TRUE(std::ranges::all_of(target.bytes, [](std::byte one) { return one == std::byte{0}; }));
  send(packets(fresh, 21));
  bed->received[1].clear();
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() >= 32; }));
  EXPECT_EQ(target.bytes, fresh.bytes);
  bed->uc(1).cancel(second);
}

TEST_F(UcWrites, LossDuplicatesAndReorderingCostPacketsOnly) {
  bring_up_pair();
  const Netem trouble("delay 3ms 2ms loss 5% duplicate 10% reorder 20%");
  std::uint64_t placed = 0;
  for (std::uint64_t round = 0; round < 10; ++round) {
    PayloadBuffer source(bed->end(0), 60 * kSegment, 14);
    PayloadBuffer target(bed->end(1), source.bytes.size(), 15);
    const auto landing =
        bed->uc(1).expect(bed->peer(1, 0), 200 + round, {target.mr.get(), 0, target.bytes.size()}, kSegment);
    bed->until([] { return false; }, 20ms);
    const auto all = packets(source, 200 + round);
    std::set<std::uint32_t> came;
    std::set<std::uint32_t> here;
    for (int tries = 0; tries < 50 && came.size() < all.size(); ++tries) {
      std::vector<io::TxPacket> rest;
      for (const io::TxPacket& one : all) {
        if (!came.contains(one.destination.segment)) rest.push_back(one);
      }
      send(rest);
      bed->until([] { return false; }, 25ms);
      for (const Received& packet : bed->received[1]) {
        std::uint64_t slot = 0;
        std::memcpy(&slot, packet.header.data(), 8);
        if (slot != 200 + round) continue;
        const auto* bytes = source.bytes.data() + segment_of(packet) * kSegment;
        EXPECT_EQ(std::memcmp(packet.payload.data(), bytes, packet.payload.size()), 0);
        if (packet.info.placed) {
          EXPECT_TRUE(here.insert(segment_of(packet)).second) << "placed twice";
          ++placed;
        }
        fill(target, packet);
        came.insert(segment_of(packet));
      }
      bed->received[1].clear();
    }
    bed->uc(1).cancel(landing);
    EXPECT_EQ(came.size(), all.size());
    EXPECT_EQ(target.bytes, source.bytes);
  }
  EXPECT_GT(placed, 300u) << bed->uc(1).describe();
  EXPECT_GT(bed->uc(1).join_counters().duplicate_writes, 0u);
  EXPECT_GT(bed->uc(0).counters().packets_written, bed->uc(1).counters().packets_placed) << "and some were lost";
}

TEST_F(UcWrites, APeerThatIsForgottenAndToldAnewIsWrittenToAgain) {
  bring_up_pair();
  for (int life = 0; life < 3; ++life) {
    const std::size_t forgets = life % 2 == 0 ? 1 : 0;
    const std::size_t other = 1 - forgets;
    must(bed->uc(forgets).remove_peer(bed->peer(forgets, other)));
    must(bed->add_peer(forgets, other));
    PayloadBuffer source(bed->end(0), 8 * kSegment, 16);
    PayloadBuffer target(bed->end(1), source.bytes.size(), 17);
    // The first message brings up the pairs, the second uses them.
    for (std::uint64_t slot : {300u, 301u}) {
      const auto landing = bed->uc(1).expect(bed->peer(1, 0), slot + static_cast<std::uint64_t>(life) * 10,
                                             {target.mr.get(), 0, target.bytes.size()}, kSegment);
      ASSERT_NE(landing.id, 0u);
      const std::uint64_t heard = bed->uc(0).counters().grants_heard;
      ASSERT_TRUE(bed->until([&] { return bed->uc(0).counters().grants_heard > heard; })) << life << " " << slot;
      bed->received[1].clear();
      send(packets(source, slot + static_cast<std::uint64_t>(life) * 10));
      ASSERT_TRUE(bed->until([&] { return bed->received[1].size() >= 8 && bed->uc(0).pairs_up(bed->peer(0, 1)) > 0; }))
          << life;
      EXPECT_TRUE(slot == 300u || bed->received[1].back().info.placed) << life;
      bed->uc(1).cancel(landing);
    }
    EXPECT_EQ(target.bytes, source.bytes);
  }
}

// What leaves rxe_a's end leaves at this rate while it lives. Unlike one that netem delays, a packet in this queue
// counts for its queue pair, of which SoftRoCE has 64 on their way at most: the rest waits to be read.
class Rate {
 public:
  explicit Rate(const std::string& rate) {
    output_of("tc qdisc replace dev va root tbf rate " + rate + " burst 10000 limit 1000000");
  }
  ~Rate() { EXPECT_NO_THROW(output_of("tc qdisc del dev va root")); }
  Rate(const Rate&) = delete;
  Rate& operator=(const Rate&) = delete;
};

TEST_F(UcWrites, MemoryThatIsTakenBackWasSent) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 128 * kSegment, 19);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 20);
  const auto landing = expect(target, 400);
  const std::vector<std::byte> sent = source.bytes;
  {
    const Rate slow("4mbit");
    send(packets(source, 400));
    source.mr.reset();
    std::ranges::fill(source.bytes, std::byte{0x5c});
    ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 128; })) << bed->uc(0).describe();
  }
  EXPECT_EQ(target.bytes, sent);
  EXPECT_EQ(bed->uc(0).counters().pairs_failed, 0u);
  bed->uc(1).cancel(landing);
}

TEST_F(UcWrites, APairThatDoesNotSendIsEndedAndWaitedForOnce) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 128 * kSegment, 21);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 22);
  const auto landing = expect(target, 401);
  const auto took = [](const std::function<void()>& what) {
    const auto begin = std::chrono::steady_clock::now();
    what();
    return std::chrono::steady_clock::now() - begin;
  };
  {
    const Rate stuck("1kbit");
    send(packets(source, 401));
    const auto first = took([&] { bed->uc(0).quiesce(); });
    EXPECT_GT(first, 900ms);
    EXPECT_LT(first, 4s);
    EXPECT_LT(took([&] { bed->uc(0).quiesce(); }), 500ms);
    EXPECT_LT(took([&] { source.mr.reset(); }), 500ms);
  }
  // It is found out by the next packet that could go there, and the message comes all the same.
  PayloadBuffer again(bed->end(0), 8 * kSegment, 23);
  PayloadBuffer place(bed->end(1), again.bytes.size(), 24);
  const auto other = expect(place, 402);
  bed->received[1].clear();
  send(packets(again, 402));
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() >= 8; })) << bed->uc(0).describe();
  EXPECT_EQ(bed->uc(0).counters().pairs_failed, 1u);
  EXPECT_NE(bed->uc(0).describe().find("did not send"), std::string::npos) << bed->uc(0).describe();
  bed->uc(1).cancel(landing);
  bed->uc(1).cancel(other);
}

// The link is down at the end that writes, where SoftRoCE fails the pair: its packets are lost, datagrams carry what
// follows, and a pair is made again.
TEST_F(UcWrites, APairThatFailsWithTheLinkIsMadeAnew) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 64 * kSegment, 27);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 28);
  // All address handles are made when they are first used, which needs the link.
  const auto first = expect(target, 599);
  send(packets(source, 599));
  ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 64; }));
  bed->received[1].clear();
  bed->uc(1).cancel(first);
  const auto landing = expect(target, 600);
  const auto all = packets(source, 600);
  {
    const LinkDown down("va");
    send(all);
    bed->until([] { return false; }, 1s);
    const auto begin = std::chrono::steady_clock::now();
    bed->uc(0).quiesce();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 900ms);
  }
  std::set<std::uint32_t> came;
  for (int tries = 0; tries < 100 && came.size() < all.size(); ++tries) {
    send(all);
    bed->until([] { return false; }, 50ms);
    for (const Received& packet : bed->received[1]) {
      fill(target, packet);
      came.insert(segment_of(packet));
    }
    bed->received[1].clear();
  }
  EXPECT_EQ(came.size(), all.size()) << bed->uc(0).describe();
  EXPECT_EQ(target.bytes, source.bytes);
  bed->uc(1).cancel(landing);
  EXPECT_GT(bed->ends[0]->ud->counters().restarts, 0u) << "its datagrams were lost with the link, too";
  // It is tried again after a pause.
  const auto limit = std::chrono::steady_clock::now() + 30s;
  bool placed = false;
  for (std::uint64_t slot = 601; !placed && std::chrono::steady_clock::now() < limit; ++slot) {
    const auto next = expect(target, slot);
    send(packets(source, slot));
    bed->until([&] { return bed->received[1].size() >= all.size(); }, 500ms);
    placed = std::ranges::any_of(bed->received[1], [](const Received& one) { return one.info.placed; });
    bed->received[1].clear();
    bed->uc(1).cancel(next);
  }
  EXPECT_TRUE(placed) << bed->uc(0).describe();
  EXPECT_EQ(bed->uc(0).counters().pairs_failed, 1u);
}

// The queue pair that binds windows is connected to itself through the port. Closing one while the link is down is as
// certain as ever: who still holds its grant, because it could not be told, writes nothing.
TEST_F(UcWrites, AWindowIsClosedWhileTheLinkIsDown) {
  bring_up_pair();
  PayloadBuffer source(bed->end(0), 32 * kSegment, 29);
  PayloadBuffer target(bed->end(1), source.bytes.size(), 30);
  PayloadBuffer other(bed->end(1), source.bytes.size(), 31);
  const auto landing = expect(target, 700);
  std::uint64_t placed = 0;
  io::PlacementHint opened;
  {
    const LinkDown down("vb");
    bed->until([] { return false; }, 100ms);
    opened = bed->uc(1).expect(bed->peer(1, 0), 701, {other.mr.get(), 0, other.bytes.size()}, kSegment);
    EXPECT_NE(opened.id, 0u);
    const auto begin = std::chrono::steady_clock::now();
    bed->uc(1).cancel(landing);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 1s);
    // Until the link is back nothing that tells of it leaves, and afterwards it is not said again.
    bed->until([] { return false; }, 100ms);
    std::ranges::fill(target.bytes, std::byte{0xc5});
    placed = bed->uc(1).counters().packets_placed;
  }
  const std::uint64_t written = bed->uc(0).counters().packets_written;
  send(packets(source, 700));
  bed->until([] { return false; }, 500ms);
  EXPECT_EQ(bed->uc(0).counters().packets_written, written + 32) << "it holds the grant";
  EXPECT_TRUE(std::ranges::all_of(target.bytes, [](std::byte one) { return one == std::byte{0xc5}; }));
  EXPECT_EQ(bed->uc(1).counters().packets_placed, placed);
  bed->uc(1).cancel(opened);
  EXPECT_EQ(bed->uc(1).counters().unsure, 0u);
  EXPECT_TRUE(bed->ends[1]->warnings.empty()) << bed->ends[1]->warnings[0];
}

// A caller that sleeps on the descriptors is woken by what comes, and not again by what was taken.
TEST_F(UcWrites, WhatWasTakenDoesNotWake) {
  bring_up_pair();
  const auto readable = [&](std::chrono::milliseconds limit) {
    return io::verbs::wait_readable(bed->uc(1).readable_fd(), limit) == 0;
  };
  for (std::uint64_t round = 0; round < 20; ++round) {
    PayloadBuffer source(bed->end(0), 8 * kSegment, 25);
    PayloadBuffer target(bed->end(1), source.bytes.size(), 26);
    const auto landing = expect(target, 500 + round);
    ASSERT_TRUE(bed->until([&] { return must(bed->uc(1).arm()) > Duration(0); }));
    bed->received[1].clear();
    send(packets(source, 500 + round));
    if (round % 2 == 0) {
      EXPECT_TRUE(readable(1000ms));
    }
    ASSERT_TRUE(bed->until([&] { return bed->received[1].size() == 8; }));
    ASSERT_TRUE(bed->until([&] { return must(bed->uc(1).arm()) > Duration(0); }));
    EXPECT_FALSE(readable(2ms)) << round;
    bed->uc(1).cancel(landing);
  }
}

// What ends the right of peers to write costs: RecordProperty, of an emulated processor, so counts more than times.
TEST_F(UcWrites, TheCostOfOpeningAndClosing) {
  bring_up_pair();
  constexpr int kRounds = 600;  // more than a window has keys
  PayloadBuffer target(bed->end(1), 64 * kSegment, 18);
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kRounds; ++i) {
    const auto landing = bed->uc(1).expect(bed->peer(1, 0), 1000 + static_cast<std::uint64_t>(i),
                                           {target.mr.get(), 0, target.bytes.size()}, kSegment);
    ASSERT_NE(landing.id, 0u) << i;
    bed->uc(1).cancel(landing);
  }
  const auto took = std::chrono::steady_clock::now() - begin;
  const double each = std::chrono::duration<double, std::micro>(took).count() / kRounds;
  std::printf("emulated: %.0f us per expect and cancel (a bind and an unbind)\n", each);
  EXPECT_EQ(bed->uc(1).counters().unsure, 0u);
}

}  // namespace
}  // namespace clustar::tests
