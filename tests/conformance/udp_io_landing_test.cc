// UdpIo::expect: payload that the kernel's own copy puts where it belongs, and what happens when the guess was wrong.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tests/conformance/udp_io_pair.h"
#include "transport/base/rng.h"

namespace clustar::transport::io::udp {
namespace {

constexpr std::size_t kSegment = 1000;

// Header: slot and segment, and for tests that need it, more.
std::optional<Located> locate(std::span<const std::byte> header) {
  std::uint32_t words[2];
  if (header.size() < sizeof words) return std::nullopt;
  std::memcpy(words, header.data(), sizeof words);
  return Located{words[0], words[1]};
}

UdpOptions landing(std::uint8_t paths = 1) {
  UdpOptions options = loopback(paths);
  options.locate = locate;
  options.landing_least_segment = 1;
  return options;
}

std::byte byte_of(std::uint32_t slot, std::size_t offset, int version = 0) {
  return static_cast<std::byte>(slot * 31 + offset * 7 + offset / kSegment * 13 + static_cast<std::size_t>(version));
}

// A message as its sender has it. `version` > 0: other bytes for the same places, as no honest sender has.
struct Message {
  Message(UdpIo& io, std::uint32_t number, std::size_t length, int version = 0) : slot(number), bytes(length) {
    for (std::size_t i = 0; i < length; ++i) bytes[i] = byte_of(number, i, version);
    mr = io.reg_mr(gdr::MemoryRef::host(bytes.data(), length)).value();
  }
  TxPacket packet(PeerId peer, std::uint32_t segment, std::uint8_t path = 0, std::size_t header = 12) const {
    TxPacket packet;
    packet.peer = peer;
    packet.path = path;
    packet.header = Header(header);
    std::memcpy(packet.header.bytes().data(), &slot, 4);
    std::memcpy(packet.header.bytes().data() + 4, &segment, 4);
    const std::size_t at = segment * kSegment;
    packet.payload = {mr.get(), at, std::min(kSegment, bytes.size() - at)};
    return packet;
  }
  std::vector<TxPacket> run(PeerId peer, std::uint32_t first, std::uint32_t count, std::uint8_t path = 0) const {
    std::vector<TxPacket> packets;
    for (std::uint32_t k = 0; k < count; ++k) packets.push_back(packet(peer, first + k, path));
    return packets;
  }
  std::uint32_t slot;
  std::vector<std::byte> bytes;
  std::unique_ptr<Mr> mr;
};

// A message as its receiver sees it, who copies what was not placed and takes a segment once.
struct Target {
  Target(UdpIo& io, std::uint32_t number, std::size_t length) : slot(number), bytes(length), came(length) {
    mr = io.reg_mr(gdr::MemoryRef::host(bytes.data(), length)).value();
  }
  MemorySlice whole() const { return {mr.get(), 0, bytes.size()}; }
  void take(const RxPacket& packet, std::uint32_t segment) {
    const std::size_t at = segment * kSegment;
    ASSERT_LT(at, bytes.size());
    const std::size_t length = std::min(kSegment, bytes.size() - at);
    placed += packet.payload.empty() ? 1 : 0;
    if (came[segment]) return;
    came[segment] = true;
    if (!packet.payload.empty()) {
      ASSERT_EQ(packet.payload.size(), length);
      std::memcpy(bytes.data() + at, packet.payload.data(), length);
    }
  }
  // Every segment that came is there: nothing has written into it since.
  void check() const {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (came[i / kSegment]) {
        ASSERT_EQ(bytes[i], byte_of(slot, i)) << "slot " << slot << " at " << i;
      }
    }
  }
  std::size_t count() const { return static_cast<std::size_t>(std::ranges::count(came, true)); }

