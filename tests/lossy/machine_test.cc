#include "bench/lossy/machine.h"

#include <gtest/gtest.h>

namespace clustar::bench::lossy {
namespace {

TEST(LossyMachine, BusyIsEverythingButIdleWaitingAndStolenTime) {
  const char* text =
      "cpu  100 10 200 5000 300 7 40 99 60 0\n"
      "cpu0 100 10 200 5000 300 7 40 99 60 0\n"
      "intr 1 2 3\n";
  EXPECT_DOUBLE_EQ(busy_seconds(text, 100), 3.57) << "a guest's time is the user's already";
  EXPECT_EQ(busy_seconds("", 100), 0);
  EXPECT_EQ(busy_seconds("cpu  1 2\n", 100), 0) << "not known";
  EXPECT_GT(busy_seconds_now(), 0);
}

TEST(LossyMachine, DropsOfTheInputQueuesAreSummedOverCores) {
  EXPECT_EQ(softnet_drops("00001000 0000000a 00000001\n00002000 00000010 00000000\n"), 26u);
  EXPECT_EQ(softnet_drops(""), 0u);
}

TEST(LossyMachine, CountsAreOfUseAsDifferences) {
  const MachineCounts used = MachineCounts{5, 7, 9} - MachineCounts{2, 3, 4};
  EXPECT_EQ(used.busy_s, 3);
  EXPECT_EQ(used.interface_drops, 4u);
  EXPECT_EQ(used.softnet_drops, 5u);
}

}  // namespace
}  // namespace clustar::bench::lossy
