// contract.*: what arrives, how much of it, and in which order.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

std::string check_sizes(const Env& env) {
  constexpr std::array<std::size_t, 8> kSizes = {0, 1, 8, 4095, 4 * kKiB, 64 * kKiB, kMiB - 1, kMiB};
  Session session(env);
  Link link = session.link();
  for (std::size_t i = 0; i < kSizes.size(); ++i) exchange(session, link, kSizes[i], i + 1);
  return "0, 1, 8, 4095 B, 4 KiB, 64 KiB, 1 MiB - 1, 1 MiB";
}

std::string check_large(const Env& env) {
  Session session(env);
  Link link = session.link();
  exchange(session, link, 4 * kMiB + 1, 1);
  const auto begin = Clock::now();
  exchange(session, link, 64 * kMiB, 2);
  return fmt::format("4 MiB + 1, and 64 MiB in {:.2f} s with filling and checking", seconds_since(begin));
}

std::string check_empty_between(const Env& env) {
  constexpr std::array<std::size_t, 9> kSizes = {0, 8, 0, 0, 65536, 0, 1, 0, 0};
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, 9 * kMiB / 8);
  Region into(session, link.recv_comm, 9 * kMiB / 8);
  into.clear();
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    from.fill(i + 1, i * 128 * kKiB, kSizes[i]);
    transfers.push_back(link.recv(into, i * 128 * kKiB, 128 * kKiB));
    transfers.push_back(link.send(from, i * 128 * kKiB, kSizes[i]));
  }
  std::vector<Transfer*> all;
  for (Transfer& transfer : transfers) all.push_back(&transfer);
  note_step("sending empty messages between others");
  session.complete(all);
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const std::string what = fmt::format("message {} of {} bytes", i, kSizes[i]);
    if (transfers[2 * i].sizes[0] != static_cast<int>(kSizes[i])) {
      fail_check(fmt::format("{} was reported with size {}", what, transfers[2 * i].sizes[0]));
    }
    into.expect(i + 1, i * 128 * kKiB, kSizes[i], what);
    into.expect_untouched(i * 128 * kKiB + kSizes[i], 128 * kKiB - kSizes[i], "behind " + what);
  }
  return "6 empty messages among 9, each matched to its own receive";
}

std::string check_posted_larger(const Env& env) {
  Session session(env);
  Link link = session.link();
  for (const std::size_t size : {std::size_t{0}, std::size_t{100}, 60 * kKiB, 700 * kKiB}) {
    const std::string what = fmt::format("{} bytes into a receive of 1 MiB", size);
    note_step("sending " + what);
    Region from(session, link.send_comm, kMiB);
    Region into(session, link.recv_comm, kMiB);
    from.fill(size + 1, 0, size);
    into.clear();
    Transfer recv = link.recv(into, 0, kMiB);
    Transfer send = link.send(from, 0, size);
    session.complete({&recv, &send});
    if (recv.sizes[0] != static_cast<int>(size)) fail_check(fmt::format("{}: size {} reported", what, recv.sizes[0]));
    into.expect(size + 1, 0, size, what);
    into.expect_untouched(size, kMiB - size, what);
  }
  return "the sent size is reported and nothing behind it is written";
}

// Advances both until both are done or one call is not ncclSuccess, which is given back.
int run_pair(Session& session, Transfer& recv, Transfer& send) {
  const auto begin = Clock::now();
  while (!recv.done) {
    for (Transfer* transfer : {&recv, &send}) {
      const int result = session.advance(*transfer);
      if (result != nccl_abi::kSuccess) return result;
    }
    if (Clock::now() - begin > session.env().stuck_bound) {
      fail_check("a receive that is smaller than its message is neither done nor an error");
    }
    sched_yield();
  }
  return nccl_abi::kSuccess;
}

std::string check_sent_larger(const Env& env) {
  std::string seen;
  for (const std::size_t posted : {std::size_t{64}, 32 * kKiB}) {
    const std::size_t sent = 2 * posted;
    const std::string what = fmt::format("{} bytes into a receive of {}", sent, posted);
    Session session(env);
    Link link = session.link();
    Region from(session, link.send_comm, sent);
    Region into(session, link.recv_comm, sent);
    from.fill(9, 0, sent);
    into.clear();
    note_step("sending " + what);
    Transfer recv = link.recv(into, 0, posted);
    Transfer send = link.send(from, 0, sent);
    const int result = run_pair(session, recv, send);
    into.expect_untouched(posted, sent - posted, what);
    if (result != nccl_abi::kSuccess) {
      seen = fmt::format("error {}, as NCCL's Socket transport", result_name(result));
      continue;
    }
    if (recv.sizes[0] != static_cast<int>(posted)) {
      fail_check(fmt::format("{}: size {} reported, min(posted, sent) is {}", what, recv.sizes[0], posted));
    }
    into.expect(9, 0, posted, what);
    seen = "min(posted, sent) is delivered, as NCCL's IB transport";
  }
  return seen;
}

