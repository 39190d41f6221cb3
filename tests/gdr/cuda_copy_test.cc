// What the CUDA module's DeviceCopy promises beyond gdr/device_copy.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/gdr/cuda_bed.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

class CudaCopies : public ::testing::Test {
 protected:
  void SetUp() override {
    auto bed = cuda_bed("open-modules");
    ASSERT_TRUE(bed) << bed.error().message;
    bed_ = *bed;
  }
  void TearDown() override {
    if (bed_.driver == nullptr) return;
    EXPECT_EQ(bed_.driver->misuse(), "");
    EXPECT_EQ(bed_.driver->depth(), 0u);
    EXPECT_FALSE(bed_.driver->relaxed()) << "the thread has not the mode it came with";
  }
  std::unique_ptr<gdr::DeviceCopy> open(unsigned most = 8) {
    auto copy = bed_.api.open_copy(0, {.most_outstanding = most});
    EXPECT_TRUE(copy) << copy.error().message;
    return copy ? std::move(*copy) : nullptr;
  }
  void expect_nothing_left() {
    for (const char* what : {"contexts", "streams", "events", "pinned", "device"})
      EXPECT_EQ(bed_.driver->live(what), 0u) << what;
  }

  CudaBed bed_{};
};

TEST_F(CudaCopies, OpeningAndEndingAThousandTimesLeavesNothing) {
  for (int i = 0; i < 1000; ++i) {
    const auto copy = open();
    ASSERT_TRUE(copy);
    const auto buffer = copy->host_buffer(4096);
    ASSERT_TRUE(buffer);
    ASSERT_TRUE(copy->to_device(bed_.driver->memory("plain"), (*buffer)->bytes().data(), 4096));
  }
  expect_nothing_left();
}

TEST_F(CudaCopies, EventsAreMadeOnceAndTheDriverIsNotAskedForMore) {
  const auto copy = open(8);
  EXPECT_EQ(bed_.driver->live("events"), 8u);
  const auto buffer = *copy->host_buffer(64);
  const std::size_t allocations = bed_.driver->calls("cuMemHostAlloc");
  for (int i = 0; i < 10000;) {
    const auto begun = copy->to_host(buffer->bytes().data(), bed_.driver->memory("plain"), 64);
    ASSERT_TRUE(begun) << begun.error().message;
    i += *begun ? 1 : 0;
  }
  EXPECT_EQ(bed_.driver->calls("cuEventCreate"), 8u);
  EXPECT_EQ(bed_.driver->calls("cuStreamCreate"), 1u);
  EXPECT_EQ(bed_.driver->calls("cuMemHostAlloc"), allocations);
}

TEST_F(CudaCopies, WhatOpeningMissesIsNamedAndNothingStays) {
  for (const char* call :
       {"cuStreamCreate", "cuEventCreate", "cuMemHostAlloc", "cuMemAlloc", "cuMemcpyAsync", "cuEventRecord"}) {
    ASSERT_TRUE(cuda_bed("open-modules"));
    bed_.driver->answer(call, "CUDA_ERROR_OUT_OF_MEMORY");
    const auto copy = bed_.api.open_copy(0, {});
    ASSERT_FALSE(copy) << call;
    EXPECT_THAT(copy.error().message, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")) << call;
    expect_nothing_left();
  }
  EXPECT_THAT(bed_.api.open_copy(3, {}).error().message,
              HasSubstr("cuDeviceGet of device 3: CUDA_ERROR_INVALID_DEVICE"));
  EXPECT_THAT(bed_.api.open_copy(0, {.most_outstanding = 0}).error().message, HasSubstr("1 to 65536 are allowed"));
}

TEST_F(CudaCopies, HostMemoryThatIsNotItsOwnIsRefusedAndTheNextCopyGoesOn) {
  const auto copy = open();
  std::byte own[64]{};
  const auto refused = copy->to_device(bed_.driver->memory("plain"), own, sizeof(own));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("whose host side is in no buffer of this object"));
  const auto buffer = *copy->host_buffer(64);
  EXPECT_FALSE(copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data() + 1, 64)) << "one byte too many";
  EXPECT_FALSE(copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 0));
  EXPECT_TRUE(copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 64));
  EXPECT_FALSE(copy->done(4711)) << "no such ticket";
}

TEST_F(CudaCopies, ADriverThatFailsIsNamedOnceAndNotAskedAgain) {
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuEventQuery"}) {
    ASSERT_TRUE(cuda_bed("open-modules"));
    auto copy = open(1);
    auto buffer = *copy->host_buffer(64);
    const auto first = copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 64);
    ASSERT_TRUE(first) << first.error().message;
    bed_.driver->answer(call, "CUDA_ERROR_LAUNCH_FAILED");
    std::string message;
    for (int i = 0; i < 100 && message.empty(); ++i) {
      const auto begun = copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 64);
      if (!begun) message = begun.error().message;
    }
    EXPECT_THAT(message, HasSubstr(": CUDA_ERROR_LAUNCH_FAILED; the CUDA context cannot be used further")) << call;
    EXPECT_EQ(message.find("earlier"), std::string::npos) << message;
    const std::size_t asked = bed_.driver->calls(call);
    EXPECT_THAT(copy->host_buffer(64).error().message, HasSubstr("ended by an earlier error"));
    EXPECT_EQ(bed_.driver->calls(call), asked);
    buffer.reset();
    copy.reset();
    expect_nothing_left();
  }
}

