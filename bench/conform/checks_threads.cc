// threads.*: NCCL's service thread and progress thread, and several communicators at once.
#include <fmt/format.h>

#include <atomic>
#include <thread>

#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

std::string check_service_and_progress(const Env& env) {
  Session session(env);
  note_step("connecting on one thread, transferring on another, closing on a third");
  std::unique_ptr<Link> link;
  std::thread([&] { link = std::make_unique<Link>(session.link()); }).join();
  std::thread([&] { exchange(session, *link, kMiB, 1); }).join();
  std::thread([&] { link.reset(); }).join();
  return "connect, transfer and close each on a thread of its own";
}

std::string check_reg_during_send(const Env& env) {
  constexpr int kMessages = 400;
  Session session(env);
  Link link = session.link();
  std::atomic<bool> stop{false};
  std::atomic<int> registered{0};
  std::vector<std::byte> extra(1 << 20);
  note_step("registering on a connection while another thread sends on it");
  std::thread service([&] {
    while (!stop) {
      for (void* comm : {link.send_comm, link.recv_comm}) {
        void* mhandle = nullptr;
        session.must(session.net().reg_mr(comm, extra.data(), extra.size(), nccl_abi::kPtrHost, &mhandle),
                     "regMr during isend");
        session.must(session.net().dereg_mr(comm, mhandle), "deregMr during isend");
      }
      ++registered;
    }
  });
  {
    constexpr std::size_t kBytes = 16384;
    Region from(session, link.send_comm, kBytes);
    Region into(session, link.recv_comm, kBytes);
    for (int i = 0; i < kMessages || registered < 100; ++i) {
      from.fill(static_cast<std::uint64_t>(i), 0, kBytes);
      into.clear();
      Transfer recv = link.recv(into, 0, kBytes);
      Transfer send = link.send(from, 0, kBytes);
      session.complete({&recv, &send});
      into.expect(static_cast<std::uint64_t>(i), 0, kBytes, fmt::format("message {}", i));
    }
    stop = true;
    service.join();
  }
  return fmt::format("{} registrations beside at least {} messages", registered.load(), kMessages);
}

std::string check_parallel(const Env& env) {
  constexpr int kThreads = 4, kConnections = 4, kMessages = 24;
  Session session(env);
  note_step("connecting and transferring from four threads at once");
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&session, t] {
      for (int c = 0; c < kConnections; ++c) {
        Link link = session.link();
        Region from(session, link.send_comm, 300000);
        Region into(session, link.recv_comm, 300000);
        for (int i = 0; i < kMessages; ++i) {
          const auto seed = static_cast<std::uint64_t>((t * kConnections + c) * kMessages + i);
          const std::size_t size = static_cast<std::size_t>(i) * 12007 + 100;
          from.fill(seed, 0, size);
          into.clear();
          Transfer recv = link.recv(into, 0, size);
          Transfer send = link.send(from, 0, size);
          session.complete({&recv, &send});
          into.expect(seed, 0, size, fmt::format("thread {}, connection {}, message {}", t, c, i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return fmt::format("{} threads, {} connections each, {} messages each", kThreads, kConnections, kMessages);
}

nccl_abi::NetAttr undefined_attr() {
  const nccl_abi::CommAttr any{-1, -1, -1, -1};
  return {any, any, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined, nccl_abi::kNetAttrUndefined};
}

std::string check_net_attr(const Env& env) {
  if (env.version < 11) skip_check("setNetAttr exists from v11 on");
  Session session(env);
  if (!session.net().has_set_net_attr()) skip_check("the table has no setNetAttr, which is allowed");
  Link link = session.link();
  std::atomic<bool> stop{false};
  note_step("setting attributes from the service and the progress thread");
  std::atomic<int> undefined{0};
  std::thread service([&] {
    while (!stop) {
      nccl_abi::NetAttr attr = undefined_attr();
      session.must(session.net().set_net_attr(session.ctx(), &attr), "setNetAttr with undefined values");
      ++undefined;
      std::this_thread::yield();
    }
  });
  for (int i = 0; i < 100 || undefined < 100; ++i) {
    nccl_abi::NetAttr attr = undefined_attr();
    attr.send = attr.recv = {1, 1, 1, 1};
    attr.op = 1u << (i % 11);  // AlltoAll, Scatter and Gather too
    attr.algo = 1u << nccl_abi::kRing;
    attr.proto = 1u << (i % 3);
    session.must(session.net().set_net_attr(session.ctx(), &attr), "setNetAttr with an operation");
    exchange(session, link, 4096, static_cast<std::uint64_t>(i));
  }
  stop = true;
  service.join();
  return "undefined values from one thread, operations from another";
}

constexpr Check kChecks[] = {
    {"threads.service_progress", "A connection is set up on the service thread and used on the progress thread.",
     "proxy.cc:1084; transport/net.cc:841, 1322", false, check_service_and_progress},
    {"threads.reg_during_send", "regMr on the service thread runs beside isend and irecv on the same connection.",
     "transport/net.cc:1792-1862, 1322", false, check_reg_during_send},
    {"threads.parallel", "Different connections are driven by different threads without any lock of NCCL's.",
     "proxy.cc:932", false, check_parallel},
    {"threads.net_attr", "setNetAttr comes from both threads, with undefined values and with an operation's.",
     "transport/net.cc:214, 242", false, check_net_attr},
};

}  // namespace

std::span<const Check> thread_checks() { return kChecks; }

}  // namespace clustar::bench::conform
