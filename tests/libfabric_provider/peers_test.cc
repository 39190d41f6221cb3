// Peers that are stopped or killed, in processes of their own: what a program hears of them, and when. Over tcp and
// mlt.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tests/libfabric_provider/program.h"
#include "tests/libfabric_provider/receiver.h"

namespace clustar::libfabric_shim::provider {
namespace {

using Now = std::chrono::steady_clock;
using std::chrono::seconds;

constexpr std::size_t kShort = 64;
constexpr std::size_t kLong = 1 << 20;  // goes by rendezvous

class Peers : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { setenv("FI_CLUSTAR_TRANSPORT", GetParam(), 1); }
  void TearDown() override {
    for (const char* const name : {"CLUSTAR_STALL_TIMEOUT", "FI_CLUSTAR_CONNECT_TIMEOUT", "FI_CLUSTAR_CLOSE_TIMEOUT"}) {
      unsetenv(name);
    }
  }
  void send(Program& from, fi_addr_t to, std::size_t bytes) {
    ASSERT_EQ(fi_tsend(from.endpoint(), bytes_.data(), bytes, nullptr, to, kTag, &bytes_), 0);
  }
  // A short message has come there, so there is a connection.
  void meet(Program& program, Receiver& receiver, fi_addr_t* peer) {
    *peer = program.know(receiver.address());
    send(program, *peer, kShort);
    ASSERT_EQ(program.listen(1).completions, 1);
    ASSERT_EQ(receiver.next_length(), kShort);
  }
  static double since(Now::time_point start) { return std::chrono::duration<double>(Now::now() - start).count(); }

