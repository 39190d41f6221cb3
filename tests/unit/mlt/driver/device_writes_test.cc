#include "mlt/driver/device_writes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt::driver {
namespace {

namespace io = transport::io;

// Keeps what it is given until a test lets it end.
class HeldWriter final : public io::MemoryWriter {
 public:
  explicit HeldWriter(std::span<std::byte> device) : device_(device) {}
  std::size_t most_bytes() const override { return 7; }
  Result<bool> write(const io::MemorySlice& target, std::span<const std::byte> bytes) override {
    return take(target, {bytes.begin(), bytes.end()});
  }
  Result<bool> zero(const io::MemorySlice& target) override {
    return take(target, std::vector<std::byte>(target.length));
  }
  Result<bool> flush(const io::MemorySlice& target) override {
    EXPECT_EQ(target.length, 1u);
    return take(target, {});
  }
  Result<std::uint64_t> finished() override {
    if (broken) return fail(ErrorCode::kSystem, "broken");
    return ended;
  }
  void quiesce() override { end(held_.size()); }
  void end(std::size_t count) {
    for (; count > 0 && !held_.empty(); --count, ++ended) {
      const auto [offset, bytes] = held_.pop_front();
      std::ranges::copy(bytes, device_.begin() + static_cast<std::ptrdiff_t>(offset));
    }
  }
  std::size_t held() const { return held_.size(); }

  std::size_t room = 4;
  std::uint64_t ended = 0;
  bool broken = false;
  std::string order;  // of what was taken: writes and zeroes, flushes

 private:
  Result<bool> take(const io::MemorySlice& target, std::vector<std::byte> bytes) {
    if (broken) return fail(ErrorCode::kSystem, "broken");
    EXPECT_LE(target.length, most_bytes());
    EXPECT_GT(target.length, 0u);
    if (held_.size() >= room) return false;
    order += bytes.empty() ? 'f' : 'w';
    held_.push_back({target.offset, std::move(bytes)});
    return true;
  }

