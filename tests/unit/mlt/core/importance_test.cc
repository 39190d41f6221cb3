#include "mlt/core/importance.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include "mlt/core/bitmap.h"
#include "mlt/core/classes.h"
#include "transport/base/rng.h"

namespace clustar::mlt {
namespace {

constexpr FloatType kTypes[] = {FloatType::kF32, FloatType::kF16, FloatType::kBf16};

std::uint16_t to_f16(float value) {  // truncating; enough for data
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
  if (exponent <= 0) {
    const float scaled = std::ldexp(std::fabs(value), 24);
    return static_cast<std::uint16_t>(bits >> 16 & 0x8000) | static_cast<std::uint16_t>(scaled);
  }
  if (exponent >= 31) return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | 0x7c00);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000) | static_cast<std::uint32_t>(exponent) << 10 |
                                    (bits >> 13 & 0x3ff));
}

void store(std::byte* at, float value, FloatType type) {
  if (type == FloatType::kF32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const std::uint16_t half =
      type == FloatType::kF16 ? to_f16(value) : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  std::memcpy(at, &half, 2);
}

double normal(Rng& rng) {
  const double angle = 6.283185307179586 * rng.uniform();
  return std::sqrt(-2 * std::log(1 - rng.uniform())) * std::cos(angle);
}

// Share of important packets among `packets` of 1448 B, off any alignment, after as many for warming up.
template <class Draw>
double share(MagnitudeSampler sampler, FloatType type, Draw draw, int packets = 20'000) {
  std::vector<std::byte> memory(1 + 1448);
  const std::span<std::byte> payload = std::span(memory).subspan(1);
  int important = 0;
  for (int i = 0; i < 2 * packets; ++i) {
    for (std::size_t at = 0; at < payload.size(); at += size_of(type)) store(&payload[at], draw(), type);
    const bool answer = sampler.important(payload, type);
    if (i >= packets) important += answer;
  }
  return static_cast<double>(important) / packets;
}

TEST(MagnitudeSampler, HoldsItsFractionWhateverTheData) {
  for (const FloatType type : kTypes) {
    Rng rng(1);
    const double q = 0.05;
    EXPECT_NEAR(share(
                    {}, type, [&] { return static_cast<float>(normal(rng) * 1e-3); }, 4000),
                q, 0.2 * q);
    EXPECT_NEAR(share(
                    {}, type, [&] { return static_cast<float>(1e-3 / (1e-4 + rng.uniform())); }, 4000),
                q, 0.2 * q)
        << "heavy-tailed";
    EXPECT_NEAR(share(
                    {}, type, [] { return 0.125f; }, 4000),
                q, 0.2 * q)
        << "constant";
  }
}

TEST(MagnitudeSampler, HoldsOtherFractionsToo) {
  for (const std::uint32_t ppm : {10'000u, 200'000u, 500'000u}) {
    Rng rng(2);
    const double q = ppm / 1e6;
    EXPECT_NEAR(share(
                    MagnitudeSampler({.fraction_ppm = ppm}), FloatType::kF32,
                    [&] { return static_cast<float>(normal(rng)); }, 4000),
                q, 0.2 * q);
  }
  EXPECT_EQ(share(
                MagnitudeSampler({.fraction_ppm = 0}), FloatType::kF32, [] { return 1.f; }, 100),
            0);
  EXPECT_EQ(share(
                MagnitudeSampler({.fraction_ppm = 1'000'000}), FloatType::kF32, [] { return 1.f; }, 100),
            1);
}

TEST(MagnitudeSampler, HoldsItsFractionWhileGradientsShrink) {
  Rng rng(3);
  double scale = 1;
  const double got = share(
      {}, FloatType::kF32, [&] { return static_cast<float>(normal(rng) * (scale *= 0.999999)); }, 8000);
  EXPECT_NEAR(got, 0.05, 0.01);
}

TEST(MagnitudeSampler, FindsTheLargePackets) {
  Rng rng(4);
  MagnitudeSampler sampler;
  std::vector<std::byte> payload(1448);
  int found = 0;
  int large = 0;
  int false_alarms = 0;
  for (int i = 0; i < 20'000; ++i) {
    const bool is_large = rng.chance(0.04);
    for (std::size_t at = 0; at < payload.size(); at += 4) {
      store(&payload[at], static_cast<float>(normal(rng) * (is_large ? 8 : 1)), FloatType::kF32);
    }
    const bool answer = sampler.important(payload, FloatType::kF32);
    if (i < 2000) continue;
    large += is_large;
    found += is_large && answer;
    false_alarms += !is_large && answer;
  }
  EXPECT_GT(found, large * 9 / 10);
  EXPECT_LT(false_alarms, large / 2);
}

TEST(MagnitudeSampler, NotFiniteIsImportantAndLeavesTheThresholdAlone) {
  for (const FloatType type : kTypes) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity()}) {
      MagnitudeSampler sampler;
      std::vector<std::byte> payload(64);
      for (std::size_t at = 0; at < payload.size(); at += size_of(type)) store(&payload[at], 1, type);
      sampler.important(payload, type);
      const double before = sampler.threshold();
      store(payload.data(), value, type);  // 16 samples of 16 or 32 values
      for (std::size_t at = 0; at < payload.size(); at += 4) store(&payload[at], value, type);
      if (type == FloatType::kF16 && std::isnan(value)) payload[1] = std::byte{0x7e};
      for (std::size_t at = 2; at < payload.size() && size_of(type) == 2; at += 4) store(&payload[at], value, type);
      EXPECT_TRUE(sampler.important(payload, type));
      EXPECT_EQ(sampler.threshold(), before);
    }
  }
}

