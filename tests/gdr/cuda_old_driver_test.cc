// The CUDA module over a driver that has no dma-bufs and no flush: it loads, and says what it misses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/gdr/cuda_bed.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

TEST(CudaOldDriver, TheModuleLoadsAndNamesTheDriverThatIsNeeded) {
  const auto bed = cuda_bed("driver-470");
  ASSERT_TRUE(bed) << bed.error().message;
  const auto exported = bed->api.export_dma_buf(bed->driver->memory("plain"), 4096, true);
  ASSERT_FALSE(exported);
  EXPECT_THAT(exported.error().message, HasSubstr("driver 515 (CUDA 11.7) or later is needed"));
  const auto flushed = bed->api.flush(0);
  ASSERT_FALSE(flushed);
  EXPECT_THAT(flushed.error().message, HasSubstr("driver 465 (CUDA 11.3) or later"));
  EXPECT_TRUE(bed->api.open_copy(0, {})) << "copies need neither";
}

}  // namespace
}  // namespace clustar::tests
