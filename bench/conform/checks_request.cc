// contract.*: the life of requests, tags and grouped receives, many connections.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <deque>

#include "bench/conform/process.h"
#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::size_t kSlot = 64 * 1024;

void skip_without_groups(const Session& session) {
  if (session.properties().max_recvs == 1) {
    skip_check("maxRecvs is 1: one tag per connection, no grouped receives");
  }
}

std::size_t size_for(int tag) { return tag == 3 ? 0 : static_cast<std::size_t>(tag) * 5003 % kSlot; }

std::string check_tags(const Env& env) {
  Session session(env);
  skip_without_groups(session);
  Link link = session.link();
  Region from(session, link.send_comm, 8 * kSlot);
  Region into(session, link.recv_comm, 8 * kSlot);
  into.clear();
  constexpr std::array kSendOrder = {1, 2, 4}, kRecvOrder = {4, 1, 2};
  std::vector<Transfer> transfers;
  for (const int tag : kRecvOrder)
    transfers.push_back(link.recv(into, static_cast<std::size_t>(tag) * kSlot, kSlot, tag));
  for (const int tag : kSendOrder) {
    from.fill(static_cast<std::uint64_t>(tag), static_cast<std::size_t>(tag) * kSlot, size_for(tag));
    transfers.push_back(link.send(from, static_cast<std::size_t>(tag) * kSlot, size_for(tag), tag));
  }
  std::vector<Transfer*> all;
  for (Transfer& transfer : transfers) all.push_back(&transfer);
  note_step("sending tags 1, 2, 4 to receives posted as 4, 1, 2");
  session.complete(all);
  for (const int tag : kSendOrder) {
    into.expect(static_cast<std::uint64_t>(tag), static_cast<std::size_t>(tag) * kSlot, size_for(tag),
                fmt::format("the message of tag {}", tag));
  }
  return "tags 1, 2, 4 met receives posted as 4, 1, 2";
}

// One grouped receive of n tags, whose messages are sent in the reverse order of the tags. Twice in a row when
// `twice`: per tag the older receive gets the older message.
void run_group(Session& session, Link& link, int n, bool twice) {
  const std::size_t count = static_cast<std::size_t>(n);
  const std::size_t rounds = twice ? 2 : 1;
  Region from(session, link.send_comm, rounds * count * kSlot);
  Region into(session, link.recv_comm, rounds * count * kSlot);
  into.clear();
  std::vector<Transfer> recvs(rounds), sends;
  const auto place = [&](std::size_t round, std::size_t i) { return (round * count + i) * kSlot; };
  const auto size_of = [&](std::size_t round, std::size_t i) { return size_for(static_cast<int>(i + 1 + 10 * round)); };
  for (std::size_t round = 0; round < rounds; ++round) {
    recvs[round].comm = link.recv_comm;
    for (std::size_t i = 0; i < count; ++i) {
      recvs[round].parts.push_back({&into, place(round, i), kSlot, static_cast<int>(i + 1)});
      from.fill(place(round, i) + 1, place(round, i), size_of(round, i));
    }
  }
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = count; i-- > 0;) {
      sends.push_back(link.send(from, place(round, i), size_of(round, i), static_cast<int>(i + 1)));
    }
  }
  std::vector<Transfer*> all;
  for (Transfer& recv : recvs) all.push_back(&recv);
  for (Transfer& send : sends) all.push_back(&send);
  note_step(fmt::format("receiving {} group(s) of {} tags", rounds, n));
  session.complete(all);
  for (std::size_t round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      const std::string what = fmt::format("group {} of {}, tag {}, {} bytes", round, n, i + 1, size_of(round, i));
      into.expect(place(round, i) + 1, place(round, i), size_of(round, i), what);
      into.expect_untouched(place(round, i) + size_of(round, i), kSlot - size_of(round, i), "behind " + what);
      if (recvs[round].sizes[i] != static_cast<int>(size_of(round, i))) {
        fail_check(fmt::format("{}: size {} reported", what, recvs[round].sizes[i]));
      }
    }
  }
}