TEST(MagnitudeSampler, ZeroesAndEmptyPacketsAreNot) {
  MagnitudeSampler sampler;
  const std::vector<std::byte> zeroes(1448);
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(sampler.important(zeroes, FloatType::kF32));
  EXPECT_EQ(sampler.threshold(), 0);
  EXPECT_FALSE(sampler.important({}, FloatType::kF32));
  EXPECT_FALSE(sampler.important(std::span(zeroes).first(3), FloatType::kF32)) << "less than one value";
}

TEST(MagnitudeSampler, DecodesEveryF16) {
  for (std::uint32_t bits = 1; bits < 0x7c00; ++bits) {  // all positive finite ones
    MagnitudeSampler sampler;
    std::array<std::byte, 2> payload;
    const auto half = static_cast<std::uint16_t>(bits | 0x8000);
    std::memcpy(payload.data(), &half, 2);
    sampler.important(payload, FloatType::kF16);
    const int exponent = static_cast<int>(bits >> 10);
    const double fraction = bits & 0x3ff;
    const double value = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    // The first packet sets the threshold to its own score, less one small step.
    EXPECT_NEAR(sampler.threshold() / value, 1, 0.005) << bits;
  }
}

TEST(MagnitudeSampler, StandsTheEndsOfTheScale) {
  MagnitudeSampler sampler;
  std::vector<std::byte> payload(64);
  for (std::size_t at = 0; at < 64; at += 4) store(&payload[at], std::numeric_limits<float>::max(), FloatType::kF32);
  for (int i = 0; i < 1000; ++i) sampler.important(payload, FloatType::kF32);
  EXPECT_GT(sampler.threshold(), 1e37);
  for (std::size_t at = 0; at < 64; at += 4) store(&payload[at], 1e-45f, FloatType::kF32);
  for (int i = 0; i < 200'000; ++i) sampler.important(payload, FloatType::kF32);
  EXPECT_LT(sampler.threshold(), 1e-38);
}

TEST(MagnitudeSampler, RefusesBadOptions) {
  EXPECT_THROW(MagnitudeSampler({.fraction_ppm = 1'000'001}), std::invalid_argument);
  EXPECT_THROW(MagnitudeSampler({.samples = 0}), std::invalid_argument);
  EXPECT_THROW(MagnitudeSampler({.samples = 65}), std::invalid_argument);
}

TEST(MarkImportant, FindsThePacketsWithTheLargestGradients) {
  std::vector<float> gradients(100 * 352);  // 100 packets of 1,408 B
  Rng rng(3);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const bool large = i / 352 % 20 == 7;
    gradients[i] = static_cast<float>((rng.uniform() - 0.5) * (large ? 100 : 1));
  }
  const auto bytes = std::as_bytes(std::span(gradients));
  MagnitudeSampler sampler;
  PacketBitmap important;
  for (int step = 0; step < 10; ++step) ASSERT_TRUE(mark_important(sampler, bytes, FloatType::kF32, 1408, important));
  EXPECT_EQ(important.size(), 100u);
  for (std::uint32_t packet = 7; packet < 100; packet += 20) EXPECT_TRUE(important.test(packet)) << packet;
  EXPECT_LE(important.count(), 8u) << "a twentieth, and what the threshold wanders";
  EXPECT_TRUE(mark_important(sampler, bytes.first(0), FloatType::kF32, 1408, important));
  EXPECT_EQ(important.size(), 1u) << "an empty message has one packet";
  EXPECT_FALSE(mark_important(sampler, bytes, FloatType::kF32, 1410, important)) << "would cut a value";
  EXPECT_FALSE(mark_important(sampler, bytes, FloatType::kF32, 0, important));
}

TEST(Classes, MapKindsToClassesAndCodePoints) {
  const Classes classes;
  EXPECT_EQ(classes.traffic_class(PacketKind::kControl), 7);
  EXPECT_EQ(classes.traffic_class(PacketKind::kReliable), 6);
  EXPECT_EQ(classes.traffic_class(PacketKind::kImportant), 5);
  EXPECT_EQ(classes.traffic_class(PacketKind::kReliableBulk), 4);
  EXPECT_EQ(classes.traffic_class(PacketKind::kFrontLayerBulk), 3);
  EXPECT_EQ(classes.traffic_class(PacketKind::kBackLayerBulk), 1);
  EXPECT_EQ(classes.dscp(PacketKind::kControl), 56) << "CS7";
  EXPECT_EQ(classes.dscp(PacketKind::kBackLayerBulk), 8) << "CS1";
  EXPECT_THROW(Classes({.traffic_class = {8, 6, 5, 4, 3, 1}}), std::invalid_argument);
  EXPECT_THROW(Classes({.front_ppm = 1'000'001}), std::invalid_argument);
}

TEST(Classes, EarlyCollectivesAreBackLayers) {
  const Classes classes;
  EXPECT_EQ(classes.bulk(0, 10), PacketKind::kBackLayerBulk);
  EXPECT_EQ(classes.bulk(4, 10), PacketKind::kBackLayerBulk);
  EXPECT_EQ(classes.bulk(5, 10), PacketKind::kFrontLayerBulk);
  EXPECT_EQ(classes.bulk(9, 10), PacketKind::kFrontLayerBulk);
  EXPECT_EQ(classes.bulk(10, 10), PacketKind::kBackLayerBulk) << "more than the step before had";
  EXPECT_EQ(classes.bulk(0, 0), PacketKind::kBackLayerBulk) << "unknown";
  EXPECT_EQ(Classes({.front_ppm = 0}).bulk(9, 10), PacketKind::kBackLayerBulk);
  EXPECT_EQ(Classes({.front_ppm = 1'000'000}).bulk(0, 10), PacketKind::kFrontLayerBulk);
}

}  // namespace
}  // namespace clustar::mlt
