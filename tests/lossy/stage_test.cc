#include "bench/lossy/stage.h"

#include <gtest/gtest.h>

namespace clustar::bench::lossy {
namespace {

constexpr std::size_t kBytes = 1000;

TEST(LossyStage, SharesAreTakenWhileAllJobsSend) {
  RoundOutcome round;
  round.go_ns = 100;
  // The first is done at 1100; what the second gets after that had nobody beside it.
  round.jobs = {{{{0, 600, 0}, {0, 900, 0}, {0, 1100, 0}}, 0}, {{{0, 1000, 500}, {0, 2000, 0}, {0, 3000, 0}}, 0}};
  const auto shares = shares_of(round, {"a", "b"}, kBytes);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_DOUBLE_EQ(shares[0].goodput_gbps, 24.0) << "3000 bytes in 1000 ns";
  EXPECT_DOUBLE_EQ(shares[1].goodput_gbps, 4.0) << "missing bytes are not delivered";
  EXPECT_NEAR(shares[0].share + shares[1].share, 2, 1e-12);
  EXPECT_NEAR(shares[0].share, 2 * 24.0 / 28, 1e-12);
}

TEST(LossyStage, AJobWithoutArrivalsHasNoShareAndNoInfinity) {
  RoundOutcome round;
  round.go_ns = 100;
  round.jobs = {{{{0, 600, 0}}, 0}, {}};
  for (const JobShare& share : shares_of(round, {"a", "b"}, kBytes)) EXPECT_EQ(share.share, 0) << share.name;
}

}  // namespace
}  // namespace clustar::bench::lossy
