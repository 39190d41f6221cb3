// A peer process that is killed: its kernel drops the queue pair, and nobody answers any more.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/rdma/two_ends.h"
#include "transport/base/file_descriptor.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;

// Connects a queue pair on rxe_b to what comes by `in`, and waits to be killed.
[[noreturn]] void be_the_peer(int in, int out, const EndOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
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

// The peer's process and the pipes to it; neither outlives a failed assertion.
struct PeerProcess {
  explicit PeerProcess(const EndOptions& options) {
    int there[2];
    int back[2];
    if (pipe(there) != 0) throw std::runtime_error("pipe");
    const FileDescriptor read_end(there[0]);
    to = FileDescriptor(there[1]);
    if (pipe(back) != 0) throw std::runtime_error("pipe");
    from = FileDescriptor(back[0]);
    // Closed here, so that a peer that failed ends our reads.
    const FileDescriptor write_end(back[1]);
    child = fork();
    if (child < 0) throw std::runtime_error("fork");
    if (child == 0) be_the_peer(read_end.fd(), write_end.fd(), options);
  }
  ~PeerProcess() { end(); }
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;
  // Returns when the kernel has taken back what it had.
  void end() {
    if (child <= 0) return;
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    child = -1;
  }

  FileDescriptor to;
  FileDescriptor from;
  pid_t child = -1;
};

class DeadPeer : public TwoEnds {};

TEST_F(DeadPeer, IsAnErrorThatNamesItInBoundedTime) {
  const EndOptions options{.retry = {.timeout = 14, .retry_cnt = 2, .rnr_retry = 7}};
  PeerProcess process(options);
  End end("rxe_a", options);
  const Contact mine = end.contact();
  Contact peer{};
  char ready = 0;
  ASSERT_EQ(read(process.from.fd(), &peer, sizeof peer), static_cast<ssize_t>(sizeof peer));
  ASSERT_EQ(write(process.to.fd(), &mine, sizeof mine), static_cast<ssize_t>(sizeof mine));
  ASSERT_EQ(read(process.from.fd(), &ready, 1), 1);
  end.connect(peer);
  end.post(end.request(IBV_WR_RDMA_WRITE, 0, 1000));
  end.success();

  process.end();
  const auto start = std::chrono::steady_clock::now();
  end.post(end.request(IBV_WR_RDMA_WRITE, 0, 1000));
  const ibv_wc failed = end.completion();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR) << ibv_wc_status_str(failed.status);
  EXPECT_THAT(end.pair->explain(failed).message,
              ::testing::AllOf(::testing::HasSubstr("10.9.0.2 queue pair " + std::to_string(peer.queue_pair)),
                               ::testing::HasSubstr("its process lives")));
}

}  // namespace
}  // namespace clustar::tests
