// A peer process that is killed: its kernel drops the queue pair, and nobody answers any more.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rdma/two_ends.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;

// Connects a queue pair on rxe_b to what comes by `in`, and waits to be killed.
[[noreturn]] void be_the_peer(int in, int out, const EndOptions& options) {
  try {
    End end("rxe_b", options);
    const Contact mine = end.contact();
    Contact peer{};
    if (write(out, &mine, sizeof mine) != sizeof mine || read(in, &peer, sizeof peer) != sizeof peer) _exit(2);
    end.connect(peer);
    const char ready = 1;
    if (write(out, &ready, 1) != 1) _exit(3);
    for (;;) pause();
  } catch (...) {
    _exit(4);
  }
}

class DeadPeer : public TwoEnds {};

TEST_F(DeadPeer, IsAnErrorThatNamesItInBoundedTime) {
  const EndOptions options{.retry = {.timeout = 14, .retry_cnt = 2, .rnr_retry = 7}};
  int to_peer[2];
  int from_peer[2];
  ASSERT_EQ(pipe(to_peer), 0);
  ASSERT_EQ(pipe(from_peer), 0);
  const pid_t child = fork();
  if (child == 0) be_the_peer(to_peer[0], from_peer[1], options);
  // A peer that failed ends the reads below.
  close(from_peer[1]);
  close(to_peer[0]);

  End end("rxe_a", options);
  const Contact mine = end.contact();
  Contact peer{};
  char ready = 0;
  ASSERT_EQ(read(from_peer[0], &peer, sizeof peer), static_cast<ssize_t>(sizeof peer));
  ASSERT_EQ(write(to_peer[1], &mine, sizeof mine), static_cast<ssize_t>(sizeof mine));
  ASSERT_EQ(read(from_peer[0], &ready, 1), 1);
  end.connect(peer);
  end.post(end.request(IBV_WR_RDMA_WRITE, 0, 1000));
  end.success();

  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const auto start = std::chrono::steady_clock::now();
  end.post(end.request(IBV_WR_RDMA_WRITE, 0, 1000));
  const ibv_wc failed = end.completion();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(failed.status);
  EXPECT_THAT(end.pair->explain(failed).message,
              ::testing::AllOf(::testing::HasSubstr("10.9.0.2 queue pair " + std::to_string(peer.queue_pair)),
                               ::testing::HasSubstr("its process lives")));
  close(to_peer[1]);
  close(from_peer[0]);
}

}  // namespace
}  // namespace clustar::tests
