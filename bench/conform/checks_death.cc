// death.*: a peer that is killed, or stopped and continued.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "bench/conform/peer.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kBytes = 256 * 1024;
constexpr std::size_t kWindow = 4;

// An endless stream of numbered messages over one connection, kWindow at a time. Message i carries the sequence of
// seed + i, so that a message reported done that never came is seen.
class Stream {
 public:
  Stream(Session& session, void* comm, bool is_send, std::uint64_t seed)
      : session_(session), comm_(comm), is_send_(is_send), seed_(seed), region_(session, comm, kWindow * kBytes) {
    for (std::size_t i = 0; i < kWindow; ++i) start(i);
  }

  // One step of the open transfers; the first result that is not ncclSuccess.
  int advance() {
    bool older_open = false;
    for (std::size_t i = 0; i < kWindow; ++i) {
      Transfer& transfer = window_[(finished_ + i) % kWindow];
      if (transfer.request != nullptr && older_open) continue;  // NCCL tests the oldest only
      const int result = session_.advance(transfer);
      if (result != nccl_abi::kSuccess) return result;
      if (transfer.request == nullptr) break;
      older_open = older_open || !transfer.done;
    }
    while (window_[finished_ % kWindow].done) {
      const std::size_t slot = finished_ % kWindow;
      if (!is_send_) check_received(window_[slot]);
      ++finished_;
      start(slot, finished_ + kWindow - 1);
    }
    return nccl_abi::kSuccess;
  }
  std::size_t finished() const { return finished_; }

 private:
  void start(std::size_t slot) { start(slot, slot); }
  void start(std::size_t slot, std::size_t number) {
    Transfer transfer;
    transfer.comm = comm_;
    transfer.is_send = is_send_;
    transfer.parts = {{&region_, slot * kBytes, kBytes, 0}};
    if (is_send_)
      region_.fill(seed_ + number, slot * kBytes, kBytes);
    else
      std::fill_n(region_.data() + slot * kBytes, kBytes, std::byte{0xee});
    window_[slot] = transfer;
  }
  void check_received(const Transfer& transfer) {
    const std::string what = fmt::format("message {} (reported done)", finished_);
    if (transfer.sizes[0] != static_cast<int>(kBytes)) {
      fail_check(fmt::format("{} has size {} instead of {}", what, transfer.sizes[0], kBytes));
    }
    region_.expect(seed_ + finished_, finished_ % kWindow * kBytes, kBytes, what);
  }

  Session& session_;
  void* comm_;
  bool is_send_;
  std::uint64_t seed_;
  Region region_;
  std::array<Transfer, kWindow> window_;
  std::size_t finished_ = 0;
};

// Runs the stream until `count` more messages are through.
void run_messages(Session& session, Stream& stream, std::size_t count, const char* what) {
  const std::size_t goal = stream.finished() + count;
  auto last = Clock::now();
  for (std::size_t seen = stream.finished(); seen < goal; sched_yield()) {
    session.must(stream.advance(), what);
    if (stream.finished() != seen) {
      seen = stream.finished();
      last = Clock::now();
    }
    if (Clock::now() - last > session.env().stuck_bound) fail_check(fmt::format("{} is stuck", what));
  }
}

// The peer is dead: runs the stream until it says so.
std::string await_death(Session& session, Stream& stream) {
  const auto begin = Clock::now();
  const std::size_t before = stream.finished();
  while (Clock::now() - begin < session.env().death_bound) {
    const int result = stream.advance();
    if (result != nccl_abi::kSuccess) {
      return fmt::format("{} after {:.2f} s", result_name(result), seconds_since(begin));
    }
    sched_yield();
  }
  fail_check(fmt::format("no error within {:.1f} s after the peer was killed; {} more messages were reported done",
                         seconds_since(begin), stream.finished() - before));
}

// A peer that sends an endless stream to the handle that it is given.
void sending_role(const Env& env, Channel& channel) {
  Session session(env);
  auto handle = channel.get<proxy::Handle>(env.stuck_bound);
  Stream stream(session, session.wait_connect(&handle), true, 1);
  while (stream.advance() == nccl_abi::kSuccess) sched_yield();
  pause();
}

// A peer that listens, gives its handle and receives an endless stream.
void receiving_role(const Env& env, Channel& channel) {
  Session session(env);
  Listening listening = session.listen();
  channel.put(listening.handle);
  Stream stream(session, session.wait_accept(listening.comm), false, 1);
  while (stream.advance() == nccl_abi::kSuccess) sched_yield();
  pause();
}

