#include "coflow/control/core/shifts.h"

#include <gtest/gtest.h>

#include "transport/base/rng.h"

namespace clustar::coflow::control {
namespace {

using std::chrono::milliseconds;

TEST(Shifts, TwoThatSendAtTheSameTimeTakeTurns) {
  const std::vector<Periodic> jobs{{milliseconds(500), milliseconds(200), milliseconds(0)},
                                   {milliseconds(500), milliseconds(250), milliseconds(0)}};
  const auto held = holds(jobs);
  EXPECT_EQ(held[0], Duration(0));
  EXPECT_EQ(held[1], milliseconds(200));
}

TEST(Shifts, ThoseThatTakeTurnsStayAsTheyAre) {
  const std::vector<Periodic> jobs{{milliseconds(500), milliseconds(200), milliseconds(0)},
                                   {milliseconds(500), milliseconds(250), milliseconds(280)}};
  EXPECT_EQ(holds(jobs), (std::vector<Duration>{Duration(0), Duration(0)}));
}

TEST(Shifts, NothingHelpsOtherPeriodsOrAFullLine) {
  EXPECT_EQ(holds(std::vector<Periodic>{{milliseconds(500), milliseconds(200), {}},
                                        {milliseconds(600), milliseconds(250), {}}}),
            (std::vector<Duration>{Duration(0), Duration(0)}));
  EXPECT_EQ(holds(std::vector<Periodic>{{milliseconds(500), milliseconds(300), {}},
                                        {milliseconds(500), milliseconds(250), {}}}),
            (std::vector<Duration>{Duration(0), Duration(0)}));
}

// Two of any phase always fit, if their sending does.
TEST(Shifts, AfterThemTwoDoNotOverlap) {
  Rng rng(3);
  for (int run = 0; run < 20'000; ++run) {
    const auto period = static_cast<std::int64_t>(500 + rng.below(500));
    const auto busy = static_cast<std::int64_t>(50 + rng.below(200));
    const auto other = static_cast<std::int64_t>(50 + rng.below(static_cast<std::uint64_t>(period - busy - 50)));
    const auto a = static_cast<std::int64_t>(rng.below(1000)), b = static_cast<std::int64_t>(rng.below(1000));
    const std::vector<Periodic> jobs{{milliseconds(period), milliseconds(busy), milliseconds(a)},
                                     {milliseconds(period), milliseconds(other), milliseconds(b)}};
    const auto held = holds(jobs);
    ASSERT_EQ(held[0], Duration(0));
    ASSERT_LE(held[1], milliseconds(period));
    // By the millisecond.
    std::int64_t both = 0;
    const std::int64_t shift = held[1] / milliseconds(1);
    for (std::int64_t t = 0; t < period; ++t) {
      const auto since = [&](std::int64_t age, std::int64_t hold) {
        return (((t + age - hold) % period) + period) % period;
      };
      if (since(a, 0) < busy && since(b, shift) < other) ++both;
    }
    ASSERT_LE(both, std::max<std::int64_t>(2, other / 10)) << "run " << run;
  }
}

}  // namespace
}  // namespace clustar::coflow::control