std::string check_grouped(const Env& env) {
  Session session(env);
  skip_without_groups(session);
  Link link = session.link();
  const int most = session.properties().max_recvs;
  for (int n = 1; n <= most; ++n) run_group(session, link, n, false);
  return fmt::format("groups of 1 .. {}, tags in reverse order, a size per tag, one of them 0", most);
}

std::string check_grouped_order(const Env& env) {
  Session session(env);
  skip_without_groups(session);
  Link link = session.link();
  run_group(session, link, std::min(3, session.properties().max_recvs), true);
  return "two groups of the same tags: per tag, the older receive got the older message";
}

std::string check_optional_completion(const Env& env) {
  if (env.version < 9) skip_check("NCCL's shims hide the marker from tables up to v8");
  constexpr std::size_t kCount = 8;
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, kCount * kSlot);
  Region into(session, link.recv_comm, kCount * kSlot);
  into.clear();
  std::vector<Transfer> transfers;
  for (std::size_t i = 0; i < kCount; ++i) {
    from.fill(i + 1, i * kSlot, 1000 + i);
    transfers.push_back(link.recv(into, i * kSlot, kSlot));
    transfers.back().optional_completion = i + 1 < kCount;
    transfers.push_back(link.send(from, i * kSlot, 1000 + i));
  }
  std::vector<Transfer*> all;
  for (Transfer& transfer : transfers) all.push_back(&transfer);
  note_step("receiving with NCCL's optional-completion marker (0x1) in *request");
  session.complete(all);
  // With the marker, done may come before the data: the GPU would look at flags in memory.
  usleep(10000);
  for (std::size_t i = 0; i < kCount; ++i) into.expect(i + 1, i * kSlot, 1000 + i, fmt::format("message {}", i));
  const auto kept = std::count_if(transfers.begin(), transfers.end(), [](const Transfer& transfer) {
    return transfer.request == reinterpret_cast<void*>(nccl_abi::kOptionalRecvCompletion);
  });
  return kept > 0 ? fmt::format("{} completions skipped, all data there", kept) : "the marker is overwritten: ignored";
}

std::string check_not_done(const Env& env) {
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, kSlot);
  Region into(session, link.recv_comm, kSlot);
  from.fill(1, 0, kSlot);
  into.clear();
  Transfer recv = link.recv(into, 0, kSlot);
  Transfer send = link.send(from, 0, kSlot);
  note_step("testing a receive whose message was not sent yet");
  for (const auto begin = Clock::now(); Clock::now() - begin < milliseconds(50);) {
    session.must(session.advance(recv), "test of a receive without a message");
    if (recv.done) fail_check("test says done, but nothing was sent yet");
    sched_yield();
  }
  into.expect_untouched(0, kSlot, "before anything was sent");
  session.complete({&recv, &send});
  into.expect(1, 0, kSlot, "the message");
  return "not done until its message came; no size beyond its own was written";
}

std::string check_flush(const Env& env) {
  Session session(env);
  Link link = session.link();
  Region into(session, link.recv_comm, kSlot);
  void* data = into.data();
  void* mhandle = into.mhandle();
  int size = static_cast<int>(kSlot);
  void* request = nullptr;
  note_step("flushing");
  const int result = session.bounded(
      "iflush", [&] { return session.net().iflush(link.recv_comm, 1, &data, &size, &mhandle, &request); });
  if (result != nccl_abi::kSuccess && (session.properties().ptr_support & nccl_abi::kPtrCuda) == 0) {
    return fmt::format("iflush gives {}; without NCCL_PTR_CUDA NCCL never calls it", result_name(result));
  }
  session.must(result, "iflush");
  if (request == nullptr) return "iflush gives a NULL request: nothing to wait for";
  const auto begin = Clock::now();
  for (int done = 0; done == 0;) {
    session.must(session.bounded("test", [&] { return session.net().test(request, &done, nullptr); }),
                 "test of a flush");
    if (Clock::now() - begin > env.stuck_bound) fail_check("a flush is never done");
  }
  return "done; test took sizes NULL";
}

