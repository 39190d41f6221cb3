// The C API of the tolerant contract, through the library that users link.
#include <clustar/paraexpress_tolerant.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/child_ends.h"
#include "transport/rendezvous/bootstrap.h"

namespace clustar {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

clustarPxTolerantOptions_v1 terms_of(int rank, int ranks, const char* root) {
  clustarPxTolerantOptions_v1 options{};
  options.size = sizeof options;
  options.rank = rank;
  options.ranks = ranks;
  options.root = root;
  options.buckets = 2;
  options.deadline_us = 10'000;
  return options;
}

struct GroupOf {
  clustarPxTolerant_t handle = 0;
  explicit GroupOf(const clustarPxTolerantOptions_v1& options) {
    EXPECT_EQ(clustarPxTolerantInit(&options, &handle), CLUSTARPX_OK) << clustarPxLastError();
  }
  ~GroupOf() { EXPECT_EQ(clustarPxTolerantFinalize(handle), CLUSTARPX_OK) << clustarPxLastError(); }
  GroupOf(const GroupOf&) = delete;
  GroupOf& operator=(const GroupOf&) = delete;

  clustarPxTolerantOutcome_v1 sum(int bucket, std::vector<float>& values, bool gives = true) const {
    clustarPxTolerantRound_t round = 0;
    EXPECT_EQ(clustarPxTolerantAllReduce(handle, bucket, values.data(), values.size(), CLUSTARPX_FLOAT32, gives ? 1 : 0,
                                         &round),
              CLUSTARPX_OK)
        << clustarPxLastError();
    clustarPxTolerantOutcome_v1 outcome{};
    outcome.size = sizeof outcome;
    EXPECT_EQ(clustarPxTolerantWait(round, &outcome), CLUSTARPX_OK) << clustarPxLastError();
    return outcome;
  }
};

TEST(TolerantApi, ALateRankKeepsItsGradientAcrossARestartAndGivesItThen) {
  const auto first = rendezvous::Bootstrap::pick_loopback_root(), second = rendezvous::Bootstrap::pick_loopback_root();
  ASSERT_TRUE(first && second);
  const auto body = [&](int rank) {
    std::vector<char> kept;
    {
      auto options = terms_of(rank, 2, first->c_str());
      options.quorum = 1;
      options.staleness = 4;
      options.deadline_us = 0;
      options.plain = 1;
      const GroupOf group(options);
      std::vector<float> values(64, static_cast<float>(rank + 1));
      int should = 1;
      while (rank == 1 && should == 1) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(clustarPxTolerantShouldCompute(group.handle, &should), CLUSTARPX_OK);
      }
      const auto outcome = group.sum(0, values);
      EXPECT_EQ(outcome.given, 64U);
      EXPECT_GE(outcome.kept, rank == 1 ? 32U : 0U) << "of rank 0's part at least";
      size_t bytes = 0;
      EXPECT_EQ(clustarPxTolerantSave(group.handle, 0, nullptr, &bytes), CLUSTARPX_OK);
      kept.resize(bytes);
      bytes = 1;
      EXPECT_EQ(clustarPxTolerantSave(group.handle, 0, kept.data(), &bytes), CLUSTARPX_EINVAL);
      EXPECT_EQ(clustarPxTolerantSave(group.handle, 0, kept.data(), &bytes), CLUSTARPX_OK) << clustarPxLastError();
    }
    auto options = terms_of(rank, 2, second->c_str());
    options.plain = 1;
    const GroupOf group(options);
    EXPECT_EQ(clustarPxTolerantRestore(group.handle, 0, kept.data(), kept.size() - 1), CLUSTARPX_EINVAL);
    EXPECT_EQ(clustarPxTolerantRestore(group.handle, 0, kept.data(), kept.size()), CLUSTARPX_OK)
        << clustarPxLastError();
    std::vector<float> values(64, 10.0F);
    const auto outcome = group.sum(0, values);
    EXPECT_EQ(outcome.kept, 0U);
    // What rank 1 was too late with is in it now, in all parts or in rank 0's alone.
    EXPECT_EQ(values.front(), 22.0F);
  };
  const pid_t child = fork();
  if (child == 0) {
    body(1);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  body(0);
  EXPECT_THAT(tests::ends_of(std::vector<pid_t>{child}), Each(0));
}

TEST(TolerantApi, WrongArgumentsAreErrorsThatSayWhatIsAllowed) {
  clustarPxTolerant_t handle = 0;
  const auto refused = [&](const std::function<void(clustarPxTolerantOptions_v1&)>& change) {
    auto options = terms_of(0, 1, nullptr);
    change(options);
    return clustarPxTolerantInit(&options, &handle) == CLUSTARPX_EINVAL ? std::string(clustarPxLastError()) : "";
  };
  EXPECT_THAT(refused([](auto& options) { options.size = 4; }), HasSubstr("sizeof(clustarPxTolerantOptions_v1)"));
  EXPECT_THAT(refused([](auto& options) { options.rank = 1; }), HasSubstr("allowed: 1 to 256"));
  EXPECT_THAT(refused([](auto& options) { options.buckets = -1; }), HasSubstr("buckets -1; allowed: 1 and more"));
  EXPECT_THAT(refused([](auto& options) { options.buckets = 5000; }), HasSubstr("allowed: 1 to 4096"));
  EXPECT_THAT(refused([](auto& options) { options.plain = 2; }), HasSubstr("allowed: 0, 1"));
  EXPECT_THAT(refused([](auto& options) { options.ranks = 2; }), HasSubstr("root and hosts"));
  EXPECT_EQ(clustarPxTolerantInit(nullptr, &handle), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxTolerantFinalize(12345), CLUSTARPX_EINVAL);

  const GroupOf group(terms_of(0, 1, nullptr));
  std::vector<float> values(5, 3.0F);
  clustarPxTolerantRound_t round = 0;
  EXPECT_EQ(clustarPxTolerantAllReduce(group.handle, 0, values.data(), 5, CLUSTARPX_INT32, 1, &round),
            CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxTolerantAllReduce(group.handle, 0, values.data(), 5, CLUSTARPX_FLOAT32, 1, nullptr),
            CLUSTARPX_EINVAL);
  for (const int bucket : {-1, 2}) {
    ASSERT_EQ(clustarPxTolerantAllReduce(group.handle, bucket, values.data(), 5, CLUSTARPX_FLOAT32, 1, &round),
              CLUSTARPX_OK);
    EXPECT_EQ(clustarPxTolerantWait(round, nullptr), CLUSTARPX_EINVAL);
    EXPECT_THAT(clustarPxLastError(), HasSubstr("allowed: 0 to 1"));
  }
  EXPECT_EQ(clustarPxTolerantWait(round, nullptr), CLUSTARPX_EINVAL) << "twice";
  EXPECT_EQ(clustarPxTolerantSave(group.handle, 0, nullptr, nullptr), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxTolerantRestore(group.handle, 0, nullptr, 3), CLUSTARPX_EINVAL);
  EXPECT_EQ(clustarPxTolerantShouldCompute(group.handle, nullptr), CLUSTARPX_EINVAL);
  // It lives.
  EXPECT_EQ(group.sum(1, values).gradients, 1U);
  EXPECT_THAT(values, Each(3.0F));
}

}  // namespace
}  // namespace clustar
