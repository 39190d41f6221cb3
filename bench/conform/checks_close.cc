// close.*: every order of closing, and what is left behind.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <set>

#include "bench/conform/peer.h"
#include "bench/conform/process.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

// Posts up to `count` transfers and leaves them untested.
std::size_t post_and_leave(Session& session, std::vector<Transfer>& transfers, const char* call) {
  std::size_t posted = 0;
  for (Transfer& transfer : transfers) {
    session.must(session.advance(transfer), call);
    if (transfer.request == nullptr) break;
    ++posted;
  }
  return posted;
}

std::string check_inflight_send(const Env& env) {
  Session session(env);
  std::size_t posted = 0;
  for (int round = 0; round < 4; ++round) {
    Link link = session.link();
    {
      Region from(session, link.send_comm, 8 * kMiB);
      Region into(session, link.recv_comm, 8 * kMiB);
      std::vector<Transfer> recvs(1, link.recv(into, 0, kMiB)), sends(8, link.send(from, 0, kMiB));
      post_and_leave(session, recvs, "irecv");
      posted = post_and_leave(session, sends, "isend");
      note_step(fmt::format("closing with {} sends and a receive in flight, round {}", posted, round));
      // As on abort: registrations go first, then the connection, in either order of the two ends.
    }
    if (round % 2 == 0)
      link.close_send();
    else
      link.close_recv();
  }
  Link link = session.link();
  exchange(session, link, 4096, 1);
  return fmt::format("{} sends of 1 MiB in flight, either end first; new connections work", posted);
}

std::string check_inflight_recv(const Env& env) {
  Session session(env);
  std::size_t posted = 0;
  for (int round = 0; round < 4; ++round) {
    Link link = session.link();
    {
      Region into(session, link.recv_comm, 8 * kMiB);
      std::vector<Transfer> recvs(8, link.recv(into, 0, kMiB));
      posted = post_and_leave(session, recvs, "irecv");
      note_step(fmt::format("closing with {} receives in flight, round {}", posted, round));
    }
    if (round % 2 == 0)
      link.close_recv();
    else
      link.close_send();
  }
  Link link = session.link();
  exchange(session, link, 4096, 1);
  return fmt::format("{} receives in flight, either end first; new connections work", posted);
}

std::string check_receiver_first(const Env& env) {
  Session session(env);
  for (int round = 0; round < 8; ++round) {
    Link link = session.link();
    exchange(session, link, 65536, static_cast<std::uint64_t>(round) + 1);
    note_step("closing the receiver first, after all is done");
    link.close_recv();
    usleep(1000);
    link.close_send();
  }
  return "8 times";
}

constexpr std::size_t kLastMessages = 8, kLastBytes = 512 * 1024;

// Sends, waits for its own requests only, closes and exits.
void leaving_role(const Env& env, Channel& channel) {
  Session session(env);
  auto handle = channel.get<proxy::Handle>(env.stuck_bound);
  Link link(&session);
  link.send_comm = session.wait_connect(&handle);
  channel.get<char>(env.stuck_bound);
  {
    Region from(session, link.send_comm, kLastMessages * kLastBytes);
    std::vector<Transfer> sends;
    std::vector<Transfer*> all;
    for (std::size_t i = 0; i < kLastMessages; ++i) {
      from.fill(i + 1, i * kLastBytes, kLastBytes);
      sends.push_back(link.send(from, i * kLastBytes, kLastBytes));
    }
    for (Transfer& send : sends) all.push_back(&send);
    session.complete(all);
  }
  link.close_send();
  channel.put('d');
}

std::string check_sender_first(const Env& env) {
  Peer peer([&](Channel& channel) { leaving_role(env, channel); });
  Session session(env);
  Listening listening = session.listen();
  peer.channel().put(listening.handle);
  Link link(&session);
  note_step("waiting for the peer");
  link.recv_comm = session.wait_accept(listening.comm);
  session.close_listen(listening.comm);
  Region into(session, link.recv_comm, kLastMessages * kLastBytes);
  into.clear();
  std::vector<Transfer> recvs;
  std::vector<Transfer*> all;
  for (std::size_t i = 0; i < kLastMessages; ++i) recvs.push_back(link.recv(into, i * kLastBytes, kLastBytes));
  for (Transfer& recv : recvs) all.push_back(&recv);
  for (Transfer& recv : recvs) session.must(session.advance(recv), "irecv");
  peer.channel().put('g');
  note_step("the peer sends, sees all done, closes and exits; this side does not poll");
  bool polled = false;
  for (const auto begin = Clock::now(); !peer.channel().readable(); usleep(500)) {
    // A transport that needs the receiver to take part does so here; the peer must still see done and leave.
    if (Clock::now() - begin > milliseconds(500)) polled |= session.advance_all(all);
    if (Clock::now() - begin > env.stuck_bound) fail_check("the sends of a leaving peer are never done");
  }
  peer.channel().get<char>(env.stuck_bound);
  peer.finish(env.stuck_bound);
  note_step("receiving what the peer sent before it left");
  session.complete(all);
  for (std::size_t i = 0; i < kLastMessages; ++i) {
    into.expect(i + 1, i * kLastBytes, kLastBytes, fmt::format("message {} of a peer that left", i));
  }
  return fmt::format("{} messages of 512 KiB arrived after their sender had exited{}", kLastMessages,
                     polled ? " (its sends needed this side to poll)" : "");
}

