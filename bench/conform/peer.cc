#include "bench/conform/peer.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "bench/conform/runner.h"

namespace clustar::bench::conform {

bool Channel::readable() const {
  pollfd watched{fd_, POLLIN, 0};
  return poll(&watched, 1, 0) > 0;
}

void Channel::put_bytes(const void* data, std::size_t size) {
  if (send(fd_, data, size, MSG_NOSIGNAL) == static_cast<ssize_t>(size)) return;
  fail_check(describe_peer_ != nullptr ? (*describe_peer_)() : "the other process of the check is gone");
}

void Channel::get_bytes(void* data, std::size_t size, milliseconds limit) {
  pollfd watched{fd_, POLLIN, 0};
  const int ready = poll(&watched, 1, static_cast<int>(limit.count()));
  if (ready == 0) {
    fail_check(
        fmt::format("the peer process did not get on within {:.0f} s", static_cast<double>(limit.count()) / 1e3));
  }
  if (ready > 0 && recv(fd_, data, size, MSG_WAITALL) == static_cast<ssize_t>(size)) return;
  fail_check(describe_peer_ != nullptr ? (*describe_peer_)() : "the other process of the check is gone");
}

Peer::Peer(const std::function<void(Channel&)>& role) : describe_([this] { return describe(); }) {
  std::array<int, 2> ends{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    fail_check(fmt::format("cannot make a socket pair: {}", std::strerror(errno)));
  }
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) fail_check(fmt::format("cannot fork a peer: {}", std::strerror(errno)));
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    enter_peer();
    Channel channel(ends[1]);
    role(channel);
    _exit(0);
  }
  close(ends[1]);
  channel_ = Channel(ends[0]);
  channel_.describe_peer_ = &describe_;
}

Peer::~Peer() {
  kill_now();
  close(channel_.fd_);
}

bool Peer::collect(bool block) {
  while (!gone_) {
    const pid_t result = waitpid(pid_, &status_, block ? 0 : WNOHANG);
    if (result < 0 && errno == EINTR) continue;
    if (result == 0) return false;
    gone_ = true;
  }
  return true;
}

std::string Peer::describe() {
  // Its end of the channel closes a moment before the process can be waited for.
  for (int tries = 0; tries < 200 && !collect(false); ++tries) usleep(5000);
  if (!gone_) return "the peer process closed its channel but runs on";
  return WIFSIGNALED(status_) ? fmt::format("the peer process crashed with {}", signal_name(WTERMSIG(status_)))
                              : fmt::format("the peer process exited with status {}", WEXITSTATUS(status_));
}

void Peer::kill_now() {
  if (gone_) return;
  kill(pid_, SIGKILL);
  collect(true);
}

void Peer::stop() {
  kill(pid_, SIGSTOP);
  int status = 0;
  waitpid(pid_, &status, WUNTRACED);
  if (!WIFSTOPPED(status)) {
    status_ = status;
    gone_ = true;
    fail_check(describe());
  }
}

void Peer::resume() { kill(pid_, SIGCONT); }

void Peer::finish(milliseconds limit) {
  const auto begin = Clock::now();
  while (!collect(false)) {
    if (Clock::now() - begin > limit) {
      fail_check(fmt::format("the peer process did not end within {:.0f} s", static_cast<double>(limit.count()) / 1e3));
    }
    usleep(1000);
  }
  if (!WIFEXITED(status_) || WEXITSTATUS(status_) != 0) fail_check(describe());
}

}  // namespace clustar::bench::conform