std::string check_receiver_survives(const Env& env) {
  Peer peer([&](Channel& channel) { sending_role(env, channel); });
  Session session(env);
  Listening listening = session.listen();
  peer.channel().put(listening.handle);
  Link link(&session);
  note_step("waiting for the sending peer");
  link.recv_comm = session.wait_accept(listening.comm);
  session.close_listen(listening.comm);
  std::string seen;
  {
    Stream stream(session, link.recv_comm, false, 1);
    note_step("receiving from the peer");
    run_messages(session, stream, 16, "receiving");
    note_step("receiving after the sending peer was killed");
    peer.kill_now();
    seen = await_death(session, stream);
  }
  link.close_recv();
  return seen;
}

std::string check_sender_survives(const Env& env) {
  Peer peer([&](Channel& channel) { receiving_role(env, channel); });
  Session session(env);
  auto handle = peer.channel().get<proxy::Handle>(env.stuck_bound);
  Link link(&session);
  note_step("connecting to the receiving peer");
  link.send_comm = session.wait_connect(&handle);
  std::string seen;
  {
    Stream stream(session, link.send_comm, true, 1);
    note_step("sending to the peer");
    run_messages(session, stream, 16, "sending");
    note_step("sending after the receiving peer was killed");
    peer.kill_now();
    seen = await_death(session, stream);
  }
  link.close_send();
  return seen;
}

std::string check_idle_receiver(const Env& env) {
  Peer peer([&](Channel& channel) {
    Session session(env);
    auto handle = channel.get<proxy::Handle>(env.stuck_bound);
    session.wait_connect(&handle);
    channel.put('c');
    pause();
  });
  Session session(env);
  Listening listening = session.listen();
  peer.channel().put(listening.handle);
  Link link(&session);
  note_step("waiting for the peer");
  link.recv_comm = session.wait_accept(listening.comm);
  session.close_listen(listening.comm);
  peer.channel().get<char>(env.stuck_bound);
  Stream stream(session, link.recv_comm, false, 1);
  for (int i = 0; i < 100; ++i) session.must(stream.advance(), "waiting for a message");
  note_step("waiting for a message from a peer that was killed before it sent any");
  peer.kill_now();
  return await_death(session, stream);
}

std::string check_others_unharmed(const Env& env) {
  Peer peer([&](Channel& channel) { sending_role(env, channel); });
  Session session(env);
  Link other = session.link();
  exchange(session, other, 65536, 1);
  Listening listening = session.listen();
  peer.channel().put(listening.handle);
  Link link(&session);
  link.recv_comm = session.wait_accept(listening.comm);
  session.close_listen(listening.comm);
  std::string seen;
  {
    Stream stream(session, link.recv_comm, false, 1);
    run_messages(session, stream, 8, "receiving");
    peer.kill_now();
    note_step("waiting for the error on the killed peer's connection");
    seen = await_death(session, stream);
  }
  note_step("using another connection after that");
  exchange(session, other, 1 << 20, 2);
  Link fresh = session.link();
  exchange(session, fresh, 1 << 20, 3);
  return fmt::format("{}; an older and a new connection work on", seen);
}

std::string check_dead_before_accept(const Env& env) {
  Peer peer([&](Channel& channel) {
    Session session(env);
    auto handle = channel.get<proxy::Handle>(env.stuck_bound);
    void* comm = nullptr;
    for (int i = 0; i < 50 && comm == nullptr; ++i) {
      session.must(session.try_connect(&handle, &comm), "connect");
      usleep(1000);
    }
    channel.put('c');
    pause();
  });
  Session session(env);
  Listening listening = session.listen();
  peer.channel().put(listening.handle);
  peer.channel().get<char>(env.stuck_bound);
  peer.kill_now();
  note_step("accepting a peer that connected and was killed");
  Link link(&session);
  for (const auto begin = Clock::now(); link.recv_comm == nullptr && Clock::now() - begin < milliseconds(300);) {
    const int result = session.try_accept(listening.comm, &link.recv_comm);
    if (result != nccl_abi::kSuccess) {
      session.close_listen(listening.comm);
      return fmt::format("accept gives {}", result_name(result));
    }
    usleep(1000);
  }
  if (link.recv_comm == nullptr) {
    note_step("the real peer connects after the killed one");
    Link real = session.link_to(listening);
    session.close_listen(listening.comm);
    exchange(session, real, 4096, 1);
    return "accept gives a NULL comm; the next peer gets in";
  }
  session.close_listen(listening.comm);
  Stream stream(session, link.recv_comm, false, 1);
  return "accept gives a comm; " + await_death(session, stream);
}

