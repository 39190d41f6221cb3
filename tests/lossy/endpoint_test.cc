// Plain TCP between two ends in one process, over loopback.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/lossy/tcp_endpoint.h"
#include "bench/lossy/transport_endpoint.h"
#include "bench/lossy/worker.h"

namespace clustar::bench::lossy {
namespace {

SteadyClock::time_point soon() { return SteadyClock::now() + std::chrono::seconds(10); }

Terms terms(int senders) {
  Terms terms;
  terms.arm = *find_arm("tcp-cubic");
  terms.senders = senders;
  terms.message_bytes = 300'000;
  terms.window = 2;
  return terms;
}

TEST(LossyTcpEndpoint, MovesMessagesOfEverySenderToItsPlace) {
  TcpEndpoint receiver(terms(2), false);
  TcpEndpoint first(terms(2), true), second(terms(2), true);
  const auto where = receiver.listen("127.0.0.1");
  ASSERT_TRUE(where) << where.error().message;
  ASSERT_EQ(where->size(), 2u);
  auto accepted = std::async(std::launch::async, [&] { return receiver.accept(soon()); });
  ASSERT_TRUE(second.connect(where->at(1), 1, soon()));
  ASSERT_TRUE(first.connect(where->at(0), 0, soon()));
  ASSERT_TRUE(accepted.get());

  std::ranges::fill(first.memory(0, 1), std::byte{1});
  std::ranges::fill(second.memory(0, 0), std::byte{2});
  ASSERT_TRUE(receiver.post(0, 1, 1));
  ASSERT_TRUE(receiver.post(1, 0, 1));
  ASSERT_TRUE(first.post(0, 1, 1));
  ASSERT_TRUE(second.post(0, 0, 1));
  std::vector<Ended> sent, received;
  for (const auto until = soon(); received.size() < 2 && SteadyClock::now() < until;) {
    ASSERT_TRUE(first.progress(sent));
    ASSERT_TRUE(second.progress(sent));
    ASSERT_TRUE(receiver.progress(received));
  }
  ASSERT_EQ(received.size(), 2u);
  EXPECT_EQ(sent.size(), 2u);
  EXPECT_TRUE(std::ranges::equal(receiver.memory(0, 1), first.memory(0, 1)));
  EXPECT_TRUE(std::ranges::equal(receiver.memory(1, 0), second.memory(0, 0)));
  const auto facts = first.facts();
  ASSERT_TRUE(facts) << facts.error().message;
  EXPECT_EQ((*facts)["congestion"], "cubic");
  EXPECT_GE((*facts)["rto_us"], 200'000);
}

TEST(LossyTcpEndpoint, SaysWhoIsMissing) {
  TcpEndpoint receiver(terms(2), false);
  ASSERT_TRUE(receiver.listen("127.0.0.1"));
  const auto accepted = receiver.accept(SteadyClock::now() + std::chrono::milliseconds(20));
  ASSERT_FALSE(accepted);
  EXPECT_NE(accepted.error().message.find("0 of 2 senders"), std::string::npos) << accepted.error().message;
}

TEST(LossyTcpEndpoint, AnUnknownCongestionControlIsNamed) {
  Terms odd = terms(1);
  odd.arm.congestion = "none-such";
  TcpEndpoint receiver(odd, false);
  const auto listening = receiver.listen("127.0.0.1");
  ASSERT_FALSE(listening);
  EXPECT_NE(listening.error().message.find("none-such"), std::string::npos) << listening.error().message;
  EXPECT_EQ(listening.error().code, ErrorCode::kUnavailable);  // skipped, not failed
  odd.arm.carrier = Carrier::kClustarTcp;
  const auto transport = TransportEndpoint::create(odd, false);
  ASSERT_FALSE(transport);
  EXPECT_EQ(transport.error().code, ErrorCode::kUnavailable) << transport.error().message;
}

TEST(LossyTcpEndpoint, AKernelWithoutMptcpLeavesTheArmOut) {
  Result<std::vector<std::string>> listening;
  bool switched_off = false;
  std::thread([&] {
    // Its own network namespace, so that MPTCP is off for nobody else.
    if (unshare(CLONE_NEWNET) != 0) return;
    switched_off = static_cast<bool>(std::ofstream("/proc/sys/net/mptcp/enabled") << "0" << std::flush);
    Terms mptcp = terms(1);
    mptcp.arm = *find_arm("mptcp");
    TcpEndpoint receiver(mptcp, false);
    listening = receiver.listen("127.0.0.1");
  }).join();
  if (!switched_off) GTEST_SKIP() << "needs root and a kernel with MPTCP, to switch it off";
  ASSERT_FALSE(listening);
  EXPECT_EQ(listening.error().code, ErrorCode::kUnavailable) << listening.error().message;
  EXPECT_NE(listening.error().message.find("MPTCP"), std::string::npos) << listening.error().message;
}

// Until the limit is taken back, no descriptor can be made.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int lowest_free = dup(0);
    close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST(LossyTcpEndpoint, AnAcceptThatFailsForGoodIsAnError) {
  TcpEndpoint receiver(terms(1), false);
  const auto where = receiver.listen("127.0.0.1");
  ASSERT_TRUE(where) << where.error().message;
  TcpEndpoint sender(terms(1), true);
  ASSERT_TRUE(sender.connect(where->at(0), 0, soon()));  // waits in the backlog
  const NoMoreDescriptors limit;
  const auto accepted = receiver.accept(soon());
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, ErrorCode::kSystem);
  EXPECT_NE(accepted.error().message.find("cannot accept"), std::string::npos) << accepted.error().message;
}

// What a receiver asks of the kernel must never be more than the message still has.
TEST(LossyTcpEndpoint, SleepsUntilTheEndOfEachMessage) {
  TcpEndpoint receiver(terms(1), false), sender(terms(1), true);
  const auto where = receiver.listen("127.0.0.1");
  ASSERT_TRUE(where) << where.error().message;
  ASSERT_TRUE(sender.connect(where->at(0), 0, soon()));
  ASSERT_TRUE(receiver.accept(soon()));
  for (std::uint32_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(receiver.post(0, 0, round));
    ASSERT_TRUE(sender.post(0, 0, round));
    std::vector<Ended> sent, received;
    for (const auto until = soon(); received.empty() && SteadyClock::now() < until;) {
      ASSERT_TRUE(sender.progress(sent));
      ASSERT_TRUE(receiver.progress(received));
      if (received.empty()) receiver.sleep();
    }
    ASSERT_EQ(received.size(), 1u);
  }
}

TEST(LossyWorker, TermsSurviveTheControlConnection) {
  Terms sent = terms(15);
  sent.messages = 7;
  sent.rate_bps = 200'000'000;
  sent.deadline_ns = 55'000'000;
  const Terms got = terms_from(to_json(sent));
  EXPECT_EQ(got.arm.name, "tcp-cubic");
  EXPECT_EQ(got.senders, 15);
  EXPECT_EQ(got.message_bytes, 300'000u);
  EXPECT_EQ(got.messages, 7);
  EXPECT_EQ(got.window, 2);
  EXPECT_EQ(got.rate_bps, 200'000'000u);
  EXPECT_EQ(got.deadline_ns, 55'000'000);
  EXPECT_EQ(got.round_bytes(), 15u * 7 * 300'000);
}

}  // namespace
}  // namespace clustar::bench::lossy