  std::uint32_t slot;
  std::vector<std::byte> bytes;
  std::vector<bool> came;
  std::size_t placed = 0;
  std::unique_ptr<Mr> mr;
};

// Receives until nothing comes for 20 ms or `count` packets came, then checks all targets.
std::size_t receive(UdpIo& io, std::map<std::pair<PeerId, std::uint32_t>, Target*> targets, std::size_t count) {
  std::size_t got = 0;
  std::array<RxPacket, 48> burst;
  for (int quiet = 0; quiet < 2 && got < count;) {
    const std::size_t received = io.receive(burst).value();
    for (const RxPacket& packet : std::span(burst).first(received)) {
      const auto where = locate(packet.header);
      const auto target = where ? targets.find({packet.peer, where->slot}) : targets.end();
      if (target != targets.end()) target->second->take(packet, where->segment);
    }
    io.release(std::span(burst).first(received));
    got += received;
    quiet = received > 0 ? 0 : quiet + 1;
    if (received == 0) io.wait(std::chrono::milliseconds(10));
  }
  for (const auto& one : targets) one.second->check();
  return got;
}

struct Bed {
  explicit Bed(std::size_t length, std::uint8_t paths = 1)
      : pair(landing(paths)), sent(*pair.a, 3, length), target(*pair.b, 3, length) {}
  bool can() const { return pair.b->capabilities().landing && pair.a->offloads().gso; }
  Landing expect() { return pair.b->expect(pair.a_of_b, 3, target.whole(), kSegment); }
  std::size_t receive(std::size_t count) { return udp::receive(*pair.b, {{{pair.a_of_b, 3u}, &target}}, count); }
  std::vector<TxPacket> run(std::uint32_t first, std::uint32_t count) const {
    return sent.run(pair.b_of_a, first, count);
  }
  Pair pair;
  Message sent;
  Target target;
};
constexpr const char* kNeeds = "needs a kernel with UDP_SEGMENT and UDP_GRO";

TEST(UdpLanding, ARunIsPlacedByTheKernelUpToItsShorterEnd) {
  Bed bed(60 * kSegment + 300);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  ASSERT_NE(bed.expect().id, 0u);
  bed.pair.send(bed.run(0, 30));
  bed.pair.send(bed.run(30, 31));
  EXPECT_EQ(bed.receive(61), 61u);
  EXPECT_EQ(bed.target.placed, 61u);
  EXPECT_EQ(bed.target.bytes, bed.sent.bytes);
  const UdpCounters& count = bed.pair.b->counters();
  EXPECT_EQ(count.packets_placed, 61u);
  EXPECT_EQ(count.packets_moved, 0u);
  EXPECT_EQ(count.packets_received, 61u);
  EXPECT_EQ(count.messages_received, bed.pair.a->counters().messages_sent);
  EXPECT_EQ(count.bytes_received, bed.pair.a->counters().bytes_sent);
}

TEST(UdpLanding, WhatTheFirstHeaderDidNotPromiseIsMovedAndDeliveredAsUsual) {
  Bed bed(60 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  ASSERT_NE(bed.expect().id, 0u);
  std::vector<TxPacket> packets = bed.run(10, 30);
  std::swap(packets[4], packets[20]);
  packets[8] = bed.sent.packet(bed.pair.b_of_a, 55);
  bed.pair.send(packets);
  EXPECT_EQ(bed.receive(30), 30u);
  EXPECT_EQ(bed.target.placed, 4u);
  EXPECT_EQ(bed.target.count(), 30u);
  EXPECT_EQ(bed.pair.b->counters().packets_moved, 26u);
  // The rest, around it.
  bed.pair.send(bed.run(0, 60));
  EXPECT_EQ(bed.receive(60), 60u);
  EXPECT_EQ(bed.target.bytes, bed.sent.bytes);
}

TEST(UdpLanding, ASegmentThatWasDeliveredIsNeverWrittenAgain) {
  Bed bed(60 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  ASSERT_NE(bed.expect().id, 0u);
  const Message other(*bed.pair.a, 3, 60 * kSegment, 1);  // would show
  bed.pair.send(bed.run(20, 20));                         // placed
  const std::vector<TxPacket> few = bed.run(50, 3);       // copied
  bed.pair.send(few);
  EXPECT_EQ(bed.receive(23), 23u);
  EXPECT_EQ(bed.target.placed, 20u);
  constexpr std::pair<std::uint32_t, std::uint32_t> kRuns[] = {{20, 20}, {23, 17}, {39, 1}, {50, 1}, {52, 1}};
  for (const auto& [first, count] : kRuns) {
    bed.pair.send(other.run(bed.pair.b_of_a, first, count));
    EXPECT_EQ(bed.receive(count), count);  // checks
  }
  bed.pair.send(bed.run(0, 60));  // 0 to 19 are missing, what follows is not
  EXPECT_EQ(bed.receive(60), 60u);
  EXPECT_EQ(bed.target.placed, 40u);
  EXPECT_EQ(bed.target.bytes, bed.sent.bytes);
}

// Datagrams of equal length, so that the kernel joins them, that are cut elsewhere inside.
TEST(UdpLanding, HeadersOfAnotherLengthAndForeignPacketsInARunAreMoved) {
  for (const std::size_t header : {8u, 16u}) {
    Bed bed(60 * kSegment);
    if (!bed.can()) GTEST_SKIP() << kNeeds;
    ASSERT_NE(bed.expect().id, 0u);
    std::vector<TxPacket> packets = bed.run(0, 30);
    packets[10] = bed.sent.packet(bed.pair.b_of_a, 10, 0, header);
    packets[10].payload.length += 12 - header;
    packets[20].header.bytes()[0] = std::byte{99};  // a slot that nobody expects
    bed.pair.send(packets);
    const auto taken = take(*bed.pair.b, 30);
    ASSERT_EQ(taken.size(), 30u);
    for (std::size_t i = 0; i < 30; ++i) {
      SCOPED_TRACE(i);
      const MemorySlice& payload = packets[i].payload;
      EXPECT_TRUE(std::ranges::equal(taken[i].header, packets[i].header.bytes()));
      EXPECT_EQ(taken[i].payload.empty(), i < 10);
      if (i < 10) continue;
      EXPECT_TRUE(
          std::ranges::equal(taken[i].payload, std::span(bed.sent.bytes).subspan(payload.offset, payload.length)));
    }
  }
}

TEST(UdpLanding, AfterCancelNothingIsWritten) {
  Bed bed(60 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  const Landing first = bed.expect();
  ASSERT_NE(first.id, 0u);
  bed.pair.send(bed.run(0, 30));  // waits in the socket
  bed.pair.b->cancel(first);
  bed.pair.b->cancel(first);
  EXPECT_EQ(bed.receive(30), 30u);
  EXPECT_EQ(bed.target.placed, 0u);
  const Landing second = bed.expect();  // of a slot that is free again
  EXPECT_NE(second.id, 0u);
  EXPECT_NE(second.id, first.id);
  bed.pair.b->cancel(first);  // is not the second
  bed.pair.send(bed.run(30, 30));
  EXPECT_EQ(bed.receive(30), 30u);
  EXPECT_EQ(bed.target.placed, 30u);
  ASSERT_TRUE(bed.pair.b->remove_peer(bed.pair.a_of_b));  // takes its landings with it
  EXPECT_EQ(bed.pair.b->expect(bed.pair.a_of_b, 3, bed.target.whole(), kSegment).id, 0u);
}

TEST(UdpLanding, SmallMessagesAndThoseOfOtherSegmentsComeTheUsualWay) {
  Bed bed(60 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  ASSERT_NE(bed.pair.b->expect(bed.pair.a_of_b, 3, bed.target.whole(), kSegment - 1).id, 0u);
  bed.pair.send(bed.run(0, 30));
  bed.pair.send(bed.run(30, 5));
  EXPECT_EQ(bed.receive(35), 35u);
  EXPECT_EQ(bed.target.placed, 0u);
}

TEST(UdpLandingTable, ForgetsAPeerAndFindsNothingThatWasCancelled) {
  std::vector<std::byte> bytes(10);
  LandingTable table;
  const Landing one = table.add(1, 7, bytes, 4);
  ASSERT_NE(one.id, 0u);
  ASSERT_NE(table.add(2, 7, bytes, 4).id, 0u);
  EXPECT_EQ(table.add(1, 7, bytes, 4).id, 0u);
  LandingTarget* target = table.find(1, 7);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(target->segments(), 3u);
  EXPECT_EQ(target->place(2).size(), 2u);
  EXPECT_EQ(target->missing_from(0, 10), 3u);
  target->deliver(1);
  target->deliver(100);  // beyond the end
  EXPECT_EQ(target->missing_from(0, 10), 1u);
  EXPECT_EQ(target->missing_from(1, 10), 0u);
  EXPECT_EQ(target->missing_from(3, 10), 0u);
  table.forget(1);
  EXPECT_EQ(table.find(1, 7), nullptr);
  const Landing again = table.add(1, 7, bytes, 4);
  table.cancel(one);  // an old number
  ASSERT_NE(table.find(1, 7), nullptr);
  EXPECT_EQ(table.find(1, 7)->missing_from(0, 10), 3u);
  table.cancel(again);
  table.cancel(2, 7);
  table.cancel(2, 8);
  EXPECT_TRUE(table.empty());
}

TEST(UdpLanding, HintsThatCannotBeAreNotAccepted) {
  Bed bed(10 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  UdpIo& io = *bed.pair.b;
  const PeerId peer = bed.pair.a_of_b;
  EXPECT_EQ(io.expect(peer + 1, 1, bed.target.whole(), kSegment).id, 0u);
  EXPECT_EQ(io.expect(peer, 1, {}, kSegment).id, 0u);
  EXPECT_EQ(io.expect(peer, 1, {bed.target.mr.get(), 1, 10 * kSegment}, kSegment).id, 0u);
  EXPECT_EQ(io.expect(peer, 1, bed.target.whole(), 0).id, 0u);
  EXPECT_NE(bed.expect().id, 0u);
  EXPECT_EQ(bed.expect().id, 0u);  // has one
  std::size_t accepted = 1;
  for (std::uint32_t slot = 100; slot < 100 + LandingTable::kMost; ++slot) {
    accepted += io.expect(peer, slot, bed.target.whole(), kSegment).id != 0 ? 1 : 0;
  }
  EXPECT_EQ(accepted, LandingTable::kMost);
  Pair plain(loopback(1));
  EXPECT_FALSE(plain.b->capabilities().landing);
  UdpOptions without = landing();
  without.allow_gro = false;
  EXPECT_FALSE(must_open(without)->capabilities().landing);
  UdpOptions long_only = landing();
  long_only.landing_least_segment = kSegment + 1;
  Pair picky(long_only);
  const Target target(*picky.b, 1, 10 * kSegment);
  EXPECT_EQ(picky.b->expect(picky.a_of_b, 1, target.whole(), kSegment).id, 0u);
  EXPECT_NE(picky.b->expect(picky.a_of_b, 1, target.whole(), kSegment + 1).id, 0u);
}

TEST(UdpLanding, MemoryThatIsGoneLosesAMessageAndItsLanding) {
  Bed bed(60 * kSegment);
  if (!bed.can()) GTEST_SKIP() << kNeeds;
  void* page = ::mmap(nullptr, 60 * kSegment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  const auto mr = bed.pair.b->reg_mr(gdr::MemoryRef::host(page, 60 * kSegment)).value();
  ASSERT_NE(bed.pair.b->expect(bed.pair.a_of_b, 3, {mr.get(), 0, 60 * kSegment}, kSegment).id, 0u);
  ASSERT_EQ(::mprotect(page, 60 * kSegment, PROT_NONE), 0);  // unmapped, it might be somebody else's by now
  bed.pair.send(bed.run(0, 30));
  bed.pair.send(bed.run(30, 30));
  EXPECT_EQ(bed.receive(60), 30u);
  EXPECT_EQ(bed.target.placed, 0u);
  EXPECT_EQ(bed.pair.b->counters().refused, 1u);
  ::munmap(page, 60 * kSegment);
}

// Several messages of two senders over several paths, in runs that begin anywhere, overlap, break off and repeat.
TEST(UdpLanding, WhateverComesInWhateverOrderIsThereInTheEnd) {
  constexpr std::uint8_t kPaths = 4;
  constexpr std::uint32_t kSegments = 200;
  Pair pair(landing(kPaths));
  const auto c = must_open(landing(kPaths));
  if (!pair.b->capabilities().landing || !c->offloads().gso) GTEST_SKIP() << kNeeds;
  const PeerId b_of_c = c->add_peer(pair.b->local()).value();
  const PeerId c_of_b = pair.b->add_peer(c->local()).value();
  Rng rng(11);
  for (int round = 0; round < 6; ++round) {
    std::vector<std::unique_ptr<Message>> messages;
    std::vector<std::unique_ptr<Target>> targets;
    std::map<std::pair<PeerId, std::uint32_t>, Target*> by_key;
    std::vector<Landing> landings;
    for (std::uint32_t slot = 0; slot < 6; ++slot) {
      const PeerId peer = slot < 3 ? pair.a_of_b : c_of_b;
      const std::size_t length = kSegments * kSegment - rng.next() % kSegment;
      messages.push_back(std::make_unique<Message>(slot < 3 ? *pair.a : *c, slot, length));
      targets.push_back(std::make_unique<Target>(*pair.b, slot, length));
      by_key[{peer, slot}] = targets.back().get();
      if (slot != 5) landings.push_back(pair.b->expect(peer, slot, targets.back()->whole(), kSegment));
    }
    const auto send_run = [&](std::uint32_t slot, std::uint32_t first, std::uint32_t count) {
      const bool from_a = slot < 3;
      const auto path = static_cast<std::uint8_t>(rng.next() % kPaths);
      auto packets =
          messages[slot]->run(from_a ? pair.b_of_a : b_of_c, first, std::min(count, kSegments - first), path);
      if (rng.next() % 4 == 0) std::swap(packets[rng.next() % packets.size()], packets[rng.next() % packets.size()]);
      if (rng.next() % 4 == 0)
        packets.erase(packets.begin() + static_cast<std::ptrdiff_t>(rng.next() % packets.size()));
      for (std::span<const TxPacket> rest = packets; !rest.empty();) {
        rest = rest.subspan((from_a ? *pair.a : *c).send(rest).value());
      }
    };
    for (int run = 0; run < 60; ++run) {
      send_run(static_cast<std::uint32_t>(rng.next() % 6), static_cast<std::uint32_t>(rng.next() % kSegments),
               static_cast<std::uint32_t>(1 + rng.next() % 60));
      if (run % 3 == 2) receive(*pair.b, by_key, 1 + rng.next() % 100);
    }
    for (int tries = 0; tries < 50; ++tries) {
      receive(*pair.b, by_key, 100000);
      bool all = true;
      for (std::uint32_t slot = 0; slot < 6; ++slot) {
        for (std::uint32_t segment = 0; segment < kSegments; ++segment) {
          if (targets[slot]->came[segment]) continue;
          all = false;
          send_run(slot, segment, 40);
          segment += 40;
        }
      }
      if (all) break;
    }
    for (std::uint32_t slot = 0; slot < 6; ++slot) EXPECT_EQ(targets[slot]->bytes, messages[slot]->bytes) << slot;
    for (const Landing one : landings) pair.b->cancel(one);
  }
  EXPECT_GT(pair.b->counters().packets_placed, 500u);
  EXPECT_GT(pair.b->counters().packets_moved, 100u);
}

}  // namespace
}  // namespace clustar::transport::io::udp
