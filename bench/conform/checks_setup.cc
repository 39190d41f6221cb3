// contract.*: connections and registration.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>

#include "bench/conform/peer.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

// Long enough for a wait inside a call to show, many calls long.
constexpr milliseconds kAlone{300};

std::string check_listen(const Env& env) {
  Session session(env);
  std::vector<Listening> open;
  note_step("listening eight times on device 0");
  const auto begin = Clock::now();
  for (int i = 0; i < 8; ++i) open.push_back(session.listen());
  const double each_ms = seconds_since(begin) * 1e3 / 8;
  for (std::size_t i = 1; i < open.size(); ++i) {
    if (open[i].handle == open[0].handle) fail_check("two listens gave the same handle");
  }
  std::size_t used = nccl_abi::kHandleBytes;
  while (used > 0 && open[0].handle[used - 1] == std::byte{0}) --used;
  if (used == 0) fail_check("listen left the handle empty");
  for (Listening& listening : open) session.close_listen(listening.comm);
  return fmt::format("{:.2f} ms each; the handle has {} of {} bytes in use", each_ms, used, nccl_abi::kHandleBytes);
}

std::string check_accept_alone(const Env& env) {
  Session session(env);
  Listening listening = session.listen();
  note_step("accepting with no peer anywhere");
  int calls = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < kAlone; ++calls) {
    void* comm = nullptr;
    session.must(session.try_accept(listening.comm, &comm), "accept without a peer");
    if (comm != nullptr) fail_check("accept gave a comm although nobody connected");
    sched_yield();
  }
  Link link = session.link_to(listening);
  session.close_listen(listening.comm);
  exchange(session, link, 64, 1);
  return fmt::format("{} calls in {} ms, all success with a NULL comm", calls, kAlone.count());
}

std::string check_connect_alone(const Env& env) {
  Session session(env);
  Listening listening = session.listen();
  note_step("connecting to a listener that does not accept yet");
  proxy::Handle handle = listening.handle;
  Link link(&session);
  int calls = 0;
  for (const auto begin = Clock::now(); link.send_comm == nullptr && Clock::now() - begin < kAlone; ++calls) {
    session.must(session.try_connect(&handle, &link.send_comm), "connect");
    sched_yield();
  }
  const bool early = link.send_comm != nullptr;
  note_step("accepting the connection after all");
  const auto begin = Clock::now();
  while (link.send_comm == nullptr || link.recv_comm == nullptr) {
    if (link.send_comm == nullptr) session.must(session.try_connect(&handle, &link.send_comm), "connect");
    if (link.recv_comm == nullptr) session.must(session.try_accept(listening.comm, &link.recv_comm), "accept");
    if (Clock::now() - begin > env.stuck_bound) fail_check("no connection although both sides call again");
    sched_yield();
  }
  session.close_listen(listening.comm);
  exchange(session, link, 64, 1);
  return early ? fmt::format("connect was through after {} calls, before accept", calls)
               : fmt::format("{} calls with a NULL comm until the other side accepted", calls);
}

std::string check_two_processes(const Env& env) {
  // The peer receives on one connection and sends on another.
  Peer peer([&](Channel& channel) {
    Session session(env);
    Listening listening = session.listen();
    channel.put(listening.handle);
    auto handle = channel.get<proxy::Handle>(env.stuck_bound);
    Link link(&session);
    link.recv_comm = session.wait_accept(listening.comm);
    session.close_listen(listening.comm);
    link.send_comm = session.wait_connect(&handle);
    Region in(session, link.recv_comm, 1 << 20);
    Region out(session, link.send_comm, 1 << 20);
    in.clear();
    out.fill(2, 0, out.size());
    Transfer recv = link.recv(in, 0, in.size());
    Transfer send = link.send(out, 0, out.size());
    session.complete({&recv, &send});
    in.expect(1, 0, in.size(), "1 MiB received by the peer");
  });
  Session session(env);
  Listening listening = session.listen();
  auto handle = peer.channel().get<proxy::Handle>(env.stuck_bound);
  peer.channel().put(listening.handle);
  {
    Link link(&session);
    note_step("connecting to another process");
    link.send_comm = session.wait_connect(&handle);
    note_step("accepting another process");
    link.recv_comm = session.wait_accept(listening.comm);
    session.close_listen(listening.comm);
    Region in(session, link.recv_comm, 1 << 20);
    Region out(session, link.send_comm, 1 << 20);
    in.clear();
    out.fill(1, 0, out.size());
    Transfer recv = link.recv(in, 0, in.size());
    Transfer send = link.send(out, 0, out.size());
    note_step("exchanging 1 MiB each way with another process");
    session.complete({&recv, &send});
    in.expect(2, 0, in.size(), "1 MiB from the peer");
    // A peer may close first; what is open here must still close.
    note_step("waiting for the other process to close");
    peer.finish(env.stuck_bound);
  }
  return "1 MiB each way, then both closed";
}

