#include "tests/conformance/device_copy_under_test.h"

namespace clustar::gdr::conformance {

std::vector<DeviceCopyUnderTest> device_copies_under_test() {
  std::vector<DeviceCopyUnderTest> all = emulated_copies_under_test();
#ifdef CLUSTAR_HAS_CUDA_MODULE
  for (DeviceCopyUnderTest& one : cuda_copies_under_test()) all.push_back(std::move(one));
#endif
  return all;
}

}  // namespace clustar::gdr::conformance
