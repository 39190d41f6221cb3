// packaging/older_libstdcxx.h against the library that it completes on older systems.
#include "packaging/older_libstdcxx.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "transport/base/rng.h"

namespace clustar::older {
namespace {

template <class Read>
std::string read_by(Read&& read, std::string_view text) {
  double value = -7;
  const std::from_chars_result result = read(text.data(), text.data() + text.size(), value);
  if (value != value) value = 4711;  // one of the numbers that are none
  return std::to_string(result.ptr - text.data()) + " " + std::to_string(static_cast<int>(result.ec)) + " " +
         std::to_string(value);
}

TEST(OlderLibstdcxx, ReadsANumberAsTheLibraryDoes) {
  for (const char* text :
       {"",   "0",  "-0", "1", "0.01",  "1e-3", "1e",   "1e+5x",    "-2.5", "--1", "+1",  " 1",
        "1 ", ".5", ".",  "-", "1e400", "inf",  "-inf", "infinity", "nan",  "n",   "1,5", "12345678901234567890",
        "e5", "i"}) {
    const auto standard = [](const char* first, const char* last, double& value) {
      return std::from_chars(first, last, value);
    };
    const auto ours = [](const char* first, const char* last, double& value) {
      return older::from_chars(first, last, value);
    };
    EXPECT_EQ(read_by(ours, text), read_by(standard, text)) << "'" << text << "'";
  }
}

TEST(OlderLibstdcxx, WritesTheShortestTextThatIsReadAsTheSame) {
  Rng rng(1);
  for (int i = 0; i < 20'000; ++i) {
    double value = older::bit_cast<double>(rng.next());
    if (i % 2 == 0) value = static_cast<double>(rng.next() % 100'000) / 1000;
    if (value != value) continue;
    std::array<char, 40> ours{}, standard{};
    const auto mine = older::to_chars(ours.data(), ours.data() + ours.size(), value);
    const auto theirs = std::to_chars(standard.data(), standard.data() + standard.size(), value);
    ASSERT_EQ(mine.ec, std::errc());
    double back = 0;
    std::from_chars(ours.data(), mine.ptr, back);
    ASSERT_EQ(back, value) << std::string(ours.data(), mine.ptr);
    // Digits alike; fixed or scientific notation is the library's choice.
    ASSERT_LE(mine.ptr - ours.data(), theirs.ptr - standard.data() + 6) << std::string(standard.data(), theirs.ptr);
  }
  std::array<char, 3> short_room{};
  EXPECT_EQ(older::to_chars(short_room.data(), short_room.data() + 3, 0.125).ec, std::errc::value_too_large);
}

TEST(OlderLibstdcxx, BitsAndMemory) {
  static_assert(older::bit_cast<std::uint32_t>(1.0f) == 0x3f800000u);
  const auto memory = older::make_unique_for_overwrite<std::byte[]>(100);
  memory[99] = std::byte{1};
  EXPECT_EQ(memory[99], std::byte{1});
}

}  // namespace
}  // namespace clustar::older
