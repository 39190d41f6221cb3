// The pure part of packets over UC: two ends of it over a network that loses, repeats and reorders, with memory that is
// written only while its window is open.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "transport/base/rng.h"
#include "transport/io/verbs/uc/granted.h"
#include "transport/io/verbs/uc/join.h"
#include "transport/io/verbs/uc/landings.h"
#include "transport/io/verbs/uc/wire.h"

namespace clustar::transport::io::verbs::uc {
namespace {

constexpr std::uint32_t kSegment = 8;
constexpr PeerId kSender = 5;

WrittenHeader header_with(std::span<const std::byte> bytes, std::uint32_t segment = 0) {
  WrittenHeader header{.grant = 1, .segment = segment, .pair = 3};
  header.header = bytes;
  return header;
}

TEST(UcJoin, BringsTogetherWhatComesInAnyOrder) {
  HeaderBlocks blocks(8);
  Join join(blocks, 8);
  const std::array<std::byte, 2> bytes{std::byte{1}, std::byte{2}};
  EXPECT_EQ(join.on_header(1, header_with(bytes, 10), Ecn::kCe), Join::Heard::kWaits);
  EXPECT_EQ(join.waiting(), 1u);
  EXPECT_FALSE(join.poll());
  join.on_write(2, 64);
  join.on_write(1, 32);
  EXPECT_EQ(join.on_header(2, header_with(bytes, 20), Ecn::kNotEct), Join::Heard::kWhole);
  const auto first = join.poll();
  const auto second = join.poll();
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->segment, 10u);
  EXPECT_EQ(first->bytes, 32u);
  EXPECT_EQ(first->ecn, Ecn::kCe);
  EXPECT_EQ(second->segment, 20u);
  EXPECT_TRUE(std::ranges::equal(blocks.get(second->block), bytes));
  EXPECT_EQ(join.waiting(), 0u);
  EXPECT_TRUE(join.is_consistent());
}

TEST(UcJoin, DuplicatesAndWhatIsBehindTheWindowAreNothing) {
  HeaderBlocks blocks(8);
  Join join(blocks, 4);
  const std::array<std::byte, 1> bytes{std::byte{1}};
  join.on_write(1, 8);
  join.on_write(1, 8);
  EXPECT_EQ(join.on_header(1, header_with(bytes), Ecn::kNotEct), Join::Heard::kWhole);
  EXPECT_EQ(join.on_header(1, header_with(bytes), Ecn::kNotEct), Join::Heard::kKnown);
  const auto whole = join.poll();
  ASSERT_TRUE(whole);
  blocks.free(whole->block);
  join.on_write(1, 8);
  EXPECT_FALSE(join.poll()) << "once is enough";
  EXPECT_EQ(join.counters().duplicate_writes, 2u);
  EXPECT_EQ(join.on_header(2, header_with(bytes), Ecn::kNotEct), Join::Heard::kWaits);
  join.on_write(3, 8);
  join.on_write(9, 8);  // forgets 2 and 3
  EXPECT_EQ(join.counters().lost_writes, 1u);
  EXPECT_EQ(join.counters().lost_headers, 1u);
  join.on_write(2, 8);
  EXPECT_EQ(join.counters().late, 1u);
  EXPECT_FALSE(join.poll());
  EXPECT_EQ(blocks.free_count(), 8u);
}

TEST(UcJoin, WithoutRoomAHeaderIsLostAndItsRepetitionMayCome) {
  HeaderBlocks blocks(1);
  Join join(blocks, 8);
  const std::array<std::byte, 1> bytes{std::byte{1}};
  EXPECT_EQ(join.on_header(1, header_with(bytes), Ecn::kNotEct), Join::Heard::kWaits);
  EXPECT_EQ(join.on_header(2, header_with(bytes), Ecn::kNotEct), Join::Heard::kNoRoomAndWaits);
  join.on_write(2, 8);
  EXPECT_EQ(join.on_header(2, header_with(bytes), Ecn::kNotEct), Join::Heard::kNoRoom);
  join.on_write(1, 8);
  blocks.free(join.poll()->block);
  EXPECT_EQ(join.on_header(2, header_with(bytes), Ecn::kNotEct), Join::Heard::kWhole);
  EXPECT_EQ(join.counters().no_block, 2u);
}

// The room is everybody's: a peer whose writes are lost, and who then says nothing more, must not keep it.
TEST(UcJoin, AHeaderWithoutItsWriteDoesNotKeepItsRoom) {
  HeaderBlocks blocks(4);
  Join lossy(blocks, 8);
  Join other(blocks, 8);
  const std::array<std::byte, 1> bytes{std::byte{1}};
  for (std::uint32_t number = 1; number <= 3; ++number) lossy.on_header(number, header_with(bytes), Ecn::kNotEct);
  lossy.on_write(3, 8);
  lossy.expire();
  lossy.on_header(4, header_with(bytes), Ecn::kNotEct);
  lossy.on_write(2, 8);
  EXPECT_EQ(other.on_header(1, header_with(bytes), Ecn::kNotEct), Join::Heard::kNoRoomAndWaits);
  lossy.expire();  // 1 waited twice, 4 once; 2 and 3 are whole
  EXPECT_EQ(lossy.counters().lost_writes, 1u);
  EXPECT_EQ(lossy.waiting(), 1u);
  EXPECT_EQ(other.on_header(1, header_with(bytes), Ecn::kNotEct), Join::Heard::kWaits);
  lossy.on_write(1, 8);
  EXPECT_TRUE(lossy.poll());
  EXPECT_TRUE(lossy.poll());
  EXPECT_FALSE(lossy.poll()) << "what was forgotten";
  lossy.expire();
  EXPECT_EQ(lossy.waiting(), 0u);
  EXPECT_TRUE(lossy.is_consistent());
}

TEST(UcGranted, ASegmentIsWrittenOnceAndOnlyIfItFits) {
  Granted granted;
  const Grant grant{.slot = 7, .id = 4097, .rkey = 1, .address = 1000, .length = 20, .segment_bytes = 8};
  EXPECT_FALSE(granted.take({7, 0, 8}, 8)) << "not granted";
  EXPECT_TRUE(granted.on_grant(grant));
  EXPECT_FALSE(granted.on_grant(grant)) << "the same again";
  EXPECT_FALSE(granted.take({7, 0, 16}, 8)) << "other segments";
  EXPECT_FALSE(granted.take({7, 2, 8}, 8)) << "longer than the last segment";
  EXPECT_FALSE(granted.take({7, 3, 8}, 1)) << "no such segment";
  ASSERT_TRUE(granted.take({7, 2, 8}, 4));
  EXPECT_FALSE(granted.take({7, 2, 8}, 4)) << "written";
  EXPECT_FALSE(granted.on_grant(grant)) << "a repetition does not open it again";
  EXPECT_FALSE(granted.take({7, 2, 8}, 4));
  EXPECT_EQ(granted.take({7, 1, 8}, 8)->address, 1008u);
  granted.on_revoke(4097);
  EXPECT_FALSE(granted.take({7, 0, 8}, 8));
  EXPECT_FALSE(granted.on_grant(grant)) << "revoked, and late";
  Grant newer = grant;
  newer.id = 2 << 12;
  EXPECT_TRUE(granted.on_grant(newer));
  EXPECT_TRUE(granted.take({7, 2, 8}, 4));
  for (std::uint64_t slot = 100; slot < 100 + Granted::kMost; ++slot) {
    newer.slot = slot;
    granted.on_grant(newer);
  }
  EXPECT_EQ(granted.size(), Granted::kMost) << "bounded";
}

TEST(UcLandings, AreToldUntilTheyAreUsedAndNotForEver) {
  Landings landings;
  std::array<std::byte, 32> memory{};
  const std::uint32_t id = landings.add({.peer = kSender, .slot = 1, .bytes = memory, .segment_bytes = kSegment});
  ASSERT_NE(id, 0u);
  EXPECT_EQ(landings.add({.peer = kSender, .slot = 1, .bytes = memory, .segment_bytes = kSegment}), 0u);
  TimePoint now{};
  EXPECT_FALSE(landings.poll(now)) << "its window is not open yet";
  landings.bound(id, 9, 500, now);
  int told = 0;
  while (landings.next_timeout() != TimePoint::max()) {
    now = landings.next_timeout();
    while (landings.poll(now)) ++told;
    ASSERT_LT(told, 100);
  }
  EXPECT_EQ(told, Landings::kRepeats + 1);
  landings.tell_again(kSender, now);
  EXPECT_TRUE(landings.poll(now));
  landings.used(id, kSender);
  EXPECT_EQ(landings.next_timeout(), TimePoint::max());
  EXPECT_FALSE(landings.take(id, kSender + 1, 0, 8)) << "another peer's";
  EXPECT_FALSE(landings.take(id, kSender, 0, 9)) << "more than a segment";
  EXPECT_TRUE(landings.take(id, kSender, 0, 8));
  EXPECT_FALSE(landings.take(id, kSender, 0, 8)) << "returned";
  EXPECT_TRUE(landings.remove(id));
  EXPECT_FALSE(landings.take(id, kSender, 1, 8));
  EXPECT_EQ(landings.size(), 0u);
}

TEST(UcWire, ParsesWhatItWroteAndNothingElse) {
  std::array<std::byte, Grant::kSize> bytes;
  const Grant grant{.slot = 7, .id = 3, .rkey = 1, .address = 1000, .length = 20, .segment_bytes = 8};
  grant.serialize_to(bytes);
  EXPECT_EQ(Grant::parse(bytes), grant);
  std::array<std::byte, PairEnd::kSize> pair;
  const PairEnd end{.queue_pair = 17, .psn = 4, .key = 200, .mtu = 3, .answers = 5};
  end.serialize_to(pair);
  EXPECT_EQ(PairEnd::parse(pair), end);
  // Whatever comes: no crash, and what is accepted is in range.
  Rng rng(1);
  for (int round = 0; round < 200'000; ++round) {
    std::array<std::byte, 48> noise;
    for (std::byte& each : noise) each = static_cast<std::byte>(rng.next());
    if (round % 2 == 0) noise[2] = noise[24] = noise[0] = std::byte{0};
    const auto part = std::span<const std::byte>(noise).first(rng.below(noise.size() + 1));
    if (const auto parsed = Grant::parse(part)) {
      EXPECT_LE(parsed->segments(), kMostSegments);
    }
    if (const auto parsed = WrittenHeader::parse(part)) {
      EXPECT_LE(parsed->size(), part.size());
    }
    static_cast<void>(Preamble::parse(part));
    static_cast<void>(PairEnd::parse(part));
  }
}

// One way of packets: landings and join at one end, grants at the other.
class World {
 public:
  explicit World(std::uint64_t seed) : rng_(seed), join_(blocks_, 64) {}

