#include "bench/lossy/stalls.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace clustar::bench::lossy {
namespace {

using std::chrono::milliseconds;

std::int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

TEST(LongestStall, IsOfThoseThatMeetTheInterval) {
  const std::vector<Stall> stalls{{100, 140}, {200, 210}, {300, 400}};
  EXPECT_EQ(longest_stall(stalls, 0, 100), 0) << "the round was over when it began";
  EXPECT_EQ(longest_stall(stalls, 140, 200), 0);
  EXPECT_EQ(longest_stall(stalls, 0, 101), 40) << "all of it, not the part inside";
  EXPECT_EQ(longest_stall(stalls, 139, 205), 40);
  EXPECT_EQ(longest_stall(stalls, 202, 203), 10);
  EXPECT_EQ(longest_stall(stalls, 0, 1000), 100);
  EXPECT_EQ(longest_stall({}, 0, 1000), 0);
}

// The process is stopped, all its threads with it, as the hypervisor stops a core.
TEST(StallWatch, SeesThatItsProcessStoodStill) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    StallWatch watch;
    if (!watch.works()) _exit(2);
    std::this_thread::sleep_for(milliseconds(20));
    const std::int64_t begin = now_ns();
    if (write(ready[1], "r", 1) != 1) _exit(3);
    // Asleep until long after the stop.
    std::this_thread::sleep_for(milliseconds(400));
    _exit(watch.longest(begin, now_ns()) > 90'000'000 ? 0 : 1);
  }
  close(ready[1]);
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  close(ready[0]);
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  std::this_thread::sleep_for(milliseconds(100));
  ASSERT_EQ(kill(child, SIGCONT), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "threads may not have SCHED_FIFO here (root may)";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace clustar::bench::lossy
