#include "transport/base/copies.h"

#include <gtest/gtest.h>

namespace clustar {
namespace {

TEST(Copies, AreAddedUpByReasonAndInAll) {
  const std::uint64_t staged = copied_bytes(Copy::kStaged);
  const std::uint64_t placed = copied_bytes(Copy::kPlaced);
  const std::uint64_t all = copied_bytes();
  count_copy(Copy::kStaged, 96);
  count_copy(Copy::kPlaced, 4000);
  count_copy(Copy::kPlaced, 0);
  EXPECT_EQ(copied_bytes(Copy::kStaged), staged + 96);
  EXPECT_EQ(copied_bytes(Copy::kPlaced), placed + 4000);
  EXPECT_EQ(copied_bytes(), all + 4096);
}

TEST(Copies, AreToldWithTheirReasons) {
  for (std::size_t i = 0; i < kCopyKinds; ++i) g_copied[i].bytes = 0;
  EXPECT_EQ(describe_copies(), "0 bytes copied");
  count_copy(Copy::kStaged, 96);
  count_copy(Copy::kPlaced, 4000);
  EXPECT_EQ(describe_copies(), "4096 bytes copied (placed 4000, staged 96)");
}

}  // namespace
}  // namespace clustar