std::string check_send_first(const Env& env) {
  Session session(env);
  Link link = session.link();
  std::string seen;
  for (const std::size_t size : {std::size_t{8}, 512 * kKiB, 32 * kMiB}) {
    Region from(session, link.send_comm, size);
    Region into(session, link.recv_comm, size);
    from.fill(size, 0, size);
    into.clear();
    note_step(fmt::format("sending {} bytes before a receive is posted", size));
    Transfer send = link.send(from, 0, size);
    Transfer recv = link.recv(into, 0, size);
    for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(50);) {
      session.must(session.advance(send), "isend before irecv");
      sched_yield();
    }
    seen += fmt::format("{}{} B {}", seen.empty() ? "" : ", ", size,
                        send.done                 ? "done"
                        : send.request != nullptr ? "queued"
                                                  : "refused with NULL");
    session.complete({&recv, &send});
    into.expect(size, 0, size, "a message sent before its receive was posted");
  }
  return "before the receive was posted: " + seen;
}

// Messages of different odd sizes over one connection, with a receive of kSlot bytes each; none is posted yet.
struct Messages {
  static constexpr std::size_t kSlot = 64 * kKiB;

  Messages(const Env& env, std::size_t count)
      : session(env),
        link(session.link()),
        from(session, link.send_comm, count * kSlot),
        into(session, link.recv_comm, count * kSlot) {
    into.clear();
    for (std::size_t i = 0; i < count; ++i) {
      from.fill(i + 1, i * kSlot, size_of(i));
      sends.push_back(link.send(from, i * kSlot, size_of(i)));
      recvs.push_back(link.recv(into, i * kSlot, kSlot));
    }
  }
  static std::size_t size_of(std::size_t i) { return (i * 7919) % kSlot + 1; }
  // All are done: in posting order, nothing more, and the sizes are told.
  void expect_all() {
    for (std::size_t i = 0; i < recvs.size(); ++i) {
      const std::string what = fmt::format("message {} of {} in posting order", i, recvs.size());
      into.expect(i + 1, i * kSlot, size_of(i), what);
      into.expect_untouched(i * kSlot + size_of(i), kSlot - size_of(i), "behind " + what);
      if (recvs[i].sizes[0] != static_cast<int>(size_of(i))) {
        fail_check(fmt::format("{}: size {} reported, {} sent", what, recvs[i].sizes[0], size_of(i)));
      }
    }
  }

  Session session;
  Link link;
  Region from;
  Region into;
  std::vector<Transfer> sends{};
  std::vector<Transfer> recvs{};
};

// All posted before any is tested.
std::string run_outstanding(const Env& env, std::size_t count, bool receives_first) {
  Messages messages(env, count);
  Session& session = messages.session;
  auto& sends = messages.sends;
  auto& recvs = messages.recvs;
  note_step(fmt::format("posting {} messages before testing any", count));
  std::size_t posted_recvs = 0, posted_sends = 0;
  const auto post = [&](std::vector<Transfer>& transfers, std::size_t* posted, const char* call) {
    while (*posted < count) {
      session.must(session.advance(transfers[*posted]), call);
      if (transfers[*posted].request == nullptr) return;
      ++*posted;
    }
  };
  if (receives_first) post(recvs, &posted_recvs, "irecv");
  post(sends, &posted_sends, "isend");
  post(recvs, &posted_recvs, "irecv");
  std::vector<Transfer*> all;
  for (Transfer& transfer : recvs) all.push_back(&transfer);
  for (Transfer& transfer : sends) all.push_back(&transfer);
  session.complete(all);
  messages.expect_all();
  return fmt::format("{} irecv and {} isend were taken at once, all {} matched in order", posted_recvs, posted_sends,
                     count);
}

std::string check_outstanding_8(const Env& env) { return run_outstanding(env, 8, true); }
std::string check_outstanding_32(const Env& env) {
  return run_outstanding(env, static_cast<std::size_t>(nccl_abi::kMaxRequests), true);
}
std::string check_busy(const Env& env) { return run_outstanding(env, 256, false); }

