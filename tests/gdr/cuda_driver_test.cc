#include "gdr/topology/cuda_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

namespace clustar::gdr {
namespace {

// What is said of a driver whose cuInit answers `status`.
std::string refusal(const char* library, int status) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  auto* answer = handle == nullptr ? nullptr : static_cast<int*>(dlsym(handle, "fake_cuda_init"));
  if (answer == nullptr) return "no such library";
  *answer = status;
  const std::string said = ask_cuda_driver(library).not_asked;
  *answer = 0;
  return said;
}

TEST(CudaDriver, AMissingLibraryIsSaid) {
  const CudaAnswers answers = ask_cuda_driver("libcuda-of-nobody.so.1");
  EXPECT_EQ(answers.not_asked,
            "not asked: libcuda-of-nobody.so.1 is not there, or cannot be loaded (libcuda-of-nobody.so.1: cannot open "
            "shared object file: No such file or directory)");
  EXPECT_EQ(facts_of(answers, "0000:01:00.0").not_asked, answers.not_asked);
  EXPECT_EQ(facts_of(answers, "0000:01:00.0").dma_buf, Known::kUnknown);
}

TEST(CudaDriver, ALibraryOfAnotherKindIsSaid) {
  EXPECT_EQ(ask_cuda_driver("libc.so.6").not_asked, "not asked: libc.so.6 lacks functions of the CUDA driver");
}

TEST(CudaDriver, AStartThatFailsIsNamedWithWhatToDo) {
  EXPECT_EQ(refusal(CLUSTAR_FAKE_CUDA, 100),
            "cuInit of libcuda.so.1 failed: CUDA_ERROR_NO_DEVICE (100); no GPU is shown to this process: check "
            "nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices");
  EXPECT_EQ(refusal(CLUSTAR_FAKE_CUDA, 803)
                .find("cuInit of libcuda.so.1 failed: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803); "
                      "libcuda.so.1 and the kernel module are of different versions"),
            0u)
      << "named without the library's help";
  EXPECT_EQ(refusal(CLUSTAR_FAKE_CUDA, 901),
            "cuInit of libcuda.so.1 failed: CUDA_ERROR_OF_TOMORROW (901); check that nvidia-smi works here");
  EXPECT_EQ(refusal(CLUSTAR_FAKE_CUDA, 4711),
            "cuInit of libcuda.so.1 failed: CUresult (4711); check that nvidia-smi works here");
}

TEST(CudaDriver, ADriverWithoutNamesIsUnderstood) {
  const struct {
    int status;
    const char* name;
  } known[] = {{3, "NOT_INITIALIZED"},    {34, "STUB_LIBRARY"},
               {100, "NO_DEVICE"},        {304, "OPERATING_SYSTEM"},
               {802, "SYSTEM_NOT_READY"}, {803, "SYSTEM_DRIVER_MISMATCH"},
               {999, "UNKNOWN"},          {804, "COMPAT_NOT_SUPPORTED_ON_DEVICE"}};
  for (const auto& one : known) {
    EXPECT_NE(refusal(CLUSTAR_FAKE_CUDA_NAMELESS, one.status).find(std::string("CUDA_ERROR_") + one.name + " ("),
              std::string::npos)
        << one.status;
  }
  EXPECT_NE(refusal(CLUSTAR_FAKE_CUDA_NAMELESS, 901).find("CUresult (901)"), std::string::npos);
}

TEST(CudaDriver, AGpuThatCudaDoesNotShowIsSaid) {
  CudaAnswers answers;
  answers.gpus["0000:01:00.0"].compute_capability = 90;
  EXPECT_EQ(facts_of(answers, "0000:01:00.0").compute_capability, 90);
  EXPECT_FALSE(facts_of(answers, "0000:02:00.0").not_asked.empty());
}

TEST(CudaDriver, AnswersAreFoundByPciAddress) {
  const CudaAnswers answers = ask_cuda_driver(CLUSTAR_FAKE_CUDA);
  ASSERT_EQ(answers.not_asked, "");
  const GpuFacts hopper = facts_of(answers, "0009:01:00.0");
  EXPECT_EQ(hopper.compute_capability, 90);
  EXPECT_EQ(hopper.cuda_version, 12080);
  EXPECT_EQ(hopper.direct_rdma, Known::kYes);
  EXPECT_EQ(hopper.dma_buf, Known::kYes);
  EXPECT_EQ(hopper.cuda_flush, Known::kYes);
  EXPECT_EQ(hopper.c2c, Known::kYes);
  const GpuFacts turing = facts_of(answers, "0000:1b:00.0");
  EXPECT_EQ(turing.compute_capability, 75);
  EXPECT_EQ(turing.dma_buf, Known::kNo);
  EXPECT_EQ(turing.cuda_flush, Known::kUnknown) << "its driver does not know the attribute";
  EXPECT_EQ(turing.c2c, Known::kNo);
}

}  // namespace
}  // namespace clustar::gdr
