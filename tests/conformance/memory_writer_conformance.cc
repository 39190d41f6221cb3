// What every implementation of io::MemoryWriter must do. The rules are those of transport/io/packet_io.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/conformance/memory_writer_under_test.h"
#include "transport/base/rng.h"

namespace clustar::transport::conformance {
namespace {

class MemoryWriterConformance : public ::testing::TestWithParam<MemoryWriterUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    bed_ = std::move(*created);
    for (const std::size_t index : {0, 1}) std::ranges::fill(bed_->view(index), std::byte{0xee});
  }
  io::MemoryWriter& writer() { return bed_->writer(); }
  io::MemorySlice at(std::size_t offset, std::size_t length, std::size_t index = 0) {
    return {&bed_->mr(index), offset, length};
  }
  static std::vector<std::byte> pattern(std::size_t size, unsigned seed) {
    Rng rng(seed);
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.next());
    return bytes;
  }
  std::uint64_t finished() {
    const auto ended = writer().finished();
    EXPECT_TRUE(ended) << ended.error().message;
    return ended.value_or(begun_);
  }
  // Tries until there is room.
  template <class Begin>
  void begin(const Begin& operation) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    for (;;) {
      const Result<bool> taken = operation();
      ASSERT_TRUE(taken) << taken.error().message;
      if (*taken) break;
      ASSERT_LT(std::chrono::steady_clock::now(), limit) << "no room for 10 s";
      finished();
    }
    ++begun_;
  }
  void write(const io::MemorySlice& target, std::span<const std::byte> bytes) {
    begin([&] { return writer().write(target, bytes); });
  }
  void zero(const io::MemorySlice& target) {
    begin([&] { return writer().zero(target); });
  }
  void flush(const io::MemorySlice& target) {
    begin([&] { return writer().flush(target); });
  }
  void await_all() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (finished() < begun_) ASSERT_LT(std::chrono::steady_clock::now(), limit) << "what was begun does not end";
    EXPECT_EQ(finished(), begun_);
  }
  bool is(std::size_t offset, std::span<const std::byte> bytes, std::size_t index = 0) {
    return std::ranges::equal(bed_->view(index).subspan(offset, bytes.size()), bytes);
  }
  bool all(std::size_t offset, std::size_t length, std::byte value, std::size_t index = 0) {
    return std::ranges::all_of(bed_->view(index).subspan(offset, length), [=](std::byte b) { return b == value; });
  }

  std::unique_ptr<MemoryWriterBed> bed_;
  std::uint64_t begun_ = 0;
};

TEST_P(MemoryWriterConformance, WritesAndZeroesTheTargetAndNothingAroundIt) {
  const std::size_t most = writer().most_bytes();
  ASSERT_GE(most, 64u);
  for (const std::size_t size : {std::size_t{1}, std::size_t{7}, std::size_t{64}, most - 1, most}) {
    for (const std::size_t offset : {std::size_t{0}, std::size_t{3}, MemoryWriterBed::kBytes - size}) {
      std::ranges::fill(bed_->view(0), std::byte{0xee});
      const auto bytes = pattern(size, static_cast<unsigned>(size));
      write(at(offset, size), bytes);
      await_all();
      EXPECT_TRUE(is(offset, bytes)) << size << " at " << offset;
      EXPECT_TRUE(all(0, offset, std::byte{0xee}));
      EXPECT_TRUE(all(offset + size, MemoryWriterBed::kBytes - offset - size, std::byte{0xee}));
      zero(at(offset, size));
      await_all();
      EXPECT_TRUE(all(offset, size, std::byte{0})) << size << " at " << offset;
      EXPECT_TRUE(all(0, offset, std::byte{0xee}));
      EXPECT_TRUE(all(offset + size, MemoryWriterBed::kBytes - offset - size, std::byte{0xee}));
    }
  }
  EXPECT_TRUE(all(0, MemoryWriterBed::kBytes, std::byte{0xee}, 1)) << "the other memory";
}