std::string check_connect_to_dead(const Env& env) {
  Peer peer([&](Channel& channel) {
    Session session(env);
    channel.put(session.listen().handle);
    pause();
  });
  auto handle = peer.channel().get<proxy::Handle>(env.stuck_bound);
  peer.kill_now();
  Session session(env);
  note_step("connecting to a process that was killed");
  for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(500);) {
    void* comm = nullptr;
    const int result = session.try_connect(&handle, &comm);
    if (result != nccl_abi::kSuccess) return fmt::format("connect gives {}", result_name(result));
    if (comm != nullptr) fail_check("connect gave a comm although the listening process is dead");
    usleep(1000);
  }
  return "connect keeps giving a NULL comm";
}

// Sends to the check and receives from it, until told to stop.
void frozen_role(const Env& env, Channel& channel) {
  // The stop may come within a call, whose length then includes it.
  Env stopped = env;
  stopped.call_bound += env.freeze;
  Session session(stopped);
  Listening listening = session.listen();
  channel.put(listening.handle);
  auto handle = channel.get<proxy::Handle>(env.stuck_bound);
  void* send_comm = session.wait_connect(&handle);
  void* recv_comm = session.wait_accept(listening.comm);
  Stream out(session, send_comm, true, 1000);
  Stream in(session, recv_comm, false, 2000);
  while (!channel.readable()) {
    session.must(out.advance(), "sending");
    session.must(in.advance(), "receiving");
    sched_yield();
  }
  channel.put('e');
  pause();
}

std::string check_frozen(const Env& env) {
  Peer peer([&](Channel& channel) { frozen_role(env, channel); });
  Session session(env);
  Listening listening = session.listen();
  auto handle = peer.channel().get<proxy::Handle>(env.stuck_bound);
  peer.channel().put(listening.handle);
  Link link(&session);
  note_step("connecting both ways");
  link.recv_comm = session.wait_accept(listening.comm);
  link.send_comm = session.wait_connect(&handle);
  session.close_listen(listening.comm);
  Stream in(session, link.recv_comm, false, 1000);
  Stream out(session, link.send_comm, true, 2000);
  const auto run = [&](std::size_t count) {
    const std::size_t goal_in = in.finished() + count, goal_out = out.finished() + count;
    for (const auto begin = Clock::now(); in.finished() < goal_in || out.finished() < goal_out; sched_yield()) {
      session.must(in.advance(), "receiving");
      session.must(out.advance(), "sending");
      if (Clock::now() - begin > env.stuck_bound) fail_check("no progress with a peer that runs");
    }
  };
  run(16);
  note_step("the peer is stopped");
  peer.stop();
  for (const auto begin = Clock::now(); Clock::now() - begin < env.freeze; usleep(200)) {
    session.must(in.advance(), "receiving from a stopped peer");
    session.must(out.advance(), "sending to a stopped peer");
  }
  note_step("the peer was continued");
  peer.resume();
  run(64);
  peer.channel().put('e');
  peer.channel().get<char>(env.stuck_bound);
  return fmt::format("stopped for {:.0f} s, then {} messages in and {} out, all intact",
                     static_cast<double>(env.freeze.count()) / 1e3, in.finished(), out.finished());
}

constexpr Check kChecks[] = {
    {"death.receiver_survives",
     "The sender's process is killed: test of the receiver becomes an error in bounded time.",
     "transport/net.cc:1508; proxy.cc:754", false, check_receiver_survives, false, true},
    {"death.sender_survives",
     "The receiver's process is killed: isend or test of the sender becomes an error in "
     "bounded time.",
     "transport/net.cc:1322, 1339; proxy.cc:754", false, check_sender_survives, false, true},
    {"death.idle_receiver", "A receive that waits for a killed peer's first message becomes an error too.",
     "transport/net.cc:1508; proxy.cc:754", false, check_idle_receiver, false, true},
    {"death.others_unharmed", "One peer's death is an error on its own connections only.", "proxy.cc:754", false,
     check_others_unharmed, false, true},
    {"death.before_accept", "A peer that dies between connect and accept is an error or no peer, never a hang.",
     "transport/net.cc:1019", false, check_dead_before_accept, false, true},
    {"death.connect_to_dead", "Connecting to a process that died is an error or a NULL comm, at once.",
     "transport/net.cc:851", false, check_connect_to_dead},
    {"death.frozen_peer", "A peer that is stopped (debugger, slow loader) and continued loses nothing and is no error.",
     "transport/net.cc:1339, 1508", false, check_frozen, true, false},
};

}  // namespace

std::span<const Check> death_checks() { return kChecks; }

}  // namespace clustar::bench::conform