std::string check_both_directions(const Env& env) {
  constexpr std::size_t kSize = kMiB, kCount = 8;
  Session session(env);
  Link forward = session.link();
  Link backward = session.link();
  std::vector<Region> regions;
  regions.reserve(4);
  for (Link* link : {&forward, &backward}) {
    regions.emplace_back(session, link->send_comm, kSize * kCount);
    regions.emplace_back(session, link->recv_comm, kSize * kCount);
  }
  std::vector<Transfer> transfers;
  for (std::size_t way = 0; way < 2; ++way) {
    const Link& link = way == 0 ? forward : backward;
    regions[2 * way + 1].clear();
    for (std::size_t i = 0; i < kCount; ++i) {
      regions[2 * way].fill(100 * way + i, i * kSize, kSize);
      transfers.push_back(link.send(regions[2 * way], i * kSize, kSize));
      transfers.push_back(link.recv(regions[2 * way + 1], i * kSize, kSize));
    }
  }
  std::vector<Transfer*> all;
  for (Transfer& transfer : transfers) all.push_back(&transfer);
  note_step("sending 8 MiB both ways at once");
  session.complete(all);
  for (std::size_t way = 0; way < 2; ++way) {
    for (std::size_t i = 0; i < kCount; ++i) {
      regions[2 * way + 1].expect(100 * way + i, i * kSize, kSize, fmt::format("message {} of way {}", i, way));
    }
  }
  return "8 x 1 MiB each way at once";
}

// The newest first. NCCL never does, and its Socket transport, which reads for whichever request is tested, mixes the
// messages up: a plugin that fails only here works with NCCL.
std::string check_any_order(const Env& env) {
  constexpr std::size_t kCount = 8;
  Messages messages(env, kCount);
  Session& session = messages.session;
  auto& sends = messages.sends;
  auto& recvs = messages.recvs;
  note_step("testing the newest requests first");
  const auto begin = Clock::now();
  const auto must_move = [&] {
    if (Clock::now() - begin > env.stuck_bound) fail_check("stuck when the newest requests are tested first");
    sched_yield();
  };
  const auto test = [&](std::vector<Transfer>& transfers) {
    std::for_each(transfers.rbegin(), transfers.rend(), [&](Transfer& transfer) {
      if (transfer.request != nullptr) session.must(session.advance(transfer), "test of a newer request");
    });
    return std::all_of(transfers.begin(), transfers.end(), [](const Transfer& transfer) { return transfer.done; });
  };
  const auto post = [&](Transfer& transfer) {
    for (; transfer.request == nullptr; must_move()) session.must(session.advance(transfer), "isend or irecv");
  };
  for (Transfer& recv : recvs) post(recv);
  test(recvs);  // before there is anything to receive
  for (Transfer& send : sends) {
    post(send);
    test(recvs);  // with some sent, and newer receives that wait
  }
  for (bool done = false; !done; must_move()) {
    done = test(recvs);
    done = test(sends) && done;
  }
  messages.expect_all();
  return fmt::format("{} receives and sends, the newest tested first", kCount);
}

constexpr Check kChecks[] = {
    {"contract.sizes", "Any size up to the posted one arrives byte for byte, and test reports it; 0 is a size.",
     "transport/net.cc:1322, 1482", true, check_sizes},
    {"contract.large", "Messages are as large as the user's buffer when it is registered.", "transport/net.cc:1310",
     false, check_large},
    {"contract.empty_messages", "A 0-byte message is a message: it matches one receive.", "transport/net.cc:1322",
     false, check_empty_between},
    {"contract.posted_larger", "A receive may be larger than its message: only the message is written.",
     "transport/net.cc:1469-1482", false, check_posted_larger},
    {"contract.sent_larger", "A message larger than its receive never overflows it: cut it or fail.",
     "transport/net_ib.cc:2217; transport/net_socket.cc:561", false, check_sent_larger},
    {"contract.send_first", "isend may come before irecv: queue it, or say busy with a NULL request.",
     "transport/net.cc:1322-1323", true, check_send_first},
    {"contract.outstanding_8", "Eight requests are open per connection (NCCL_STEPS), matched in posting order.",
     "transport/net.cc:1474-1482", true, check_outstanding_8},
    {"contract.outstanding_32", "Up to 32 requests are open (NCCL_NET_MAX_REQUESTS), matched in posting order.",
     "include/plugin/nccl_net.h", false, check_outstanding_32},
    {"contract.busy", "When there is no room, isend and irecv give a NULL request and take it on a later call.",
     "transport/net.cc:1323, 1483", false, check_busy},
    {"contract.test_any_order",
     "A newer request may be tested before an older one. NCCL never does so, and its Socket transport fails here.",
     "transport/net.cc:1339, 1508; transport/net_socket.cc:538", false, check_any_order},
    {"contract.both_directions", "Connections are one way each; both ways run at once without blocking one another.",
     "transport/net.cc:1322, 1482", false, check_both_directions},
};

}  // namespace

std::span<const Check> transfer_checks() { return kChecks; }

}  // namespace clustar::bench::conform