TEST_F(CudaCopies, ABufferThatEndsBeforeItsCopiesIsFreedBehindThem) {
  auto copy = open();
  auto buffer = *copy->host_buffer(4096);
  std::memset(buffer->bytes().data(), 0x5A, 4096);
  bed_.driver->hold(true);
  const auto begun = copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 4096);
  ASSERT_TRUE(begun);
  const std::size_t pinned = bed_.driver->live("pinned");
  buffer.reset();
  EXPECT_EQ(bed_.driver->live("pinned"), pinned);
  bed_.driver->hold(false);
  while (!copy->done(**begun).value_or(true)) {
  }
  EXPECT_EQ(bed_.driver->live("pinned"), pinned - 1);
  EXPECT_EQ(bed_.driver->memory("plain")[4095], std::byte{0x5A});
}

TEST_F(CudaCopies, OpeningCallsWhatCopiesNeedAndFreesNothingBeforeTheEnd) {
  auto copy = open();
  EXPECT_EQ(bed_.driver->calls("cuMemcpyAsync"), 2u) << "there and back";
  EXPECT_EQ(bed_.driver->calls("cuMemFree_v2") + bed_.driver->calls("cuMemFreeHost"), 0u)
      << "which may wait for kernels";
  EXPECT_EQ(bed_.driver->live("device"), 1u);
  EXPECT_EQ(bed_.driver->live("pinned"), 1u);
  copy.reset();
  expect_nothing_left();
}

TEST_F(CudaCopies, NothingBreaksACaptureOfAnotherThread) {
  bed_.driver->capture(true);
  auto copy = open(1);
  ASSERT_TRUE(copy);
  auto buffer = *copy->host_buffer(4096);
  for (int i = 0; i < 10; ++i) {
    const auto begun = copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 4096);
    ASSERT_TRUE(begun) << begun.error().message;
    if (*begun) {
      EXPECT_TRUE(copy->done(**begun));
    }
    EXPECT_FALSE(bed_.driver->relaxed());
  }
  buffer.reset();
  copy.reset();
  EXPECT_EQ(bed_.driver->misuse(), "");
  expect_nothing_left();
}

// The driver refuses a call, and the GPU goes on with what it has: the memory's owner must learn when that has ended.
TEST_F(CudaCopies, AfterAnErrorCopiesThatHadBegunAreAskedForUntilTheyEnd) {
  for (const char* call : {"cuMemcpyAsync", "cuEventRecord", "cuEventQuery"}) {
    ASSERT_TRUE(cuda_bed("open-modules"));
    auto copy = open(4);
    auto buffer = *copy->host_buffer(4096);
    auto behind = *copy->host_buffer(4096);
    std::memset(buffer->bytes().data(), 0x5A, 4096);
    bed_.driver->hold(true);
    const auto begun = copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 4096);
    ASSERT_TRUE(begun && *begun);
    bed_.driver->answer(call, "CUDA_ERROR_OUT_OF_MEMORY CUDA_ERROR_OUT_OF_MEMORY CUDA_SUCCESS");
    // What fails here may be on its way without a ticket, as behind a record that failed.
    const bool failed =
        !copy->to_device(bed_.driver->memory("plain") + 4096, behind->bytes().data(), 4096) || !copy->done(**begun);
    EXPECT_TRUE(failed) << call;
    EXPECT_THAT(copy->host_buffer(64).error().message, HasSubstr("ended by an earlier error"));
    const auto held = copy->done(**begun);
    ASSERT_TRUE(held) << call << ": " << held.error().message;
    EXPECT_FALSE(*held) << call;
    const std::size_t pinned = bed_.driver->live("pinned");
    behind.reset();
    EXPECT_EQ(bed_.driver->live("pinned"), pinned) << call << ": a copy may still read it";
    bed_.driver->hold(false);
    bool ended = false;
    for (int i = 0; i < 100 && !ended; ++i) ended = copy->done(**begun).value_or(false);
    EXPECT_TRUE(ended) << call;
    EXPECT_TRUE(copy->done(**begun).value_or(false)) << call << ": a ticket stays done";
    EXPECT_EQ(bed_.driver->memory("plain")[4095], std::byte{0x5A});
    EXPECT_EQ(bed_.driver->live("pinned"), pinned) << call << ": a copy without a ticket may still read it";
    EXPECT_FALSE(copy->host_buffer(64)) << call;
    buffer.reset();
    copy.reset();
    expect_nothing_left();
  }
}

// A GPU that does nothing any more: behind CUDA_DEVICE_MAX_CONNECTIONS=1 a kernel may be before our copies forever.
TEST_F(CudaCopies, CopiesThatNeverEndAreLeftBehindInsteadOfWaitedFor) {
  auto copy = open();
  auto buffer = *copy->host_buffer(4096);
  bed_.driver->hold(true);
  ASSERT_TRUE(copy->to_device(bed_.driver->memory("plain"), buffer->bytes().data(), 4096));
  const std::size_t freed = bed_.driver->calls("cuMemFreeHost");
  buffer.reset();
  copy.reset();
  EXPECT_EQ(bed_.driver->calls("cuMemFreeHost"), freed) << "the copy may still read it";
  EXPECT_EQ(bed_.driver->calls("cuStreamDestroy"), 0u);
  EXPECT_EQ(bed_.driver->live("contexts"), 1u) << "its end would wait";
}

}  // namespace
}  // namespace clustar::tests
