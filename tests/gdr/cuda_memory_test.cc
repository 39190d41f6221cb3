// What the CUDA module says of memory, and what of it it exports, by fixtures of drivers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <vector>

#include "tests/gdr/cuda_bed.h"
#include "tests/own_process.h"
#include "tests/sanitized.h"

namespace clustar::tests {
namespace {

using gdr::Known;
using gdr::cuda::Place;
using ::testing::HasSubstr;

class CudaMemory : public ::testing::Test {
 protected:
  // The fixture's driver; the test fails without.
  const gdr::cuda::Api& with(const std::string& fixture) {
    auto bed = cuda_bed(fixture);
    EXPECT_TRUE(bed) << bed.error().message;
    if (bed) bed_ = *bed;
    return bed_.api;
  }
  std::byte* memory(const std::string& name) { return bed_.driver->memory(name); }
  // What an export was refused with.
  std::string refusal(const std::byte* address, std::size_t length = 4096, bool want_pcie = false) {
    const auto exported = bed_.api.export_dma_buf(address, length, want_pcie);
    EXPECT_FALSE(exported) << "a descriptor";
    if (exported) close(exported->fd);
    return exported ? "" : exported.error().message;
  }
  void TearDown() override {
    if (bed_.driver == nullptr) return;
    EXPECT_EQ(bed_.driver->misuse(), "");
    EXPECT_EQ(bed_.driver->depth(), 0u) << "contexts stay pushed";
    EXPECT_EQ(bed_.driver->live("contexts"), 0u) << "primary contexts stay retained";
    EXPECT_FALSE(bed_.driver->relaxed()) << "the thread has not the mode it came with";
  }

  CudaBed bed_{};
};

TEST_F(CudaMemory, DeviceMemoryIsDescribed) {
  const auto& api = with("open-modules");
  const auto described = api.describe(memory("plain") + 4711);
  ASSERT_TRUE(described) << described.error().message;
  EXPECT_EQ(described->place, Place::kDevice);
  EXPECT_TRUE(described->known_to_cuda);
  EXPECT_EQ(described->device, 0);
  EXPECT_EQ(described->pci_address, "0000:1b:00.0");
  EXPECT_EQ(described->base, memory("plain"));
  EXPECT_EQ(described->size, 8388608u);
  EXPECT_EQ(described->gpu_direct, Known::kYes);
  EXPECT_EQ(described->legacy, Known::kYes);
}

TEST_F(CudaMemory, ManagedPinnedAndOrdinaryMemoryAreToldApart) {
  const auto& api = with("open-modules");
  EXPECT_EQ(api.describe(memory("managed"))->place, Place::kManaged);
  const auto pinned = api.describe(memory("pinned"));
  EXPECT_EQ(pinned->place, Place::kHost);
  EXPECT_TRUE(pinned->known_to_cuda);
  EXPECT_EQ(pinned->base, memory("pinned"));
  int ordinary = 0;
  const auto host = api.describe(&ordinary);
  ASSERT_TRUE(host);
  EXPECT_EQ(host->place, Place::kHost);
  EXPECT_FALSE(host->known_to_cuda);
  EXPECT_EQ(host->device, -1);
  EXPECT_EQ(host->gpu_direct, Known::kUnknown);
}

TEST_F(CudaMemory, WhatAnOldDriverDoesNotKnowIsUnknown) {
  const auto& api = with("driver-470");
  EXPECT_EQ(api.describe(memory("plain"))->gpu_direct, Known::kUnknown);
  EXPECT_EQ(api.describe(memory("plain"))->legacy, Known::kYes);
}

TEST_F(CudaMemory, AStartThatFailsIsNamed) {
  const auto& none = with("no-device");
  EXPECT_THAT(none.describe(this).error().message, HasSubstr("cuInit: CUDA_ERROR_NO_DEVICE; no GPU is shown"));
  const auto& mismatch = with("driver-mismatch");
  EXPECT_THAT(mismatch.flush(0).error().message, HasSubstr("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH; libcuda.so.1 and"));
  EXPECT_THAT(mismatch.open_copy(0, {}).error().message, HasSubstr("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"));
}

TEST_F(CudaMemory, AnExportIsOfWholePagesWithTheOffsetOfTheAddress) {
  const auto& api = with("open-modules");
  constexpr std::size_t kAt = 3 * 4096 + 512;
  for (std::size_t i = 0; i < 9000; ++i) memory("plain")[kAt + i] = static_cast<std::byte>(i * 7);
  const auto exported = api.export_dma_buf(memory("plain") + kAt, 9000, false);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->offset, 512u);
  EXPECT_EQ(exported->size, 3u * 4096);
  EXPECT_FALSE(exported->pcie);
  EXPECT_EQ(exported->why_not_pcie, "");
  EXPECT_EQ(lseek(exported->fd, 0, SEEK_END), 3 * 4096);
  std::vector<std::byte> bytes(9000);
  ASSERT_EQ(pread(exported->fd, bytes.data(), bytes.size(), static_cast<off_t>(exported->offset)), 9000);
  EXPECT_EQ(std::memcmp(bytes.data(), memory("plain") + kAt, 9000), 0);
  close(exported->fd);
}

TEST_F(CudaMemory, ClosedModulesAreNamedWithTheFix) {
  with("closed-modules");
  EXPECT_THAT(refusal(memory("plain")), ::testing::AllOf(HasSubstr("CUDA_ERROR_NOT_SUPPORTED; the driver exports no"),
                                                         HasSubstr("open kernel modules")));
}

TEST_F(CudaMemory, ADriverThatDoesNotKnowTheAttributeIsAskedAllTheSame) {
  const auto& api = with("driver-470");
  bed_.driver->answer("cuMemGetHandleForAddressRange", "CUDA_ERROR_INVALID_VALUE");
  EXPECT_THAT(refusal(memory("plain")), HasSubstr("CUDA_ERROR_INVALID_VALUE; the range must be device memory"));
  EXPECT_TRUE(api.flush(0)) << "the option is unknown there, not refused";
}

TEST_F(CudaMemory, MappedMemoryIsExportedAcrossItsPiecesIfMadeForIt) {
  const auto& api = with("vmm");
  const auto described = api.describe(memory("capable") + (3u << 20));
  EXPECT_EQ(described->legacy, Known::kNo);
  EXPECT_EQ(described->base, memory("capable") + (2u << 20)) << "a piece";
  EXPECT_EQ(described->size, 2u << 20);
  const auto exported = api.export_dma_buf(memory("capable") + (1u << 20), 4u << 20, false);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->size, 4u << 20);
  close(exported->fd);
  EXPECT_THAT(
      refusal(memory("incapable")),
      ::testing::AllOf(HasSubstr("CUDA_ERROR_INVALID_VALUE; this memory was made"), HasSubstr("gpuDirectRDMACapable")));
}

