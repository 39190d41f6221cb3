// A build without Boost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/run_command.h"

namespace clustar::tests {
namespace {

TEST(CoordinatorCommand, WithoutBoostItSaysWhatIsMissing) {
  const Outcome outcome = run_command(std::string(COORDINATOR) + " coordinator --listen 127.0.0.1:0");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.text, ::testing::HasSubstr("package libboost1.81-dev"));
  // What is wrong with the options is said first.
  EXPECT_EQ(run_command(std::string(COORDINATOR) + " coordinator --interval 1ms").status, 2);
}

}  // namespace
}  // namespace clustar::tests