std::string check_close_listen(const Env& env) {
  Session session(env);
  Listening listening = session.listen();
  Link link = session.link_to(listening);
  note_step("closing the listener right after accept, before any registration");
  session.close_listen(listening.comm);
  usleep(50000);  // time for a teardown to reach the connection
  exchange(session, link, 65536, 1);
  exchange(session, link, 65536, 2);
  return "the connection went on";
}

std::string check_close_listen_unused(const Env& env) {
  Session session(env);
  note_step("closing a listener that never accepted");
  Listening unused = session.listen();
  session.close_listen(unused.comm);
  note_step("closing a listener with a connection under way");
  Listening half = session.listen();
  proxy::Handle handle = half.handle;
  void* send_comm = nullptr;
  for (int i = 0; i < 20 && send_comm == nullptr; ++i) {
    session.must(session.try_connect(&handle, &send_comm), "connect");
    usleep(1000);
  }
  session.close_listen(half.comm);
  if (send_comm != nullptr) session.must(session.net().close_send(send_comm), "closeSend");
  Link link = session.link();
  exchange(session, link, 64, 1);
  return "unused, and with a connection under way; listening again works";
}

std::string check_reg_mr(const Env& env) {
  Session session(env);
  Link link = session.link();
  note_step("registering regions that overlap and are of odd sizes");
  Region from(session, link.send_comm, 4 << 20);
  Region into(session, link.recv_comm, 4 << 20);
  std::vector<void*> handles;
  for (const std::size_t offset : {0, 1, 64, 4096, 1 << 20}) {
    for (void* comm : {link.send_comm, link.recv_comm}) {
      Region& region = comm == link.send_comm ? from : into;
      void* mhandle = nullptr;
      note_call("regMr");
      session.must(
          session.net().reg_mr(comm, region.data() + offset, region.size() - offset - 3, nccl_abi::kPtrHost, &mhandle),
          "regMr of an overlapping region");
      handles.push_back(mhandle);
    }
  }
  note_step("sending from the middle of a registered region");
  into.clear();
  from.fill(5, 12345, 70001);
  Transfer recv = link.recv(into, 777, 70001);
  Transfer send = link.send(from, 12345, 70001);
  session.complete({&recv, &send});
  into.expect(5, 777, 70001, "a message at an odd offset");
  into.expect_untouched(0, 777, "before that message");
  into.expect_untouched(777 + 70001, 4096, "behind that message");
  for (std::size_t i = 0; i < handles.size(); ++i) {
    note_call("deregMr");
    session.must(session.net().dereg_mr(i % 2 == 0 ? link.send_comm : link.recv_comm, handles[i]), "deregMr");
  }
  exchange(session, link, 65536, 6);
  return fmt::format("{} overlapping registrations; a message at odd offsets", handles.size());
}

constexpr Check kChecks[] = {
    {"contract.listen", "listen does not block, gives a comm that is not NULL and at most 128 bytes of handle.",
     "transport/net.cc:781", true, check_listen},
    {"contract.accept_alone", "accept does not wait: without a peer it is ncclSuccess and a NULL comm.",
     "transport/net.cc:1019-1023", false, check_accept_alone},
    {"contract.connect_alone", "connect does not wait for accept: NULL comm means call again with the same handle.",
     "transport/net.cc:851-860", false, check_connect_alone},
    {"contract.two_processes", "Ranks are processes: connect, transfer both ways, close.",
     "transport/net.cc:851, 1019, 1322, 1482", true, check_two_processes},
    {"contract.close_listen", "closeListen comes straight after accept; the connection stays up.",
     "transport/net.cc:1038", true, check_close_listen},
    {"contract.close_listen_unused", "A listener may be closed without a peer, or with one under way.",
     "transport/net.cc:1038", false, check_close_listen_unused},
    {"contract.reg_mr", "Buffers are registered per connection, may overlap, and messages lie anywhere inside.",
     "transport/net.cc:959, 1114, 1792-1862", false, check_reg_mr},
};

}  // namespace

std::span<const Check> setup_checks() { return kChecks; }

}  // namespace clustar::bench::conform
