// gdr/launch over the driver of the emulated device.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "gdr/kernels/arguments.h"
#include "gdr/launch/device.h"

namespace clustar::gdr::launch {

extern const Image gdr_device_code;  // of kernels_module.cu; without bytes where the build has no nvcc

namespace {

using ::testing::HasSubstr;

Result<std::unique_ptr<Device>> open(const Image& image = gdr_device_code) {
  return Device::open(CLUSTAR_EMULATED_LIBCUDA, image);
}

TEST(Launch, SumsOnTheDeviceWhatWasUploaded) {
  auto device = open();
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_TRUE((*device)->emulated());
  constexpr std::size_t kCount = 100'003;
  std::vector<float> a(kCount), b(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<float>(i % 1000);
    b[i] = static_cast<float>(i % 77);
  }
  const std::size_t bytes = kCount * sizeof(float);
  auto sum = (*device)->allocate(bytes);
  auto more = (*device)->allocate(bytes);
  ASSERT_TRUE(sum && more);
  ASSERT_TRUE((*device)->upload(*sum, a.data(), bytes));
  ASSERT_TRUE((*device)->upload(*more, b.data(), bytes));
  ASSERT_TRUE((*device)->launch(kSumF32, (*device)->grid_for(kCount), {*sum, *more, kCount}));
  // Nothing is read before it was summed.
  std::vector<float> result(kCount);
  ASSERT_TRUE((*device)->download(result.data(), *sum, bytes));
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(result[i], a[i] + b[i]) << i;
  ASSERT_TRUE((*device)->fill(*sum, 0x40000000, kCount));  // 2.0f
  ASSERT_TRUE((*device)->download(result.data(), *sum, bytes));
  EXPECT_THAT(result, ::testing::Each(2.0f));
  (*device)->release(*sum);
  (*device)->release(*more);
}

TEST(Launch, TheCallerMayChangeWhatItUploadedAtOnce) {
  auto device = open();
  ASSERT_TRUE(device);
  auto memory = (*device)->allocate(4);
  ASSERT_TRUE(memory);
  std::uint32_t word = 1;
  ASSERT_TRUE((*device)->upload(*memory, &word, sizeof(word)));
  word = 2;
  ASSERT_TRUE((*device)->download(&word, *memory, sizeof(word)));
  EXPECT_EQ(word, 1u);
  (*device)->release(*memory);
}

// Also a look at what nvcc made: the driver refuses a kernel that the module does not have.
TEST(Launch, EveryKernelOfTheModuleIsFound) {
  auto device = open();
  ASSERT_TRUE(device) << device.error().message;
  for (const auto& sum : {kSumF32, kSumF64, kSumF16, kSumBf16, kSumI8, kSumI32, kSumI64}) {
    EXPECT_TRUE((*device)->launch(sum, {}, {})) << sum.name;
  }
  for (const auto& importance : {kImportanceF32, kImportanceF16, kImportanceBf16}) {
    EXPECT_TRUE((*device)->launch(importance, {}, {.per_block = 1})) << importance.name;
  }
  EXPECT_TRUE((*device)->launch(kZeroRanges, {}, {}));
  EXPECT_TRUE((*device)->wait());
}

TEST(Launch, WithoutCodeForGpusTheEmulatedDeviceTakesKernelsByName) {
  auto device = open(Image{});
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_TRUE((*device)->launch(kZeroRanges, {}, {}));
}

TEST(Launch, ErrorsNameWhatIsMissing) {
  const auto no_driver = Device::open("libno-such-driver.so", {});
  ASSERT_FALSE(no_driver);
  EXPECT_THAT(no_driver.error().message, HasSubstr("cannot open the CUDA driver 'libno-such-driver.so'"));
  const auto other = Device::open("libm.so.6", {});
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("has no cuInit: it is no CUDA driver"));
  constexpr char kNonsense[] = "nonsense";
  const auto nonsense = open({kNonsense, sizeof(kNonsense)});
  ASSERT_FALSE(nonsense);
  EXPECT_THAT(nonsense.error().message, HasSubstr("cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE"));
  auto device = open();
  ASSERT_TRUE(device);
  const auto unknown = (*device)->launch(Kernel<SumArguments>{"no_such_kernel"}, {}, {});
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("cuModuleGetFunction of no_such_kernel: CUDA_ERROR_NOT_FOUND"));
  const auto outside = (*device)->upload(&device, "1", 1);
  ASSERT_FALSE(outside);
  EXPECT_THAT(outside.error().message, HasSubstr("CUDA_ERROR_INVALID_VALUE"));
}

// The last test here: the device is of no use then, as a GPU's context is not.
TEST(Launch, AFaultOfAKernelIsToldByTheNextCallAndStays) {
  auto device = open();
  ASSERT_TRUE(device);
  auto memory = (*device)->allocate(64);
  ASSERT_TRUE(memory);
  // Half of the second warp is missing, whose lanes wait for each other.
  const Grid wrong{.x = 1, .y = 1, .threads = 48};
  const ImportanceArguments two_blocks{
      .values = *memory, .count = 2, .per_block = 1, .sums = static_cast<float*>(*memory)};
  ASSERT_TRUE((*device)->launch(kImportanceF32, wrong, two_blocks));
  const auto ended = (*device)->wait();
  ASSERT_FALSE(ended);
  EXPECT_THAT(ended.error().message, HasSubstr("work on the GPU: CUDA_ERROR_LAUNCH_FAILED"));
  const auto again = (*device)->launch(kZeroRanges, {}, {});
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message, HasSubstr("CUDA_ERROR_LAUNCH_FAILED"));
}

}  // namespace
}  // namespace clustar::gdr::launch
