// Many connections over one port of DPDK: what they take, and what they leave.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "tests/conformance/dpdk_peers.h"
#include "tests/conformance/process_peer.h"
#include "tests/own_process.h"
#include "tests/sanitized.h"

namespace clustar::transport::conformance {
namespace {

using tests::open_descriptors;
using tests::resident_kib;
using tests::running_threads;

constexpr std::size_t kConnections = tests::kSanitized ? 60 : 1000;
constexpr std::size_t kAtOnce = 50;  // are being connected
constexpr std::size_t kBytes = 4096;
constexpr int kRounds = 5;
constexpr int kWarm = 2;  // rounds after which memory has been taken as far as it is going to be

// Each connection has its control connection, so a descriptor. False: this process may not have so many.
bool allow_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  return limit.rlim_max >= kConnections + 100 && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

// What this process has; one round of connections must leave it as the round before did.
struct Holdings {
  std::size_t descriptors = open_descriptors();
  std::size_t threads = running_threads();
  std::size_t heap_kib = in_use_kib();
  std::size_t memory = (malloc_trim(0), resident_kib());

  // Of the heaps, without what lies between: that differs by megabytes from round to round.
  static std::size_t in_use_kib() {
    const struct mallinfo2 heaps = mallinfo2();
    return (heaps.uordblks + heaps.hblkhd) / 1024;
  }
};
void expect_flat(const Holdings& first, const Holdings& last) {
  EXPECT_EQ(last.descriptors, first.descriptors);
  EXPECT_EQ(last.threads, first.threads);
  if (tests::kGivesMemoryBack) {
    EXPECT_LE(last.heap_kib, first.heap_kib + 512) << "after " << kRounds << " rounds";
    EXPECT_LE(last.memory, first.memory + 8192) << "KiB, after " << kRounds << " rounds";
  }
}

template <class Channel, class Open>
std::vector<std::unique_ptr<Channel>> open_all(const Open& open) {
  std::vector<std::unique_ptr<Channel>> channels;
  EXPECT_TRUE(poll_until([&] {
    return open(channels), channels.size() == kConnections || ::testing::Test::HasFailure();
  })) << channels.size();
  return channels;
}

std::vector<std::unique_ptr<SendChannel>> dial_all(Transport& transport, const Handle& handle) {
  std::vector<std::unique_ptr<PendingConnect>> pending;
  return open_all<SendChannel>([&](auto& channels) {
    while (pending.size() < kAtOnce && pending.size() + channels.size() < kConnections) {
      pending.push_back(std::move(transport.connect(0, handle, {}).value()));
    }
    for (auto& one : pending) {
      auto polled = one->poll();
      ASSERT_TRUE(polled) << polled.error().message;
      if (*polled == nullptr) continue;
      channels.push_back(std::move(*polled));
      one.reset();
    }
    std::erase(pending, nullptr);
  });
}

std::vector<std::unique_ptr<RecvChannel>> accept_all(Listener& listener) {
  return open_all<RecvChannel>([&](auto& channels) {
    if (auto one = std::move(listener.poll_accept().value())) channels.push_back(std::move(one));
  });
}

class DpdkConnections : public DpdkPeers {};

TEST_F(DpdkConnections, AThousandAtOnceTakeNoThreadAndLeaveNothing) {
  // The children have it from here.
  if (!allow_descriptors()) GTEST_SKIP() << "needs " << kConnections + 100 << " descriptors (ulimit -Hn)";
  Peer receiver([&](Peer& parent) {
    const auto transport = create(over_veth().second);
    Holdings first;
    for (int round = 0; round < kRounds; ++round) {
      {
        const auto listener = std::move(transport->listen(0, {}).value());
        parent.say(listener->handle());
        const auto channels = accept_all(*listener);
        const std::size_t threads = running_threads();
        std::vector<std::unique_ptr<RecvBuffer>> to;
        std::vector<Request*> requests;
        for (const auto& channel : channels) {
          to.push_back(std::make_unique<RecvBuffer>(*channel, kBytes));
          requests.push_back(must_recv(*channel, {{to.back()->mr.get(), 0, kBytes, 0}}));
        }
        finish(requests);
        const auto expected = pattern(9, kBytes);
        for (const auto& buffer : to) EXPECT_TRUE(buffer->bytes == expected);
        EXPECT_EQ(running_threads(), threads);
      }
      parent.say(true);
      parent.hear<bool>();  // the other end has closed, too
      if (round + 1 == kWarm) first = {};
    }
    expect_flat(first, {});
  });
  Peer sender([&](Peer& parent) {
    const auto transport = create(over_veth().first);
    Holdings first;
    for (int round = 0; round < kRounds; ++round) {
      {
        const auto channels = dial_all(*transport, parent.hear<Handle>());
        const std::size_t threads = running_threads();
        std::vector<std::unique_ptr<SendBuffer>> from;
        std::vector<Request*> requests;
        for (const auto& channel : channels) {
          from.push_back(std::make_unique<SendBuffer>(*channel, kBytes, 9));
          requests.push_back(must_send(*channel, *from.back()->mr, 0, kBytes));
        }
        finish(requests);
        EXPECT_EQ(running_threads(), threads);
        parent.hear<bool>();
      }
      parent.say(true);
      if (round + 1 == kWarm) first = {};
    }
    expect_flat(first, {});
  });
  for (int round = 0; round < kRounds; ++round) {
    join(receiver, sender);
    sender.say(receiver.hear<bool>());
    receiver.say(sender.hear<bool>());
  }
  EXPECT_EQ(receiver.wait(), 0);
  EXPECT_EQ(sender.wait(), 0);
}

}  // namespace
}  // namespace clustar::transport::conformance