  void run() {
    for (int step = 0; step < 400; ++step) {
      now_ += std::chrono::microseconds(rng_.below(2000));
      if (rng_.below(12) == 0) expect();
      if (rng_.below(25) == 0) cancel();
      if (rng_.below(40) == 0) join_.expire();
      tell();
      if (rng_.below(2) == 0) write_some();
      arrive();
      take();
      ASSERT_TRUE(join_.is_consistent());
    }
    for (int step = 0; step < 400; ++step) arrive();
    take();
    // All that is held is what waits for its other half.
    ASSERT_EQ(blocks_.free_count() + join_.waiting(), blocks_.size());
  }
  std::uint64_t placed() const { return placed_; }

 private:
  static constexpr std::uint32_t kSegments = 6;
  struct Memory {  // of one landing
    std::uint32_t id = 0;
    std::uint64_t slot = 0;
    std::uint32_t rkey = 0;
    bool open = false;  // its window
    std::array<std::byte, kSegments * kSegment> bytes{};
    std::set<std::uint32_t> returned{};
  };
  struct Flying {
    TimePoint at{};
    bool is_write = false;
    std::uint32_t number = 0;
    std::uint32_t rkey = 0;
    std::uint64_t address = 0;
    std::array<std::byte, kSegment> payload{};
    std::vector<std::byte> batch{};  // of headers, otherwise a grant
  };
  static std::byte byte_of(std::uint64_t slot, std::uint32_t segment) {
    return static_cast<std::byte>(slot * 31 + segment * 7 + 1);
  }