  std::vector<char> bytes_ = std::vector<char>(kLong, 5);
};

// Until a process sends a long message to `to`, whose program has not posted a receive for it.
class Sender {
 public:
  explicit Sender(const sockaddr_in& to) {
    if ((process_ = fork()) < 0) std::abort();
    if (process_ > 0) return;
    alarm(60);
    Program program(false);
    std::vector<char> bytes(kLong, 3);
    const fi_addr_t peer = program.know(to);
    fi_tsend(program.endpoint(), bytes.data(), bytes.size(), nullptr, peer, kTag, &bytes);
    for (;;) program.listen(1, seconds(1));
  }
  ~Sender() {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  void stop() const { stop_child(process_); }
  void end() const { kill(process_, SIGKILL); }

 private:
  pid_t process_ = 0;
};

// The message is there, and waits for its receive.
bool wait_for_offer(Program& program) {
  for (const auto end = Now::now() + seconds(20); Now::now() < end;) {
    fi_msg_tagged look{};
    look.addr = FI_ADDR_UNSPEC;
    look.tag = kTag;
    if (fi_trecvmsg(program.endpoint(), &look, FI_PEEK | FI_COMPLETION) != 0) return false;
    fi_cq_tagged_entry entry{};
    const ssize_t read = fi_cq_read(program.receives(), &entry, 1);
    if (read == 1) return entry.len == kLong;
    fi_cq_err_entry error{};
    if (read == -FI_EAVAIL) fi_cq_readerr(program.receives(), &error, 0);
  }
  return false;
}

constexpr int kEndedWell = -1;

// The error of the receive; 0: it did not end within `patience`.
int error_of_receive(Program& program, seconds patience) {
  for (const auto end = Now::now() + patience; Now::now() < end;) {
    fi_cq_tagged_entry entry{};
    const ssize_t read = fi_cq_read(program.receives(), &entry, 1);
    if (read == 1) return kEndedWell;
    fi_cq_err_entry error{};
    if (read == -FI_EAVAIL && fi_cq_readerr(program.receives(), &error, 0) == 1) return error.err;
  }
  return 0;
}

TEST_P(Peers, AKilledReceiverIsAnErrorWithinThreeSeconds) {
  Receiver receiver;
  Program program(false);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  meet(program, receiver, &peer);
  receiver.stop();  // so that it does not take what is sent before it dies
  send(program, peer, kLong);
  EXPECT_EQ(program.listen(2, seconds(1)).completions, 0);
  receiver.end();
  const auto start = Now::now();
  const Heard heard = program.listen(2, seconds(10));
  EXPECT_EQ(heard.errors, std::vector<int>{FI_ECONNABORTED});
  EXPECT_LT(since(start), 3 + 0.3);
}

TEST_P(Peers, AKilledSenderIsAnErrorOfWhatItHadOffered) {
  Program program(false);
  const Sender sender(program.address());
  ASSERT_TRUE(wait_for_offer(program));
  sender.stop();
  ASSERT_EQ(fi_trecv(program.endpoint(), bytes_.data(), kLong, nullptr, FI_ADDR_UNSPEC, kTag, 0, &bytes_), 0);
  EXPECT_EQ(error_of_receive(program, seconds(1)), 0);
  sender.end();
  const auto start = Now::now();
  EXPECT_EQ(error_of_receive(program, seconds(10)), FI_ECONNABORTED);
  EXPECT_LT(since(start), 3);
}

TEST_P(Peers, AStoppedReceiverIsWaitedFor) {
  Receiver receiver;
  Program program(false);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  meet(program, receiver, &peer);
  receiver.stop();
  send(program, peer, kLong);
  const Heard silent = program.listen(2, seconds(3));
  EXPECT_EQ(silent.completions, 0);
  EXPECT_TRUE(silent.errors.empty());
  receiver.go_on();
  EXPECT_EQ(program.listen(2).completions, 1);
  EXPECT_EQ(receiver.next_length(), kLong);
}

TEST_P(Peers, AStoppedReceiverIsAnErrorAfterTheStallTimeout) {
  setenv("CLUSTAR_STALL_TIMEOUT", "2", 1);
  Receiver receiver;
  Program program(false);
  fi_addr_t peer = FI_ADDR_UNSPEC;
  meet(program, receiver, &peer);
  // Nothing is on its way, so its silence is none.
  EXPECT_TRUE(program.listen(2, seconds(4)).errors.empty());
  receiver.stop();
  const auto start = Now::now();
  send(program, peer, kLong);
  EXPECT_EQ(program.listen(2).errors, std::vector<int>{FI_ETIMEDOUT});
  EXPECT_GT(since(start), 1.9);
  EXPECT_LT(since(start), 5);
}

TEST_P(Peers, AStoppedSenderIsAnErrorAfterTheStallTimeout) {
  setenv("CLUSTAR_STALL_TIMEOUT", "2", 1);
  Program program(false);
  const Sender sender(program.address());
  ASSERT_TRUE(wait_for_offer(program));
  sender.stop();
  ASSERT_EQ(fi_trecv(program.endpoint(), bytes_.data(), kLong, nullptr, FI_ADDR_UNSPEC, kTag, 0, &bytes_), 0);
  const auto start = Now::now();
  EXPECT_EQ(error_of_receive(program, seconds(10)), FI_ETIMEDOUT);
  EXPECT_GT(since(start), 1.9);
  EXPECT_LT(since(start), 5);
}

TEST_P(Peers, AStoppedPeerThatNobodySpokeToIsAnErrorAfterTheConnectTimeout) {
  setenv("FI_CLUSTAR_CONNECT_TIMEOUT", "2", 1);
  Receiver receiver;
  receiver.stop();
  Program program(false);
  const auto start = Now::now();
  send(program, program.know(receiver.address()), kShort);
  EXPECT_EQ(program.listen(1).errors, std::vector<int>{FI_ETIMEDOUT});
  EXPECT_LT(since(start), 5);
}

TEST_P(Peers, ClosingDoesNotWaitLongForAStoppedPeer) {
  setenv("FI_CLUSTAR_CLOSE_TIMEOUT", "1", 1);
  Receiver receiver;
  receiver.stop();  // so that there is no connection on which it could leave
  auto program = std::make_unique<Program>(false);
  const fi_addr_t peer = program->know(receiver.address());
  ASSERT_EQ(fi_tinject(program->endpoint(), bytes_.data(), kShort, peer, kTag), 0);
  const auto start = Now::now();
  program.reset();
  EXPECT_GT(since(start), 0.9) << "nothing was waited for, so this shows nothing";
  EXPECT_LT(since(start), 5);
}

INSTANTIATE_TEST_SUITE_P(Over, Peers, ::testing::Values("tcp", "mlt"), [](const auto& over) { return over.param; });

}  // namespace
}  // namespace clustar::libfabric_shim::provider