TEST_F(CudaMemory, TensorsOfTorchLieAnywhereInTheirSegment) {
  const auto& api = with("torch-allocator");
  for (const std::size_t at : {std::size_t{512}, std::size_t{4096 + 1536}, std::size_t{20971520 - 512}}) {
    const auto exported = api.export_dma_buf(memory("segment") + at, 512, false);
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_EQ(exported->offset, at % 4096);
    EXPECT_EQ(exported->size, 4096u);
    close(exported->fd);
  }
  EXPECT_THAT(refusal(memory("expandable") + 512), HasSubstr("without expandable_segments"));
}

TEST_F(CudaMemory, ThroughPcieIsTriedFirstAndItsRefusalKept) {
  const auto& refusing = with("gh200");
  for (const char* answer : {"CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_NOT_SUPPORTED"}) {
    const auto exported = refusing.export_dma_buf(memory("plain"), 4096, true);
    ASSERT_TRUE(exported) << exported.error().message;
    EXPECT_FALSE(exported->pcie);
    EXPECT_THAT(exported->why_not_pcie, HasSubstr(answer));
    close(exported->fd);
  }
  EXPECT_EQ(bed_.driver->calls("cuMemGetHandleForAddressRange"), 4u);
  const auto& taking = with("gb200");
  const auto exported = taking.export_dma_buf(memory("plain"), 4096, true);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_TRUE(exported->pcie);
  EXPECT_EQ(bed_.driver->calls("cuMemGetHandleForAddressRange"), 1u);
  close(exported->fd);
}

TEST_F(CudaMemory, WhatIsNoDevicesIsNotExported) {
  with("open-modules");
  int ordinary = 0;
  EXPECT_THAT(refusal(reinterpret_cast<std::byte*>(&ordinary), 4), HasSubstr("this is host memory"));
  EXPECT_THAT(refusal(memory("pinned")), HasSubstr("register it as host memory"));
  EXPECT_THAT(refusal(memory("managed")), HasSubstr("this is managed memory"));
  EXPECT_EQ(bed_.driver->calls("cuMemGetHandleForAddressRange"), 0u);
}

TEST_F(CudaMemory, RangesThatAreNoneAreRefused) {
  with("open-modules");
  EXPECT_THAT(refusal(memory("plain"), 0), HasSubstr("at least 1 B is allowed"));
  EXPECT_THAT(refusal(memory("plain"), ~std::size_t{0} - 100), HasSubstr("within the address space"));
  EXPECT_THAT(refusal(memory("plain"), 8388608 + 4096), HasSubstr("CUDA_ERROR_INVALID_VALUE; the range must be"));
}

