#include "tests/rdma/rc_peer.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tests/rdma/cable.h"

namespace clustar::tests {
namespace {

[[noreturn]] void be_the_peer(int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  auto cable = Cable::make([](transport::verbs::Settings&) {}, Log());
  if (!cable) _exit(2);
  auto listener = (*cable)->listen(0, {});
  if (!listener) _exit(3);
  const transport::Handle handle = (*listener)->handle();
  if (write(out, handle.data(), handle.size()) != static_cast<ssize_t>(handle.size())) _exit(4);
  std::unique_ptr<transport::RecvChannel> channel;
  while (!channel) {
    auto polled = (*listener)->poll_accept();
    if (!polled) _exit(5);
    channel = std::move(*polled);
  }
  std::vector<std::byte> memory(1 << 20);
  const auto mr = channel->reg_mr(gdr::MemoryRef::host(memory.data(), memory.size()));
  if (!mr) _exit(6);
  const std::vector<transport::RecvPart> parts{{mr->get(), 0, memory.size(), 1}};
  const auto request = channel->recv(parts);
  if (!request || *request == nullptr) _exit(7);
  const char ready = 1;
  if (write(out, &ready, 1) != 1) _exit(8);
  for (;;) pause();
}

}  // namespace

RcPeer::RcPeer() {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe");
  from_ = FileDescriptor(ends[0]);
  FileDescriptor write_end(ends[1]);
  child_ = fork();
  if (child_ < 0) throw std::runtime_error("fork");
  if (child_ == 0) be_the_peer(write_end.fd());
  std::size_t have = 0;
  // The child has the only other copy of the writing end after this: its death ends the reading.
  write_end.close();
  while (have < handle_.size()) {
    const ssize_t got = read(from_.fd(), handle_.data() + have, handle_.size() - have);
    if (got <= 0) throw std::runtime_error("the peer could not listen");
    have += static_cast<std::size_t>(got);
  }
}

void RcPeer::await_ready() {
  char ready = 0;
  if (read(from_.fd(), &ready, 1) != 1) throw std::runtime_error("the peer ended before it was ready");
}

void RcPeer::kill() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

}  // namespace clustar::tests
