// A queue pair that is connected to itself: what it writes and reads, in which order, and how it ends.
#include "transport/io/verbs/loop.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "tests/rdma/two_ends.h"

namespace clustar::tests {
namespace {

using ::testing::HasSubstr;

class VerbsLoop : public TwoEnds {
 protected:
  void SetUp() override {
    TwoEnds::SetUp();
    if (!IsSkipped()) end_ = std::make_unique<End>("rxe_a", EndOptions{});
  }
  verbs::Loop make(std::uint32_t depth = 16) {
    verbs::LoopOptions options;
    options.path = {.peer = end_->gid.gid, .port = 1, .gid_index = static_cast<int>(end_->gid.index)};
    options.depth = depth;
    return must(verbs::Loop::make(end_->device, end_->domain, options));
  }
  std::uint64_t address(std::size_t offset) const { return end_->region.address(offset); }
  std::uint32_t rkey() const { return end_->region.rkey(); }
  // Ids in the order of completion; fewer than `count` if they take too long.
  static std::vector<std::uint64_t> take(verbs::Loop& loop, std::size_t count) {
    std::vector<std::uint64_t> all;
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (all.size() < count && std::chrono::steady_clock::now() < until) {
      std::array<std::uint64_t, 3> done;
      const std::size_t taken = must(loop.poll(done));
      all.insert(all.end(), done.begin(), done.begin() + static_cast<long>(taken));
    }
    return all;
  }

  std::unique_ptr<End> end_;
};

TEST_F(VerbsLoop, WritesAndReadsBackInTheOrderOfPosting) {
  auto loop = make();
  End& end = *end_;
  constexpr std::size_t kBytes = 20'000;
  end.fill(0, kBytes, 3);
  std::fill_n(end.bytes(500'000), kBytes, std::byte{0xff});  // zeroes to write come from 700,000
  ASSERT_TRUE(must(loop.post_write(end.region.slice(0, kBytes), address(200'000), rkey(), 1)));
  ASSERT_TRUE(must(loop.post_write(end.region.slice(700'000, kBytes), address(500'000), rkey(), 2)));
  // Reads what the first wrote, though nobody waited for it.
  ASSERT_TRUE(must(loop.post_read(end.region.slice(350'000, kBytes), address(200'000), rkey(), 3)));
  ASSERT_TRUE(must(loop.post_read(end.region.slice(900'000, 4), address(500'000 + kBytes - 4), rkey(), 4)));
  EXPECT_EQ(loop.outstanding(), 4u);
  EXPECT_EQ(take(loop, 4), (std::vector<std::uint64_t>{1, 2, 3, 4}));
  EXPECT_EQ(loop.outstanding(), 0u);
  EXPECT_TRUE(end.filled(200'000, kBytes, 3));
  EXPECT_TRUE(end.filled(350'000, kBytes, 3));
  EXPECT_EQ(std::count(end.bytes(500'000), end.bytes(500'000 + kBytes), std::byte{0}), static_cast<long>(kBytes));
}

TEST_F(VerbsLoop, TakesNoMoreThanItsDepth) {
  auto loop = make(3);
  for (std::uint64_t id = 0; id < 3; ++id) {
    ASSERT_TRUE(must(loop.post_write(end_->region.slice(0, 8), address(4096), rkey(), id)));
  }
  EXPECT_EQ(loop.room(), 0u);
  EXPECT_FALSE(must(loop.post_read(end_->region.slice(0, 8), address(4096), rkey(), 3)));
  EXPECT_EQ(take(loop, 3).size(), 3u);
  EXPECT_EQ(loop.room(), 3u);
  EXPECT_TRUE(must(loop.post_read(end_->region.slice(0, 8), address(4096), rkey(), 3)));
  EXPECT_EQ(take(loop, 1), std::vector<std::uint64_t>{3});
}

TEST_F(VerbsLoop, TheFirstFailureEndsItAndIsToldByEveryLaterCall) {
  auto loop = make();
  ASSERT_TRUE(must(loop.post_write(end_->region.slice(0, 8), address(4096), ~rkey(), 7)));
  Result<std::size_t> polled = 0;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::array<std::uint64_t, 4> done;
  while (polled && std::chrono::steady_clock::now() < until) polled = loop.poll(done);
  ASSERT_FALSE(polled);
  EXPECT_THAT(polled.error().message, HasSubstr("IBV_WC_REM_ACCESS_ERR"));
  const auto posted = loop.post_write(end_->region.slice(0, 8), address(4096), rkey(), 8);
  ASSERT_FALSE(posted);
  EXPECT_EQ(posted.error().message, polled.error().message);
}

TEST_F(VerbsLoop, AStoppedOneSaysSo) {
  auto loop = make();
  loop.stop();
  const auto posted = loop.post_read(end_->region.slice(0, 8), address(4096), rkey(), 1);
  ASSERT_FALSE(posted);
  EXPECT_THAT(posted.error().message, HasSubstr("was stopped"));
}

TEST_F(VerbsLoop, WithoutDepthItIsRefused) {
  const auto made = verbs::Loop::make(end_->device, end_->domain, {.depth = 0});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace clustar::tests