  void expect() {
    Memory& memory = memories_.emplace_back();
    memory.slot = 1 + rng_.below(8);  // slots come again
    memory.id = landings_.add({.peer = kSender, .slot = memory.slot, .bytes = memory.bytes, .segment_bytes = kSegment});
    if (memory.id == 0) {
      memories_.pop_back();
      return;
    }
    memory.rkey = ++next_rkey_;
    memory.open = true;
    landings_.bound(memory.id, memory.rkey, memories_.size() << 20, now_);
  }
  void cancel() {
    for (Memory& memory : memories_) {
      if (!memory.open || rng_.below(2) == 0) continue;
      memory.open = false;
      if (landings_.remove(memory.id) && rng_.below(3) > 0) granted_.on_revoke(memory.id);
      return;
    }
  }
  void tell() {
    while (const auto due = landings_.poll(now_)) {
      Flying grant;
      grant.batch.resize(Grant::kSize);
      due->grant.serialize_to(std::span(grant.batch).first<Grant::kSize>());
      launch(grant);
    }
  }
  // Loses, repeats and delays.
  void launch(Flying flying) {
    for (std::uint64_t copies = rng_.below(10) == 0 ? 2 : 1; copies > 0; --copies) {
      if (rng_.below(10) == 0) continue;
      flying.at = now_ + std::chrono::microseconds(rng_.below(rng_.below(5) == 0 ? 20'000 : 500));
      flying_.push_back(flying);
    }
  }
  void write_some() {
    Flying batch;
    batch.number = next_number_;
    const std::uint64_t slot = 1 + rng_.below(8);
    for (std::uint32_t segment = 0; segment < kSegments; ++segment) {
      const std::uint32_t id = granted_.id_of(slot);
      const auto target = granted_.take({slot, segment, kSegment}, kSegment);
      if (!target) continue;
      Flying write;
      write.is_write = true;
      write.number = next_number_++;
      write.rkey = target->rkey;
      write.address = target->address;
      write.payload.fill(byte_of(slot, segment));
      launch(write);
      const std::array<std::byte, 2> bytes{static_cast<std::byte>(slot), static_cast<std::byte>(segment)};
      WrittenHeader header{.grant = id, .segment = segment, .pair = 1};
      header.header = bytes;
      const std::size_t at = batch.batch.size();
      batch.batch.resize(at + header.size());
      header.serialize_to(std::span(batch.batch).subspan(at));
    }
    if (batch.batch.empty()) return;
    batch.rkey = 1;  // headers, not a grant
    launch(batch);
    launch(batch);
  }
  void arrive() {
    now_ += std::chrono::microseconds(100);
    for (std::size_t i = 0; i < flying_.size();) {
      if (flying_[i].at > now_) {
        ++i;
        continue;
      }
      const Flying flying = flying_[i];
      flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(i));
      if (flying.is_write) {
        land(flying);
      } else if (flying.rkey == 0) {
        granted_.on_grant(*Grant::parse(flying.batch));
      } else {
        std::span<const std::byte> rest = flying.batch;
        for (std::uint32_t number = flying.number; !rest.empty(); ++number) {
          const auto header = WrittenHeader::parse(rest);
          rest = rest.subspan(header->size());
          landings_.used(header->grant, kSender);
          join_.on_header(number, *header, Ecn::kNotEct);
        }
      }
    }
  }
  // As a NIC does: with a key that is not valid nothing is written, and nothing is told.
  void land(const Flying& write) {
    Memory& memory = memories_[(write.address >> 20) - 1];
    if (!memory.open || memory.rkey != write.rkey) return;
    std::memcpy(memory.bytes.data() + (write.address & 0xfffff), write.payload.data(), kSegment);
    join_.on_write(write.number, kSegment);
  }
  void take() {
    while (const auto whole = join_.poll()) {
      const auto header = blocks_.get(whole->block);
      const auto slot = std::to_integer<std::uint64_t>(header[0]);
      if (const auto bytes = landings_.take(whole->grant, kSender, whole->segment, whole->bytes)) {
        ++placed_;
        EXPECT_EQ(std::to_integer<std::uint32_t>(header[1]), whole->segment);
        for (const std::byte each : *bytes) EXPECT_EQ(each, byte_of(slot, whole->segment));
        Memory& memory = of(whole->grant);
        EXPECT_TRUE(memory.open) << "returned after its end";
        EXPECT_EQ(memory.slot, slot);
        EXPECT_TRUE(memory.returned.insert(whole->segment).second) << "returned twice";
      }
      blocks_.free(whole->block);
    }
  }
  Memory& of(std::uint32_t id) {
    return *std::ranges::find_if(memories_, [id](const Memory& each) { return each.id == id; });
  }

  Rng rng_;
  TimePoint now_{};
  Landings landings_;
  Granted granted_;
  HeaderBlocks blocks_{32};
  Join join_;
  std::deque<Memory> memories_;  // which stay where they are
  std::vector<Flying> flying_;
  std::uint32_t next_number_ = 1;
  std::uint32_t next_rkey_ = 1;
  std::uint64_t placed_ = 0;
};

TEST(UcWorld, WhatIsReturnedIsWhatWasSentOnceAndInOpenMemory) {
  std::uint64_t placed = 0;
  for (std::uint64_t seed = 1; seed <= 3000 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    World world(seed);
    world.run();
    placed += world.placed();
  }
  EXPECT_GT(placed, 3000u * 20);
}

}  // namespace
}  // namespace clustar::transport::io::verbs::uc
