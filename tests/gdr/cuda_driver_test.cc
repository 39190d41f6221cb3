#include "gdr/topology/cuda_driver.h"

#include <gtest/gtest.h>

namespace clustar::gdr {
namespace {

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
