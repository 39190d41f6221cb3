#include "mlt/fec/codec.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::mlt::fec {
namespace {

using Packet = std::vector<std::byte>;

// GF(2^8) by the book: shift, add, reduce by x^8 + x^4 + x^3 + x^2 + 1.
unsigned times(unsigned a, unsigned b) {
  unsigned product = 0;
  for (; b != 0; b >>= 1) {
    if ((b & 1) != 0) product ^= a;
    a = (a & 0x80) != 0 ? (a << 1) ^ 0x11d : a << 1;
  }
  return product;
}
unsigned inverse(unsigned a) {
  unsigned found = 0;
  for (unsigned b = 1; b < 256; ++b) found = times(a, b) == 1 ? b : found;
  return found;
}

Packet reference(const std::vector<Packet>& data, unsigned row) {
  Packet parity(data.front().size());
  for (std::size_t j = 0; j < data.size(); ++j) {
    const unsigned factor = inverse(static_cast<unsigned>((data.size() + row) ^ j));
    for (std::size_t i = 0; i < parity.size(); ++i) {
      parity[i] ^= static_cast<std::byte>(times(factor, static_cast<unsigned>(data[j][i])));
    }
  }
  return parity;
}

std::vector<Packet> random_packets(Rng& rng, std::size_t count, std::size_t bytes) {
  std::vector<Packet> packets(count, Packet(bytes));
  for (Packet& packet : packets) {
    for (std::byte& byte : packet) byte = static_cast<std::byte>(rng.next());
  }
  return packets;
}

std::vector<std::uint8_t> some_of(Rng& rng, std::size_t all, std::size_t count) {
  std::vector<std::uint8_t> numbers(all);
  std::iota(numbers.begin(), numbers.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < count; ++i) std::swap(numbers[i], numbers[i + rng.below(all - i)]);
  numbers.resize(count);
  return numbers;
}

class CodecTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Codec::open();
#if CLUSTAR_HAS_FEC
    ASSERT_TRUE(opened) << opened.error().message;
#else
    if (!opened) GTEST_SKIP() << opened.error().message;
#endif
    codec = std::move(*opened);
  }
  Packet encode(const std::vector<Packet>& data, std::uint8_t row) const {
    std::vector<const std::byte*> at;
    for (const Packet& packet : data) at.push_back(packet.data());
    Packet out(data.front().size());
    EXPECT_TRUE(codec->encode(at, row, out.size(), out.data()));
    return out;
  }
  std::unique_ptr<Codec> codec;
};

TEST_F(CodecTest, ParityIsThatOfTheReference) {
  Rng rng(1);
  for (const std::size_t count : {1u, 2u, 3u, 47u, 64u}) {
    const auto data = random_packets(rng, count, 1 + rng.below(200));
    for (std::uint8_t row = 0; row < Codec::kMaxRows; ++row) ASSERT_EQ(encode(data, row), reference(data, row));
  }
}

TEST_F(CodecTest, WhateverIsLostIsRebuiltByAsManyRows) {
  Rng rng(2);
  for (int trial = 0; trial < 2000; ++trial) {
    const std::size_t count = 1 + rng.below(Codec::kMaxPackets);
    const std::size_t lost = 1 + rng.below(std::min(count, Codec::kMaxRows));
    const auto data = random_packets(rng, count, 1 + rng.below(100));
    auto places = some_of(rng, count, lost);
    const auto rows = some_of(rng, Codec::kMaxRows, lost);
    std::vector<const std::byte*> at;
    for (const Packet& packet : data) at.push_back(packet.data());
    std::vector<Packet> parity, out(lost, Packet(data.front().size()));
    std::vector<std::byte*> to;
    for (std::size_t i = 0; i < lost; ++i) {
      parity.push_back(encode(data, rows[i]));
      to.push_back(out[i].data());
    }
    for (std::size_t i = 0; i < lost; ++i) at[places[i]] = parity[i].data();
    ASSERT_TRUE(codec->rebuild(at, places, rows, data.front().size(), to));
    for (std::size_t i = 0; i < lost; ++i) ASSERT_EQ(out[i], data[places[i]]) << trial;
  }
}

TEST_F(CodecTest, WhatIsOutOfRangeIsRefused) {
  std::array<std::byte, 64> bytes{};
  const std::vector<const std::byte*> most(Codec::kMaxPackets, bytes.data());
  const std::vector<const std::byte*> more(Codec::kMaxPackets + 1, bytes.data());
  std::array<std::byte, 64> out{};
  EXPECT_TRUE(codec->encode(most, Codec::kMaxRows - 1, 64, out.data()));
  EXPECT_FALSE(codec->encode(most, Codec::kMaxRows, 64, out.data()));
  EXPECT_FALSE(codec->encode(more, 0, 64, out.data()));
  EXPECT_FALSE(codec->encode({}, 0, 64, out.data()));
  std::array<std::byte*, 2> to{out.data(), out.data()};
  using Numbers = std::vector<std::uint8_t>;
  EXPECT_TRUE(codec->rebuild(most, Numbers{0, 63}, Numbers{15, 0}, 64, to));
  EXPECT_FALSE(codec->rebuild(most, Numbers{0, 64}, Numbers{15, 0}, 64, to));
  EXPECT_FALSE(codec->rebuild(most, Numbers{0, 63}, Numbers{16, 0}, 64, to));
  EXPECT_FALSE(codec->rebuild(most, Numbers{5, 5}, Numbers{1, 0}, 64, to)) << "a place twice";
  EXPECT_FALSE(codec->rebuild(most, Numbers{5, 6}, Numbers{1, 1}, 64, to)) << "a row twice";
  EXPECT_FALSE(codec->rebuild(most, Numbers{5}, Numbers{1, 2}, 64, to)) << "not as many";
  EXPECT_FALSE(codec->rebuild(most, {}, {}, 64, {})) << "nothing is missing";
}

TEST(Codec, WithoutItsModuleItSaysWhatToInstall) {
  const auto opened = Codec::open({"/nowhere"});
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("libisal-dev"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace clustar::mlt::fec
