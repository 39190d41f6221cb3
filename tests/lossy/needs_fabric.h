// For tests of the suite on fabrics of its own: skipped, with the reason, where none can be made.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "bench/fabric/fabric.h"

namespace clustar::bench::lossy {

// One that loses packets needs root and the switch program, so libbpf and a kernel with eBPF.
class NeedsLossyFabric : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make network namespaces";
    fabric::FabricSpec spec{.name = "lossy-test-" + std::to_string(getpid()), .hosts = 2};
    spec.rules.all.to_host.random = 0.5;
    const auto made = fabric::Fabric::up(spec);
    if (!made && made.error().code == ErrorCode::kUnavailable) {
      GTEST_SKIP() << "no fabric can be made here: " << made.error().message;
    }
    ASSERT_TRUE(made) << made.error().message;
    EXPECT_TRUE(fabric::Fabric::remove(made->spec().name));
  }
};

}  // namespace clustar::bench::lossy
