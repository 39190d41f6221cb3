// The CUDA module where there is no driver.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/module.h"

namespace clustar::tests {
namespace {

TEST(CudaNoDriver, TheLoadersReasonIsGiven) {
  if (void* driver = dlopen("libcuda.so.1", RTLD_LAZY)) {
    dlclose(driver);
    GTEST_SKIP() << "there is a driver here";
  }
  const auto module = transport::Module::open(CLUSTAR_MODULES, "cuda");
  ASSERT_FALSE(module);
  EXPECT_THAT(module.error().message, ::testing::HasSubstr("libcuda.so.1: cannot open shared object file"));
}

}  // namespace
}  // namespace clustar::tests
