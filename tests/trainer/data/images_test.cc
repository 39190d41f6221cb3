// Images of files: PPM, PGM and JPEG, and their resampling.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "bench/trainer/data/image_folder.h"
#include "bench/trainer/data/jpeg.h"
#include "bench/trainer/data/pnm.h"
#include "bench/trainer/data/square.h"
#include "bench/trainer/random.h"
#include "tests/trainer/data/files.h"

namespace clustar::bench::trainer {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string trouble(const std::string& text) {
  const auto square = read_image(bytes_of(text));
  return square ? "none" : square.error().message;
}

std::vector<std::uint8_t> resampled(const std::vector<std::uint8_t>& from, std::size_t side, std::size_t to) {
  std::vector<std::uint8_t> out(to * to * 3);
  resample(from.data(), side, to, out.data());
  return out;
}

TEST(Pnm, TheCentredSquareOfTheImage) {
  const auto wide = read_pnm(bytes_of("P6 4 2 255\n" + std::string("abcdefghijklmnopqrstuvwx")));
  ASSERT_TRUE(wide) << wide.error().message;
  EXPECT_EQ(wide->side, 2u);
  EXPECT_EQ(std::string(wide->pixels.begin(), wide->pixels.end()), "defghipqrstu");
  const auto high = read_pnm(bytes_of("P5\n1 3 #grey\n255\nabc"));
  ASSERT_TRUE(high) << high.error().message;
  EXPECT_EQ(std::string(high->pixels.begin(), high->pixels.end()), "bbb");
}

TEST(Pnm, ValuesAreSpreadOver255) {
  const auto square = read_pnm(bytes_of(std::string("P5 2 2 3\n\0\1\2\3", 13)));
  ASSERT_TRUE(square) << square.error().message;
  EXPECT_THAT(square->pixels, ElementsAre(0, 0, 0, 85, 85, 85, 170, 170, 170, 255, 255, 255));
}

TEST(Pnm, WhatIsWrongIsNamedWithItsByte) {
  EXPECT_THAT(trouble("P6 4"), AllOf(HasSubstr("at byte 4"), HasSubstr("rows")));
  EXPECT_THAT(trouble("P6 0 4 255 "), AllOf(HasSubstr("at byte 3"), HasSubstr("from 1 to 16384")));
  EXPECT_THAT(trouble("P6 99999999999999999999 4 255 "), HasSubstr("from 1 to 16384"));
  EXPECT_THAT(trouble("P6 16384 16384 255 "), HasSubstr("too many pixels"));
  EXPECT_THAT(trouble("P6 2 2 65535\n"), HasSubstr("from 1 to 255"));
  EXPECT_THAT(trouble("P6 2 2 255\nshort"), AllOf(HasSubstr("5 bytes of pixels"), HasSubstr("have 12")));
  EXPECT_THAT(trouble("P5 1 1 255\nab"), HasSubstr("2 bytes of pixels"));
  EXPECT_THAT(trouble("P5 1 1 9\nA"), AllOf(HasSubstr("at byte 9"), HasSubstr("65")));
  EXPECT_THAT(trouble("P3 1 1 255\n1"), HasSubstr("JPEG"));
  EXPECT_THAT(trouble("\x89PNG"), HasSubstr("does not begin as an image"));
}

TEST(Pnm, EveryPartOfAFileIsRefused) {
  const std::string whole = ppm(9, 5, 3);
  ASSERT_EQ(trouble(whole), "none");
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(trouble(whole.substr(0, size)), "none") << size;
}

TEST(Resample, KeepsWhatIsEven) {
  for (const std::size_t from : {1, 2, 7, 33, 224}) {
    for (const std::size_t to : {1, 3, 32, 64}) {
      const auto out = resampled(std::vector<std::uint8_t>(from * from * 3, 201), from, to);
      EXPECT_TRUE(std::all_of(out.begin(), out.end(), [](int v) { return v == 201; })) << from << " to " << to;
    }
  }
}

TEST(Resample, OfTheSameSizeIsACopy) {
  std::vector<std::uint8_t> from(5 * 5 * 3);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::uint8_t>(i * 3);
  EXPECT_EQ(resampled(from, 5, 5), from);
}

// The same filter in double precision, without its separation.
TEST(Resample, IsTheTriangleFilter) {
  Rng rng(7);
  for (const auto& [side, to] : {std::pair<std::size_t, std::size_t>{32, 64}, {50, 13}, {3, 2}, {31, 32}, {100, 1}}) {
    std::vector<std::uint8_t> from(side * side * 3);
    for (std::uint8_t& value : from) value = static_cast<std::uint8_t>(rng.below(256));
    const auto out = resampled(from, side, to);
    const double scale = static_cast<double>(side) / static_cast<double>(to);
    const double reach = std::max(1.0, scale);
    const auto weight = [&](std::size_t i, std::size_t o) {
      return std::max(0.0, 1 - std::abs(static_cast<double>(i) + 0.5 - (static_cast<double>(o) + 0.5) * scale) / reach);
    };
    for (std::size_t y = 0; y < to; ++y) {
      for (std::size_t x = 0; x < to; ++x) {
        double sum = 0;
        double weights = 0;
        for (std::size_t j = 0; j < side; ++j) {
          for (std::size_t i = 0; i < side; ++i) {
            const double w = weight(i, x) * weight(j, y);
            sum += w * from[(j * side + i) * 3 + 1];
            weights += w;
          }
        }
        EXPECT_NEAR(out[(y * to + x) * 3 + 1], sum / weights, 1.1) << side << " to " << to << " at " << x << "," << y;
      }
    }
  }
}

class Jpeg : public ::testing::Test {
 protected:
  void SetUp() override {
#ifndef CLUSTAR_HAVE_JPEG
    GTEST_SKIP() << "this build is without libjpeg (package libjpeg-dev)";
#endif
  }
};

double mean_difference(const Square& a, const Square& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(int{a.pixels[i]} - int{b.pixels[i]});
  return sum / static_cast<double>(a.pixels.size());
}

TEST_F(Jpeg, IsNearlyWhatWasCompressed) {
  for (const bool progressive : {false, true}) {
    const auto square = read_jpeg(bytes_of(jpeg(60, 40, 30, false, progressive)));
    ASSERT_TRUE(square) << square.error().message;
    const auto exact = read_pnm(bytes_of(ppm(60, 40, 30)));
    ASSERT_EQ(square->side, exact->side);
    EXPECT_LT(mean_difference(*square, *exact), 3);
  }
  const auto grey = read_jpeg(bytes_of(jpeg(40, 60, 30, true)));
  ASSERT_TRUE(grey) << grey.error().message;
  for (std::size_t i = 0; i < grey->pixels.size(); i += 3) ASSERT_EQ(grey->pixels[i], grey->pixels[i + 2]);
}

TEST_F(Jpeg, CutOffAnywhereIsRefused) {
  const std::string whole = jpeg(48, 48, 9);
  ASSERT_EQ(trouble(whole), "none");
  for (std::size_t size = 2; size < whole.size(); size += 7) {
    EXPECT_THAT(trouble(whole.substr(0, size)), HasSubstr("JPEG")) << size << " of " << whole.size();
  }
}

TEST_F(Jpeg, HugeSizesAndDamageAreRefusedAndNeverEndTheProcess) {
  std::string huge = jpeg(16, 16, 9);
  const std::size_t frame = huge.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  huge.replace(frame + 5, 4, "pppp");
  EXPECT_THAT(trouble(huge), HasSubstr("too many pixels"));
  Rng rng(3);
  const std::string whole = jpeg(48, 48, 9, false, true);
  for (int i = 0; i < 400; ++i) {
    std::string damaged = whole;
    for (std::uint64_t n = 1 + rng.below(4); n > 0; --n) {
      damaged[2 + rng.below(damaged.size() - 2)] = static_cast<char>(rng.below(256));
    }
    const auto square = read_image(bytes_of(damaged));
    EXPECT_TRUE(!square || square->pixels.size() == square->side * square->side * 3);
  }
}

}  // namespace
}  // namespace clustar::bench::trainer