TEST_F(CudaMemory, ASliceWithoutGpuDirectSaysSo) {
  const auto& api = with("mig");
  EXPECT_EQ(api.describe(memory("plain"))->gpu_direct, Known::kNo);
  EXPECT_THAT(refusal(memory("plain")),
              HasSubstr("CUDA_ERROR_NOT_SUPPORTED; the driver exports no dma-bufs of this GPU"));
  EXPECT_THAT(api.flush(0).error().message, HasSubstr("offers no flush"));
  EXPECT_THAT(api.sync_memops(memory("plain")).error().message, HasSubstr("CUDA_ERROR_NOT_SUPPORTED"));
}

TEST_F(CudaMemory, AFullDescriptorTableIsNamed) {
  if (tests::kSanitized) GTEST_SKIP() << "UBSan looks at virtual tables by a pipe, which needs descriptors";
  const auto& api = with("full-table");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int highest = dup(0);
  ASSERT_GE(highest, 0);
  close(highest);
  rlimit none = before;
  none.rlim_cur = static_cast<rlim_t>(highest);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto refused = api.export_dma_buf(memory("plain"), 4096, false);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message,
              ::testing::AllOf(HasSubstr("CUDA_ERROR_OPERATING_SYSTEM"), HasSubstr("ulimit -n")));
  const auto again = api.export_dma_buf(memory("plain"), 4096, false);
  ASSERT_TRUE(again) << again.error().message;
  close(again->fd);
}

TEST_F(CudaMemory, DescriptorsAreFlatOverAThousandExports) {
  const auto& api = with("gh200");
  const std::size_t before = open_descriptors();
  for (int i = 0; i < 1000; ++i) {
    const auto exported = api.export_dma_buf(memory("plain") + i * 8000, 8000, i % 2 == 0);
    ASSERT_TRUE(exported) << exported.error().message;
    close(exported->fd);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(CudaMemory, MemoryOperationsAreMadeSynchronousForDeviceMemoryOnly) {
  const auto& api = with("vmm");
  EXPECT_TRUE(api.sync_memops(memory("capable")));
  EXPECT_TRUE(bed_.driver->sync_memops("capable"));
  EXPECT_THAT(api.sync_memops(memory("incapable")).error().message, HasSubstr("memory of cuMemMap and of pools"));
  EXPECT_THAT(api.sync_memops(this).error().message, HasSubstr("is host memory"));
}

TEST_F(CudaMemory, NothingBreaksACaptureOfAnotherThread) {
  const auto& api = with("open-modules");
  bed_.driver->capture(true);
  EXPECT_TRUE(api.describe(memory("plain")));
  const auto exported = api.export_dma_buf(memory("plain"), 4096, true);
  ASSERT_TRUE(exported) << exported.error().message;
  close(exported->fd);
  EXPECT_TRUE(api.sync_memops(memory("plain")));
  EXPECT_TRUE(api.flush(0));
  EXPECT_GT(bed_.driver->calls("cuThreadExchangeStreamCaptureMode"), 0u);
}

TEST_F(CudaMemory, AFlushIsToTheOwner) {
  const auto& api = with("open-modules");
  const auto flushed = api.flush(0);
  EXPECT_TRUE(flushed) << flushed.error().message;
  EXPECT_EQ(bed_.driver->calls("cuFlushGPUDirectRDMAWrites"), 1u);
  EXPECT_THAT(api.flush(7).error().message, HasSubstr("cuDeviceGet of device 7: CUDA_ERROR_INVALID_DEVICE"));
  bed_.driver->answer("cuFlushGPUDirectRDMAWrites", "CUDA_ERROR_INVALID_CONTEXT");
  EXPECT_THAT(api.flush(0).error().message, HasSubstr("CUDA_ERROR_INVALID_CONTEXT; a NIC flushes by an RDMA READ"));
}

TEST_F(CudaMemory, TheCallersOwnContextIsUsedBeforeAnotherIsMade) {
  const auto& api = with("own-context");
  const auto exported = api.export_dma_buf(memory("owned"), 4096, false);
  ASSERT_TRUE(exported) << exported.error().message;
  close(exported->fd);
  EXPECT_EQ(bed_.driver->calls("cuDevicePrimaryCtxRetain"), 0u);
  EXPECT_TRUE(api.describe(memory("other")));
  EXPECT_GT(bed_.driver->calls("cuDevicePrimaryCtxRetain"), 0u) << "device 1's is in use";
}

TEST_F(CudaMemory, EveryFixtureLoads) {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CLUSTAR_CUDA_DRIVERS)) {
    const auto bed = cuda_bed(entry.path().stem());
    EXPECT_TRUE(bed) << bed.error().message;
    ++count;
  }
  EXPECT_EQ(count, 12u);
  EXPECT_THAT(cuda_bed("no-such").error().message, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace clustar::tests