TEST_P(MemoryWriterConformance, TheCallersBytesAreHisAgainAtOnce) {
  std::vector<std::byte> bytes(64);
  for (unsigned i = 0; i < 100; ++i) {
    std::ranges::fill(bytes, static_cast<std::byte>(i));
    write(at(64 * i, 64), bytes);
    std::ranges::fill(bytes, std::byte{0xff});
  }
  await_all();
  for (unsigned i = 0; i < 100; ++i) EXPECT_TRUE(all(64 * i, 64, static_cast<std::byte>(i))) << i;
}

TEST_P(MemoryWriterConformance, OperationsTakeEffectInTheOrderOfTheCalls) {
  for (unsigned round = 0; round < 50; ++round) {
    const auto first = pattern(100, round);
    const auto last = pattern(100, round + 1000);
    write(at(200, 100), first);
    zero(at(200, 100));
    write(at(200, 100), last);
    write(at(0, 100, 1), first);
    flush(at(200, 1));
    zero(at(250, 10));
  }
  await_all();
  auto expected = pattern(100, 49 + 1000);
  std::fill_n(expected.begin() + 50, 10, std::byte{0});
  EXPECT_TRUE(is(200, expected));
  EXPECT_TRUE(is(0, pattern(100, 49), 1));
}

// Whatever has ended is there, and so is all before it.
TEST_P(MemoryWriterConformance, WhatHasEndedIsThere) {
  constexpr std::size_t kOperations = 300;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < kOperations; ++i) {
    write(at(i * 8, 8), pattern(8, static_cast<unsigned>(i)));
    const std::uint64_t ended = finished();
    ASSERT_GE(ended, before);
    ASSERT_LE(ended, begun_);
    before = ended;
    if (ended == 0) continue;
    const auto last = static_cast<std::size_t>(ended - 1);
    ASSERT_TRUE(is(last * 8, pattern(8, static_cast<unsigned>(last)))) << last;
  }
  flush(at(kOperations * 8 - 1, 1));
  await_all();
  for (std::size_t i = 0; i < kOperations; ++i) EXPECT_TRUE(is(i * 8, pattern(8, static_cast<unsigned>(i)))) << i;
}

TEST_P(MemoryWriterConformance, WithoutRoomNothingBegins) {
  const std::size_t most = writer().most_bytes();
  const auto bytes = pattern(most, 1);
  std::uint64_t refused = 0;
  // A NIC may end them as fast as they come.
  for (int i = 0; i < 1000 && refused == 0; ++i) {
    const auto taken = writer().write(at(0, most), bytes);
    ASSERT_TRUE(taken) << taken.error().message;
    if (*taken) ++begun_;
    refused += *taken ? 0 : 1;
  }
  await_all();
  write(at(0, 8, 1), std::span(bytes).first(8));
  await_all();
  EXPECT_TRUE(is(0, bytes));
  EXPECT_TRUE(is(0, std::span(bytes).first(8), 1));
}

TEST_P(MemoryWriterConformance, AfterSettleNothingTouchesTheMemory) {
  for (std::size_t i = 0; i < 32; ++i) {
    const auto taken = writer().write(at(i * 64, 64), pattern(64, static_cast<unsigned>(i)));
    ASSERT_TRUE(taken) << taken.error().message;
    if (!*taken) break;
  }
  writer().quiesce();
  std::ranges::fill(bed_->view(0), std::byte{0x55});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  static_cast<void>(writer().finished());
  EXPECT_TRUE(all(0, MemoryWriterBed::kBytes, std::byte{0x55}));
}

TEST_P(MemoryWriterConformance, WhatIsOutsideOfTheMemoryIsAnErrorAndTouchesNothing) {
  const auto bytes = pattern(writer().most_bytes(), 9);
  const auto refused = writer().write(at(MemoryWriterBed::kBytes - 8, 9), std::span(bytes).first(9));
  ASSERT_FALSE(refused);
  EXPECT_FALSE(refused.error().message.empty());
  EXPECT_TRUE(all(0, MemoryWriterBed::kBytes, std::byte{0xee}));
}

INSTANTIATE_TEST_SUITE_P(Implementations, MemoryWriterConformance, ::testing::ValuesIn(memory_writers_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::transport::conformance
