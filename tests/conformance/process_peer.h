// A peer as a process of its own, to be stopped and killed.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/conformance/transport_under_test.h"
#include "tests/sanitized.h"
#include "transport/base/file_descriptor.h"

namespace clustar::transport::conformance {

// Forked before this process has threads, so before it makes a transport. Talks over a pair of pipes.
class Peer {
 public:
  explicit Peer(const std::function<void(Peer&)>& body) {
    int up[2];
    int down[2];
    if (pipe2(up, O_CLOEXEC) != 0 || pipe2(down, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ < 0) std::abort();
    in_ = FileDescriptor(pid_ == 0 ? down[0] : up[0]);
    out_ = FileDescriptor(pid_ == 0 ? up[1] : down[1]);
    ::close(pid_ == 0 ? down[1] : up[1]);
    ::close(pid_ == 0 ? up[0] : down[0]);
    if (pid_ != 0) return;
    alarm(tests::kSanitized ? 400 : 110);  // whatever goes wrong, nobody stays
    body(*this);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ~Peer() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    wait();
  }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  template <class T>
  void say(const T& value) {
    EXPECT_EQ(write(out_.fd(), &value, sizeof value), static_cast<ssize_t>(sizeof value));
  }
  template <class T>
  T hear() {
    T value{};
    auto* to = reinterpret_cast<char*>(&value);
    for (std::size_t have = 0; have < sizeof value;) {
      pollfd readable{in_.fd(), POLLIN, 0};
      const ssize_t got = ::poll(&readable, 1, tests::kSanitized ? 200'000 : 60'000) == 1
                              ? read(in_.fd(), to + have, sizeof value - have)
                              : 0;
      if (got <= 0) {
        ADD_FAILURE() << "the other process says nothing";
        break;
      }
      have += static_cast<std::size_t>(got);
    }
    return value;
  }
  void signal(int number) const { kill(pid_, number); }
  bool stopped() const {
    int status = 0;
    return waitpid(pid_, &status, WUNTRACED | WNOHANG) == pid_ && WIFSTOPPED(status);
  }
  // Its exit status; -1 when it was killed.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  FileDescriptor in_;
  FileDescriptor out_;
};

// What a SendBuffer with this seed holds.
inline std::vector<std::byte> pattern(unsigned seed, std::size_t size = 1 << 20) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A connection to the other process: it is told the handle, or tells it.
inline std::unique_ptr<RecvChannel> accept(Transport& transport, Peer& peer, int device = 0) {
  const auto listener = std::move(transport.listen(device, {}).value());
  peer.say(listener->handle());
  std::unique_ptr<RecvChannel> recv;
  EXPECT_TRUE(poll_until([&] { return (recv = std::move(listener->poll_accept().value())) != nullptr; }));
  return recv;
}
inline std::unique_ptr<SendChannel> dial(Transport& transport, Peer& peer, int device = 0) {
  const auto pending = std::move(transport.connect(device, peer.hear<Handle>(), {}).value());
  std::unique_ptr<SendChannel> send;
  EXPECT_TRUE(poll_until([&] { return (send = std::move(pending->poll().value())) != nullptr; }));
  return send;
}

}  // namespace clustar::transport::conformance