  std::span<std::byte> device_;
  Ring<std::pair<std::size_t, std::vector<std::byte>>> held_;
};

struct Bed {
  std::vector<std::byte> device = std::vector<std::byte>(4096, std::byte{0xee});
  io::Mr mr{gdr::MemoryRef{gdr::MemoryKind::kCuda, nullptr, 4096, -1, 0}};
  HeldWriter writer{device};
  DeviceWrites writes{writer};
  io::MemorySlice at(std::size_t offset, std::size_t length) const { return {&mr, offset, length}; }
};

std::vector<std::byte> filled(std::size_t length, unsigned value) {
  return std::vector<std::byte>(length, static_cast<std::byte>(value));
}

TEST(MltDeviceWrites, AFlushGoesBehindWhatWaitsForRoom) {
  Bed bed;
  bed.writer.room = 2;
  for (std::size_t i = 0; i < 3; ++i) bed.writes.write(9, bed.at(10 * i, 3), filled(3, 1));
  bed.writes.flush(9, bed.at(0, 3));
  bed.writes.zero(9, bed.at(0, 3));
  bed.writes.flush(9, bed.at(0, 3));
  bed.writes.wait(9, 1);
  EXPECT_EQ(bed.writer.order, "ww");
  for (int step = 0; step < 4; ++step) {
    bed.writer.end(1);
    EXPECT_TRUE(bed.writes.step());
  }
  EXPECT_EQ(bed.writer.order, "wwwfwf");
  EXPECT_FALSE(bed.writes.poll());
  bed.writer.end(2);
  EXPECT_TRUE(bed.writes.step());
  EXPECT_TRUE(bed.writes.poll());
}

TEST(MltDeviceWrites, WhoWaitsIsToldInOrderOnceAllBeforeHasEnded) {
  Bed bed;
  bed.writes.wait(9, 0);
  EXPECT_EQ(bed.writes.poll()->request, 0u);  // nothing was asked for
  bed.writes.write(9, bed.at(0, 3), filled(3, 1));
  bed.writes.wait(9, 1);
  bed.writes.zero(9, bed.at(10, 3));
  bed.writes.wait(9, 2);
  EXPECT_FALSE(bed.writes.poll());
  EXPECT_FALSE(bed.writes.step().value());
  bed.writer.end(1);
  EXPECT_TRUE(bed.writes.step().value());
  EXPECT_EQ(bed.writes.poll()->request, 1u);
  EXPECT_FALSE(bed.writes.poll());
  bed.writer.end(1);
  EXPECT_TRUE(bed.writes.busy());
  EXPECT_TRUE(bed.writes.step().value());
  EXPECT_EQ(bed.writes.poll()->request, 2u);
  EXPECT_FALSE(bed.writes.busy());
}

TEST(MltDeviceWrites, WhatHasNoRoomWaitsCopiedAndInPieces) {
  Bed bed;
  auto bytes = filled(100, 5);
  bed.writes.write(1, bed.at(50, 100), bytes);
  std::ranges::fill(bytes, std::byte{6});  // the caller's again
  bed.writes.wait(1, 1);
  EXPECT_TRUE(bed.writes.behind());
  EXPECT_EQ(bed.writer.held(), 4u);
  for (int i = 0; i < 30 && bed.writes.busy(); ++i) {
    EXPECT_FALSE(bed.writes.poll());
    bed.writer.end(3);
    EXPECT_TRUE(bed.writes.step());
  }
  EXPECT_TRUE(bed.writes.poll());
  EXPECT_EQ(std::count(bed.device.begin(), bed.device.end(), std::byte{5}), 100);
  EXPECT_EQ(bed.device[49], std::byte{0xee});
  EXPECT_EQ(bed.device[50], std::byte{5});
}

TEST(MltDeviceWrites, AWriterThatBreaksIsToldOnceItIsAsked) {
  Bed bed;
  bed.writes.write(1, bed.at(0, 3), filled(3, 1));
  bed.writes.wait(1, 1);
  bed.writer.broken = true;
  bed.writes.zero(1, bed.at(0, 3));
  EXPECT_EQ(bed.writes.step().error().message, "broken");
  EXPECT_EQ(bed.writes.step().error().message, "broken");
  EXPECT_FALSE(bed.writes.poll());
  bed.writes.drop(1);
}

// Beside memory that is written at once, with owners that leave at any time: what an owner wrote that stayed is there,
// in order, nobody is told too early, and after drop() nothing of its owner moves.
TEST(MltDeviceWrites, RandomOperations) {
  constexpr std::uint32_t kOwners = 4;
  constexpr std::size_t kOwn = 1024;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    Bed bed;
    bed.writer.room = 1 + rng.below(6);
    std::vector<std::byte> expected = bed.device;
    std::map<std::uint32_t, std::uint32_t> waited;  // request -> owner
    std::uint32_t next_request = 0;
    const auto poll = [&] {
      while (const auto done = bed.writes.poll()) {
        ASSERT_FALSE(waited.empty());
        const auto first = *waited.begin();
        waited.erase(waited.begin());
        ASSERT_EQ(done->request, first.first);
        ASSERT_EQ(done->owner, first.second);
      }
    };
    for (int i = 0; i < 400; ++i) {
      const auto owner = static_cast<std::uint32_t>(rng.below(kOwners));
      const std::size_t offset = owner * kOwn + rng.below(kOwn - 40);
      const std::size_t length = 1 + rng.below(40);
      const auto at = expected.begin() + static_cast<std::ptrdiff_t>(offset);
      const std::uint64_t what = rng.below(10);
      if (what < 3) {
        const auto bytes = filled(length, static_cast<unsigned>(i));
        bed.writes.write(owner, bed.at(offset, length), bytes);
        std::ranges::copy(bytes, at);
      } else if (what < 5) {
        bed.writes.zero(owner, bed.at(offset, length));
        std::fill_n(at, length, std::byte{0});
      } else if (what == 5) {
        bed.writes.flush(owner, bed.at(offset, length));
      } else if (what == 6) {
        bed.writes.wait(owner, next_request);
        waited[next_request++] = owner;
      } else if (what == 7 && rng.below(10) == 0) {
        bed.writes.drop(owner);
        std::erase_if(waited, [&](const auto& each) { return each.second == owner; });
        const auto own = std::span(bed.device).subspan(owner * kOwn, kOwn);
        std::ranges::fill(own, std::byte{0x11});  // anything else would be of before
        std::ranges::copy(own, expected.begin() + static_cast<std::ptrdiff_t>(owner * kOwn));
      } else {
        bed.writer.end(rng.below(4));
        ASSERT_TRUE(bed.writes.step());
      }
      poll();
    }
    for (int i = 0; i < 10'000 && bed.writes.busy(); ++i) {
      bed.writer.end(1);
      ASSERT_TRUE(bed.writes.step());
      poll();
    }
    poll();
    ASSERT_FALSE(bed.writes.busy()) << seed;
    ASSERT_TRUE(waited.empty()) << seed;
    ASSERT_EQ(bed.device, expected) << seed;
    ASSERT_EQ(bed.writer.held(), 0u);
  }
}

// With random stops: a request is told only when the memory has all that was asked for before it.
TEST(MltDeviceWrites, NobodyIsToldTooEarly) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Rng rng(seed);
    Bed bed;
    std::vector<std::byte> expected = bed.device;
    std::vector<std::vector<std::byte>> at_request;
    for (std::size_t i = 0, told = 0; i < 60 || told < 60;) {
      if (i < 60 && rng.below(2) == 0) {
        // Each has places of its own, so that what is there later is there for good.
        const std::size_t length = 1 + rng.below(60);
        const auto bytes = filled(length, static_cast<unsigned>(1 + i));
        bed.writes.write(0, bed.at(i * 60, length), bytes);
        std::ranges::copy(bytes, expected.begin() + static_cast<std::ptrdiff_t>(i * 60));
        at_request.push_back(expected);
        bed.writes.wait(0, static_cast<std::uint32_t>(i++));
      }
      bed.writer.end(rng.below(3));
      ASSERT_TRUE(bed.writes.step());
      while (const auto done = bed.writes.poll()) {
        ASSERT_EQ(done->request, told++);
        const auto written = (done->request + 1) * 60;
        ASSERT_TRUE(std::equal(bed.device.begin(), bed.device.begin() + static_cast<std::ptrdiff_t>(written),
                               at_request[done->request].begin()));
      }
    }
  }
}

}  // namespace
}  // namespace clustar::mlt::driver
