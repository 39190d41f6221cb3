// A program in a process of its own, which receives, and may be stopped or killed.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <vector>

#include "tests/libfabric_provider/program.h"

namespace clustar::libfabric_shim::provider {

// Returns when no thread of the child runs any more. Before, one that was not told yet may still send.
inline void stop_child(pid_t child) {
  int status = 0;
  EXPECT_EQ(kill(child, SIGSTOP), 0);
  EXPECT_EQ(waitpid(child, &status, WUNTRACED), child);
  EXPECT_TRUE(WIFSTOPPED(status)) << status;
}

// Receives whatever comes, each by a receive that is posted, and writes how long it was into its pipe.
class Receiver {
 public:
  Receiver() {
    if (pipe(pipe_) != 0 || (process_ = fork()) < 0) std::abort();
    if (process_ == 0) receive();
    EXPECT_EQ(read(pipe_[0], &address_, sizeof address_), static_cast<ssize_t>(sizeof address_));
  }
  ~Receiver() {
    end();
    close(pipe_[0]);
    close(pipe_[1]);
  }
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  const sockaddr_in& address() const { return address_; }
  std::size_t next_length() {
    std::size_t length = 0;
    EXPECT_EQ(read(pipe_[0], &length, sizeof length), static_cast<ssize_t>(sizeof length));
    return length;
  }
  // It lives, and does nothing more until it is told to.
  void stop() const { stop_child(process_); }
  void go_on() const { kill(process_, SIGCONT); }
  void end() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  [[noreturn]] void receive() {
    alarm(60);
    Program program(false);
    const sockaddr_in own = program.address();
    std::vector<char> room(1 << 20);
    for (int i = 0; i < 8; ++i) {
      fi_trecv(program.endpoint(), room.data(), room.size(), nullptr, FI_ADDR_UNSPEC, kTag, 0, room.data());
    }
    bool told = write(pipe_[1], &own, sizeof own) == static_cast<ssize_t>(sizeof own);
    while (told) {
      fi_cq_tagged_entry entry{};
      if (fi_cq_read(program.receives(), &entry, 1) != 1) continue;
      told = write(pipe_[1], &entry.len, sizeof entry.len) == static_cast<ssize_t>(sizeof entry.len);
    }
    _exit(1);
  }

  int pipe_[2]{};
  pid_t process_ = 0;
  sockaddr_in address_{};
};

}  // namespace clustar::libfabric_shim::provider
