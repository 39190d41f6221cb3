#include "bench/paraexpress/grid.h"

#include <gtest/gtest.h>

namespace clustar::bench::paraexpress {
namespace {

// The full grid is `clustar plan --grid`; this one is what a test can wait for.
TEST(Grid, the_planner_takes_the_best_plan_or_nearly_in_most_cells) {
  GridOptions options;
  options.ranks = {2, 5, 8, 16};
  options.network.message_s = 1e-6;
  const auto cells = grid(options, [](const std::string&) {});
  ASSERT_EQ(cells.size(), options.ranks.size() * options.oversubscription.size() * options.bytes.size() * 2);
  EXPECT_GE(hit_rate(cells), 0.95) << text(cells);
}

}  // namespace
}  // namespace clustar::bench::paraexpress