std::string describe_new(const std::map<int, std::string>& before, const std::map<int, std::string>& after) {
  std::vector<std::string> fresh;
  for (const auto& [fd, target] : after) {
    if (before.count(fd) == 0 && fresh.size() < 4) fresh.push_back(fmt::format("{} -> {}", fd, target));
  }
  return fmt::format("{}", fmt::join(fresh, ", "));
}

std::string check_finalize_clean(const Env& env) {
  if (env.version < 11) skip_check("plugins up to v10 have no finalize");
  const auto before = open_descriptors();
  const int threads_before = thread_count();
  auto net = proxy::NetPlugin::open(env.plugin, env.version);
  if (!net) fail_check(net.error().message);
  {
    // The session unloads its own reference on the way out; the library stays, so that leftovers can be seen.
    Session session(env);
    std::vector<Link> links;
    for (int i = 0; i < 4; ++i) links.push_back(session.link());
    for (Link& link : links) exchange(session, link, kMiB, 1);
    Listening unused = session.listen();
    session.close_listen(unused.comm);
  }
  note_step("counting what is left after finalize");
  const auto begin = Clock::now();
  while (thread_count() > threads_before && Clock::now() - begin < milliseconds(200)) usleep(1000);
  const auto after = open_descriptors();
  if (thread_count() > threads_before) {
    fail_check(fmt::format("{} threads are left after finalize; dlclose would pull the code from under them",
                           thread_count() - threads_before));
  }
  if (after.size() > before.size()) {
    fail_check(fmt::format("{} descriptors are left after finalize: {}", after.size() - before.size(),
                           describe_new(before, after)));
  }
  return "no thread and no descriptor is left";
}

std::string check_no_leak(const Env& env) {
  constexpr int kWarmUp = 8, kCycles = 64;
  Session session(env);
  std::map<int, std::string> descriptors;
  std::size_t memory = 0;
  int threads = 0;
  note_step("opening, using and closing connections one after the other");
  for (int i = 0; i < kCycles; ++i) {
    Link link = session.link();
    exchange(session, link, 65536, static_cast<std::uint64_t>(i));
    link.close_send();
    link.close_recv();
    if (i != kWarmUp) continue;
    descriptors = open_descriptors();
    memory = resident_bytes();
    threads = thread_count();
  }
  const auto after = open_descriptors();
  const auto grown = static_cast<long>(resident_bytes()) - static_cast<long>(memory);
  const int cycles = kCycles - kWarmUp - 1;
  if (after.size() > descriptors.size() + 2) {
    fail_check(fmt::format("{} descriptors more after {} connections: {}", after.size() - descriptors.size(), cycles,
                           describe_new(descriptors, after)));
  }
  if (thread_count() > threads + 2) {
    fail_check(fmt::format("{} threads more after {} connections", thread_count() - threads, cycles));
  }
  if (resident_bytes_are_meaningful() && grown > 4l << 20) {
    fail_check(fmt::format("memory grew by {} KiB over {} connections", grown / 1024, cycles));
  }
  return fmt::format("{} connections: descriptors {:+}, threads {:+}, memory {:+} KiB", cycles,
                     static_cast<long>(after.size()) - static_cast<long>(descriptors.size()), thread_count() - threads,
                     grown / 1024);
}

constexpr Check kChecks[] = {
    {"close.inflight_send", "On abort connections are closed with sends in flight that nobody tests again.",
     "proxy.cc:1084; transport/net.cc:1163", false, check_inflight_send},
    {"close.inflight_recv", "On abort connections are closed with receives in flight that nobody tests again.",
     "proxy.cc:1084; transport/net.cc:1204", false, check_inflight_recv},
    {"close.receiver_first", "The two ends close in any order.", "transport/net.cc:1163, 1204", false,
     check_receiver_first},
    {"close.sender_first", "A send that is done is delivered, even if its process closes and exits at once.",
     "transport/net.cc:1339-1345, 1163", false, check_sender_first},
    {"close.finalize_clean", "finalize with everything closed leaves no thread and no descriptor.",
     "plugin/net.cc:341, 76", false, check_finalize_clean},
    {"close.no_leak", "Communicators come and go in a long job: a closed connection leaves nothing.",
     "transport/net.cc:1163, 1204", false, check_no_leak},
};

}  // namespace

std::span<const Check> close_checks() { return kChecks; }

}  // namespace clustar::bench::conform
