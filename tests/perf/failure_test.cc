#include "bench/perf/failure.h"

#include <gtest/gtest.h>

namespace clustar::bench::perf {
namespace {

using std::chrono::milliseconds;

Failure failure(ErrorCode code, int heard_ms, const char* message) {
  const Error error{code, message};
  return {kind_of(error), Clock::time_point(milliseconds(heard_ms)), error};
}

TEST(Failure, AFindingComesBeforeACallThatFailedEvenWhenItIsHeardLater) {
  const std::vector<Failure> both{failure(ErrorCode::kSystem, 1, "test returned ncclSystemError"),
                                  failure(ErrorCode::kInternal, 2, "wrong data")};
  EXPECT_EQ(cause_of(both)->error.message, "wrong data");
}

TEST(Failure, AmongEqualsTheFirst) {
  const std::vector<Failure> both{failure(ErrorCode::kSystem, 2, "effect"), failure(ErrorCode::kSystem, 1, "cause")};
  EXPECT_EQ(cause_of(both)->error.message, "cause");
  const std::vector<Failure> mixed{failure(ErrorCode::kInvalidArgument, 2, "effect"),
                                   failure(ErrorCode::kSystem, 1, "cause")};
  EXPECT_EQ(cause_of(mixed)->error.message, "cause");
}

TEST(Failure, WhoOnlyLostItsPeerComesLast) {
  const Clock::time_point now;
  std::vector<Failure> all{failure(ErrorCode::kRemote, 1, "lost")};
  EXPECT_EQ(cause_of(all)->error.message, "lost");
  all.push_back({FailureKind::kSilent, now + milliseconds(9), {ErrorCode::kRemote, "silent"}});
  EXPECT_EQ(cause_of(all)->error.message, "silent");
  all.push_back(failure(ErrorCode::kSystem, 10, "call"));
  EXPECT_EQ(cause_of(all)->error.message, "call");
  all.push_back(failure(ErrorCode::kInternal, 11, "finding"));
  EXPECT_EQ(cause_of(all)->error.message, "finding");
  all.push_back({FailureKind::kDied, now + milliseconds(12), {ErrorCode::kRemote, "died"}});
  EXPECT_EQ(cause_of(all)->error.message, "died");
}

TEST(Failure, NobodyFailed) { EXPECT_EQ(cause_of({}), nullptr); }

}  // namespace
}  // namespace clustar::bench::perf
