// As a rank computes: oneDNN's idle threads would spin beside other tests.
#include <gtest/gtest.h>

#include <memory>

#include "bench/trainer/compute_thread.h"

namespace clustar::bench::trainer::graph {
namespace {

class OneThread final : public ::testing::Environment {
 public:
  void SetUp() override { thread_ = std::make_unique<ComputeThread>(); }
  void TearDown() override { thread_.reset(); }

 private:
  std::unique_ptr<ComputeThread> thread_;
};

const auto* const kOneThread = ::testing::AddGlobalTestEnvironment(new OneThread);

}  // namespace
}  // namespace clustar::bench::trainer::graph
