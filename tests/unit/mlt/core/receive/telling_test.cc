#include "mlt/core/receive/telling.h"

#include <gtest/gtest.h>

#include <vector>

namespace clustar::mlt {
namespace {

constexpr std::uint32_t kWindow = State::kWindow;

PacketBitmap whole_windows(std::uint32_t packets, const std::vector<std::uint32_t>& windows) {
  PacketBitmap got;
  EXPECT_TRUE(got.reset(packets));
  for (const std::uint32_t window : windows) got.set_range(window * kWindow, (window + 1) * kWindow);
  return got;
}

std::vector<std::uint32_t> rest(Telling& telling, bool growing, const PacketBitmap& got, const SentRange& sent) {
  std::vector<std::uint32_t> windows;
  bool more = telling.due();
  while (more) {
    windows.push_back(telling.base() / kWindow);
    more = telling.told(growing, got, sent);
  }
  EXPECT_FALSE(telling.due());
  return windows;
}

TEST(SentRange, KnowsItsWindowsAroundTheEnd) {
  const SentRange range{4 * kWindow, 3 * kWindow + 10, kWindow};
  EXPECT_TRUE(range.any_in_window(3 * kWindow)) << "it begins there";
  EXPECT_TRUE(range.any_in_window(0)) << "and goes on there";
  EXPECT_FALSE(range.any_in_window(kWindow));
  EXPECT_FALSE(range.any_in_window(2 * kWindow));
  EXPECT_FALSE((SentRange{4 * kWindow, 0, 0}.any_in_window(0)));
  EXPECT_TRUE((SentRange{100, 0, 1}.any_in_window(0)));
}

TEST(Telling, AnEndTellsEveryWindowOnce) {
  const std::uint32_t packets = 20 * kWindow + 1;
  Telling telling;
  telling.all(packets);
  const auto windows = rest(telling, false, whole_windows(packets, {1, 2}), {packets, 0, packets});
  ASSERT_EQ(windows.size(), 21u);
  for (std::uint32_t i = 0; i < 21; ++i) EXPECT_EQ(windows[i], i);
}

TEST(Telling, AnAnswerBeginsWhereTheSenderDoubtsAndLeavesOutWhatWasNotSent) {
  const std::uint32_t packets = 30 * kWindow;
  const SentRange sent{packets, 0, 20 * kWindow};
  const PacketBitmap got = whole_windows(packets, {15, 16});
  Telling telling;
  telling.answer(15, packets);
  EXPECT_EQ(rest(telling, true, got, sent), (std::vector<std::uint32_t>{15, 16, 17, 18, 19, 0, 1, 2}))
      << "what is whole is told: its acknowledgements may be lost";
  telling.answer(25, packets);
  EXPECT_EQ(rest(telling, true, got, sent).front(), 25u) << "an answer is one even where nothing was sent";
}

TEST(Telling, AQuestionGoesOnWhereTheLastEndedAndSkipsWhatIsWhole) {
  const std::uint32_t packets = 30 * kWindow;
  const SentRange sent{packets, 0, 12 * kWindow};
  const PacketBitmap got = whole_windows(packets, {0, 3});
  Telling telling;
  telling.some(true, got, sent);
  EXPECT_EQ(rest(telling, true, got, sent), (std::vector<std::uint32_t>{1, 2, 4, 5, 6, 7, 8, 9}));
  telling.some(true, got, sent);
  EXPECT_EQ(rest(telling, true, got, sent), (std::vector<std::uint32_t>{10, 11, 1, 2, 4, 5, 6, 7}));
}

TEST(Telling, OfAShortMessageEverythingThatWasSentIsToldAndNothingTwice) {
  const std::uint32_t packets = 5 * kWindow;
  const SentRange sent{packets, 4 * kWindow, 2 * kWindow};  // of a tolerant one: it begins in the middle
  const PacketBitmap got = whole_windows(packets, {4});
  Telling telling;
  telling.some(true, got, sent);
  EXPECT_EQ(rest(telling, true, got, sent), (std::vector<std::uint32_t>{0, 4}));
}

TEST(Telling, AnAnswerDoesNotCutAnEndShort) {
  const std::uint32_t packets = 12 * kWindow;
  const SentRange sent{packets, 0, packets};
  const PacketBitmap got = whole_windows(packets, {});
  Telling telling;
  telling.all(packets);
  EXPECT_TRUE(telling.told(false, got, sent));
  telling.answer(11, packets);
  EXPECT_EQ(telling.base(), kWindow);
  EXPECT_EQ(rest(telling, false, got, sent).size(), 11u);
}

}  // namespace
}  // namespace clustar::mlt