std::string check_reuse(const Env& env) {
  constexpr std::size_t kMessages = 20000, kWindow = 8, kBytes = 256;
  Session session(env);
  Link link = session.link();
  Region from(session, link.send_comm, kWindow * kBytes);
  Region into(session, link.recv_comm, kWindow * kBytes);
  std::deque<Transfer> sends, recvs;
  std::size_t started = 0, finished = 0, memory = 0;
  const auto begin = Clock::now();
  note_step("sending 20,000 small messages, 8 open at a time");
  while (finished < kMessages) {
    while (started < kMessages && sends.size() < kWindow) {
      const std::size_t at = started % kWindow * kBytes;
      from.fill(++started, at, kBytes);
      sends.push_back(link.send(from, at, kBytes));
      recvs.push_back(link.recv(into, at, kBytes));
    }
    session.complete({&recvs.front(), &sends.front()});
    ++finished;
    into.expect(finished, (finished - 1) % kWindow * kBytes, kBytes, fmt::format("message {}", finished));
    sends.pop_front();
    recvs.pop_front();
    std::vector<Transfer*> window;
    for (Transfer& transfer : recvs) window.push_back(&transfer);
    for (Transfer& transfer : sends) window.push_back(&transfer);
    session.advance_all(window);
    if (finished == kMessages / 10) memory = resident_bytes();
  }
  const auto grown = static_cast<long>(resident_bytes()) - static_cast<long>(memory);
  if (resident_bytes_are_meaningful() && grown > 4l << 20) {
    fail_check(fmt::format("memory grew by {} KiB over {} messages", grown / 1024, kMessages * 9 / 10));
  }
  return fmt::format("{} messages in {:.2f} s, memory {:+} KiB", kMessages, seconds_since(begin), grown / 1024);
}

std::string check_many_connections(const Env& env) {
  Session session(env);
  const int count = std::min(64, session.properties().max_comms / 2);
  std::vector<Link> links;
  note_step(fmt::format("opening {} connections", count));
  const auto begin = Clock::now();
  for (int i = 0; i < count; ++i) links.push_back(session.link());
  const double seconds = seconds_since(begin);
  for (std::size_t i = 0; i < links.size(); ++i) exchange(session, links[i], 4096 + i, i + 1);
  return fmt::format("{} open at once, {:.2f} ms each", count, seconds * 1e3 / std::max(count, 1));
}

constexpr Check kChecks[] = {
    {"contract.tags", "On a shared connection, receives match by tag, whatever the order of tags.",
     "transport/net.cc:1473; transport/net_ib.cc:2215", false, check_tags},
    {"contract.grouped_recv", "irecv takes up to maxRecvs buffers, each with its own tag and reported size.",
     "transport/net.cc:1482, 1508", false, check_grouped},
    {"contract.grouped_order", "Per tag, messages match receives in posting order, across groups too.",
     "transport/net.cc:1482", false, check_grouped_order},
    {"contract.optional_completion", "irecv may find the marker 0x1 in *request: skip the completion or overwrite it.",
     "transport/net.cc:1478-1482", false, check_optional_completion},
    {"contract.test_not_done", "test says not done until the message is in, and writes only the request's sizes.",
     "transport/net.cc:1507-1508; nccl#309", true, check_not_done},
    {"contract.flush", "iflush may give a NULL request; a flush is tested with sizes NULL.",
     "transport/net.cc:1563, 1578", false, check_flush},
    {"contract.request_reuse", "Requests are freed when test says done: a job makes millions of them.",
     "transport/net.cc:1508", false, check_reuse},
    {"contract.many_connections", "Every peer and channel is a connection; they are open all at once.",
     "transport/net.cc:851", false, check_many_connections},
};

}  // namespace

std::span<const Check> request_checks() { return kChecks; }

}  // namespace clustar::bench::conform
