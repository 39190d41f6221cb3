// Sends of a direct exchange: the same contract, with what NCCL says of sends.
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/policy.h"
#include "nccl_plugin/loss/settings.h"
#include "transport/base/rng.h"

namespace clustar::nccl_plugin {
namespace {

using nccl_abi::kAllReduce;
using nccl_abi::kAlltoAll;
using nccl_abi::kLL;
using nccl_abi::kRecv;
using nccl_abi::kReduceScatter;
using nccl_abi::kRing;
using nccl_abi::kSend;
using nccl_abi::kSendRecv;
using nccl_abi::kSimple;
using nccl_abi::kTree;

constexpr int kFloat32 = nccl_abi::kFloat32, kUint64 = 5;
constexpr std::uint64_t kWarmUp = 100;
constexpr std::uint64_t kSendBytes = 1 << 20;

LossPolicy policy_of(const std::string& rules, const std::string& classes = "", bool trusts = false) {
  LossSettings config;
  config.rules = rules;
  config.traffic_classes = classes;
  config.warmup = kWarmUp;
  config.trust_profiler = trusts;
  return LossPolicy::create(config).value();
}

CommFacts comm_of(const std::string& name, int traffic_class = -1) {
  CommFacts comm;
  comm.comm_id = 77;
  comm.name = name;
  comm.ranks = comm.nodes = 4;
  comm.traffic_class = traffic_class;
  return comm;
}

CollectiveFacts good_send() {
  return {.function = kSend,
          .datatype = kFloat32,
          .algorithm = -1,
          .protocol = -1,
          .bytes = kSendBytes,
          .captured = false,
          .ordinal = kWarmUp};
}

MessageFacts good_message() {
  MessageFacts message;
  message.collective = good_send();
  message.verdict = {Reason::kLossy, 10'000};
  message.identified = true;
  message.comm_id = 77;
  message.ledger_number = 5;
  message.ranks = 4;
  message.edges = 4;
  message.transfers = 8;
  message.transfer = 3;
  message.in_order = true;
  message.size = 128 * 1024;
  message.channels = 1;
  message.receiver = 2;
  return message;
}
ChannelFacts good_channel() { return {.comm_id = 77, .knows_comm = true, .tolerance_ppm = 10'000}; }
// What NCCL says before it sends: algorithm and protocol are another operation's.
NetGuard good_guard() {
  return {.has = true, .same_comm = true, .op = 1u << kSend, .algo = 1u << kTree, .proto = 1u << kLL};
}

TEST(LossPolicySends, AreNeverImplied) {
  for (const char* const rules : {"comm=*", "func=any", "func=allreduce;func=reducescatter", ""}) {
    const LossPolicy policy = policy_of(rules, "160-167");
    EXPECT_FALSE(policy.allows_sends()) << rules;
    EXPECT_EQ(policy.judge(comm_of("dp0", 163), good_send(), false).reason, Reason::kNotReduction) << rules;
    EXPECT_EQ(decide(policy, good_message(), good_channel(), good_guard()).reason, Reason::kNotReduction) << rules;
  }
  EXPECT_FALSE(policy_of("func=sendrecv,p=0;comm=*").allows_sends());
  EXPECT_TRUE(policy_of("comm=dp*,func=sendrecv").allows_sends());
}

TEST(LossPolicySends, ARuleForThemIsForNothingElse) {
  const LossPolicy policy = policy_of("comm=dp*,func=sendrecv,bytes=128K-1M,p=0.02;comm=tp*,func=allreduce");
  const auto judge = [&](const char* name, int function, std::uint64_t bytes) {
    CollectiveFacts task = good_send();
    task.function = function;
    task.bytes = bytes;
    if (function != kSend) {
      task.algorithm = kRing;
      task.protocol = kSimple;
    }
    return policy.judge(comm_of(name), task, false);
  };
  EXPECT_EQ(judge("dp0", kSend, 1 << 20).reason, Reason::kLossy);
  EXPECT_EQ(judge("dp0", kSend, 1 << 20).tolerance_ppm, 20'000u);
  EXPECT_EQ(judge("dp0", kSend, 1 << 16).reason, Reason::kNotOptedIn) << "too small for its rule";
  EXPECT_EQ(judge("dp0", kSend, 0).reason, Reason::kUnknownSize);
  EXPECT_EQ(judge("dp0", kAllReduce, 1 << 20).reason, Reason::kNotOptedIn);
  EXPECT_EQ(judge("dp0", kReduceScatter, 1 << 20).reason, Reason::kNotOptedIn);
  EXPECT_EQ(judge("dp0", kRecv, 1 << 20).reason, Reason::kNotReduction);
  EXPECT_EQ(judge("dp0", kSendRecv, 1 << 20).reason, Reason::kNotReduction) << "no event has this name";
  EXPECT_EQ(judge("tp0", kSend, 1 << 20).reason, Reason::kNotReduction);
  EXPECT_EQ(judge("tp0", kAllReduce, 1 << 20).reason, Reason::kLossy);
  EXPECT_EQ(judge("pp0", kSend, 1 << 20).reason, Reason::kNotOptedIn);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of("dp0")), 20'000u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of("tp0")), 10'000u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of("pp0")), 0u);
}

TEST(LossPolicySends, WhatARuleMakesReliableStaysSo) {
  const LossPolicy policy = policy_of("comm=tp*,p=0;func=allreduce,comm=pp*,p=0;func=sendrecv");
  EXPECT_EQ(policy.judge(comm_of("tp0"), good_send(), false).reason, Reason::kNotOptedIn);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of("tp0")), 0u);
  EXPECT_EQ(policy.judge(comm_of("pp0"), good_send(), false).reason, Reason::kLossy) << "only its all-reduces";
  EXPECT_EQ(policy.judge(comm_of("dp0"), good_send(), false).reason, Reason::kLossy);
}

TEST(LossPolicySends, OfUnknownChannelsAreReliable) {
  MessageFacts message = good_message();
  const LossPolicy policy = policy_of("func=sendrecv");
  EXPECT_EQ(decide(policy, message, good_channel(), good_guard()).reason, Reason::kLossy);
  message.channels = 0;
  EXPECT_EQ(decide(policy, message, good_channel(), good_guard()).reason, Reason::kNotSimple);
}

TEST(LossPolicySends, AreJudgedByTypeCaptureAndWarmUp) {
  const LossPolicy policy = policy_of("func=sendrecv");
  const auto reason = [&](auto&& change) {
    CollectiveFacts send = good_send();
    change(send);
    return policy.judge(comm_of("dp0"), send, false).reason;
  };
  EXPECT_EQ(reason([](CollectiveFacts&) {}), Reason::kLossy);
  EXPECT_EQ(reason([](CollectiveFacts& send) { send.datatype = kUint64; }), Reason::kNotFloat);
  EXPECT_EQ(reason([](CollectiveFacts& send) { send.protocol = kLL; }), Reason::kNotSimple);
  EXPECT_EQ(reason([](CollectiveFacts& send) { send.protocol = kSimple; }), Reason::kLossy);
  EXPECT_EQ(reason([](CollectiveFacts& send) { send.captured = true; }), Reason::kCaptured);
  EXPECT_EQ(reason([](CollectiveFacts& send) { --send.ordinal; }), Reason::kWarmUp);
}

// One condition of the oracle: the reason if it does not hold.
struct Condition {
  bool holds;
  Reason otherwise;
};

// The contract, of one message of a send.
Reason oracle(const LossPolicy& policy, const MessageFacts& message, const ChannelFacts& channel,
              const NetGuard& guard) {
  const CollectiveFacts& send = message.collective;
  const std::uint64_t share = (send.bytes + message.channels - 1) / message.channels;
  const std::uint64_t part = std::min<std::uint64_t>(send.bytes, (share + 4095) / 4096 * 4096);
  const bool data_only = message.size <= part && (message.transfers - 1) * std::uint64_t{message.size} < part;
  const std::array<Condition, 14> conditions{{
      {message.identified, Reason::kUnidentified},
      {message.verdict.reason == Reason::kLossy, message.verdict.reason},
      {message.verdict.tolerance_ppm > 0, Reason::kNotOptedIn},
      {send.datatype == kFloat32, Reason::kNotFloat},
      {send.protocol != kLL && (data_only || send.bytes == 0), Reason::kNotSimple},
      {send.bytes > 0, Reason::kUnknownSize},
      {!send.captured, Reason::kCaptured},
      {send.ordinal >= kWarmUp, Reason::kWarmUp},
      {message.in_order && message.transfer < message.transfers, Reason::kStepsDiffer},
      {message.size >= 65'536, Reason::kSmallMessage},
      {!channel.knows_comm || channel.comm_id == message.comm_id, Reason::kSharedChannel},
      {guard.has ? guard.same_comm && guard.op != ~0u : policy.trusts_profiler_alone(), Reason::kNoSecondGuard},
      {!guard.has || guard.op == 1u << kSend, Reason::kGuardDisagrees},
      {channel.tolerance_ppm >= message.verdict.tolerance_ppm, Reason::kChannelReliable},
  }};
  for (const Condition& condition : conditions) {
    if (!condition.holds) return condition.otherwise;
  }
  return Reason::kLossy;
}

NetGuard draw_guard(Rng& rng) {
  NetGuard guard = good_guard();
  switch (rng.below(12)) {
    case 0: guard = {}; break;  // below v11
    case 1: guard.same_comm = false; break;
    case 2: guard.op = 1u << kAlltoAll; break;  // sends too, but of another function
    case 3: guard.op = 1u << kSend | 1u << kRecv; break;
    case 4: guard.op = ~0u; break;
    case 5: guard.op = 1u << kAllReduce; break;
    case 6: guard.algo = guard.proto = ~0u; break;  // nothing but sends so far
    default: break;
  }
  return guard;
}

// Each of the facts is sound nine times of ten.
TEST(DecideSends, AHalfMillionMessages) {
  Rng rng(31);
  const LossPolicy strict = policy_of("comm=dp*,func=sendrecv");
  const LossPolicy trusting = policy_of("comm=dp*,func=sendrecv", "", true);
  std::array<std::uint64_t, kReasons> seen{};
  const auto wrong = [&] { return rng.below(16) == 0; };
  for (int i = 0; i < 500'000; ++i) {
    MessageFacts message = good_message();
    message.channels = 1u << rng.below(3);  // no shorter part
    const std::uint64_t part = kSendBytes / message.channels;
    const std::uint64_t chunk = (std::uint64_t{32} << rng.below(4)) * 1024;
    message.transfers = static_cast<std::uint32_t>((part + chunk - 1) / chunk);
    message.size = chunk;
    if (wrong()) message.size *= 2;  // flags among the data
    if (wrong()) message.size = 1 + rng.below(65'536);
    message.transfer = static_cast<std::uint32_t>(rng.below(message.transfers + (wrong() ? 2 : 0)));
    message.identified = !wrong();
    if (wrong()) message.verdict = {Reason::kWarmUp, 0};
    if (wrong()) message.verdict.tolerance_ppm = 0;
    if (wrong()) message.collective.datatype = kUint64;
    if (wrong()) message.collective.protocol = rng.below(2) == 0 ? int{kLL} : int{kSimple};
    if (wrong()) message.collective.bytes = 0;
    message.collective.captured = wrong();
    if (wrong()) message.collective.ordinal = rng.below(kWarmUp);
    message.in_order = !wrong();
    ChannelFacts channel = good_channel();
    if (wrong()) channel.comm_id = 78;
    if (wrong()) channel.knows_comm = false;
    if (wrong()) channel.tolerance_ppm = 9'999;
    const NetGuard guard = draw_guard(rng);
    const LossPolicy& policy = rng.below(2) == 0 ? strict : trusting;
    const Decision decision = decide(policy, message, channel, guard);
    const Reason expected = oracle(policy, message, channel, guard);
    ASSERT_EQ(name_of(decision.reason), name_of(expected)) << i;
    ++seen[static_cast<std::size_t>(expected)];
    ASSERT_EQ(decision.loss.tolerance_ppm > 0, expected == Reason::kLossy);
    if (expected != Reason::kLossy) continue;
    // E = 1: the receiver's ledger is one for all who send to it, p * S * n.
    ASSERT_EQ(decision.loss.communicator, 77u);
    ASSERT_EQ(decision.loss.collective, 5u);
    ASSERT_TRUE(decision.loss.exchange);
    ASSERT_EQ(decision.loss.collective_bytes, kSendBytes);
    ASSERT_EQ(decision.loss.ranks, 4);
    ASSERT_EQ(decision.loss.edges, 1);
    ASSERT_EQ(decision.loss.stage, 0);
  }
  for (const Reason reason : {Reason::kLossy, Reason::kNotSimple, Reason::kStepsDiffer, Reason::kSmallMessage,
                              Reason::kGuardDisagrees, Reason::kNoSecondGuard, Reason::kChannelReliable}) {
    EXPECT_GT(seen[static_cast<std::size_t>(reason)], 500u) << name_of(reason);
  }
}

// As NCCL would cut a send into parts and steps, in LL and in Simple.
struct Cut {
  std::uint32_t channels;
  std::uint64_t chunk;  // bytes of data

  std::uint64_t part(std::uint64_t bytes, std::uint32_t channel) const {
    const std::uint64_t full = ((bytes + channels - 1) / channels + 4095) / 4096 * 4096;
    return std::min(bytes, (channel + 1) * full) - std::min(bytes, channel * full);
  }
};

// LL of up to 16 KiB per channel is NCCL's default for sends; whatever a user raised that to, no transfer of it may
// lose. Simple loses wherever its sizes leave no doubt.
TEST(DecideSends, NoTransferOfLLMayLose) {
  const LossPolicy policy = policy_of("func=sendrecv");
  Rng rng(8);
  std::uint64_t sure = 0;
  std::uint64_t doubtful = 0;
  for (int i = 0; i < 20'000; ++i) {
    MessageFacts message = good_message();
    const std::uint64_t step = std::uint64_t{32 * 1024} << rng.below(4);
    const Cut cut{1 + static_cast<std::uint32_t>(rng.below(8)), step};
    message.channels = cut.channels;
    message.collective.bytes = 1 + rng.below(8 << 20);
    for (std::uint32_t channel = 0; channel < cut.channels; ++channel) {
      const std::uint64_t part = cut.part(message.collective.bytes, channel);
      if (part == 0) continue;
      // Half of LL's step is flags.
      constexpr std::uint64_t kStepLL = 32 * 1024;
      message.transfers = static_cast<std::uint32_t>((part + kStepLL - 1) / kStepLL);
      for (message.transfer = 0; message.transfer < message.transfers; ++message.transfer) {
        message.size = (2 * std::min(kStepLL, part - message.transfer * kStepLL) + 15) / 16 * 16;
        ASSERT_NE(decide(policy, message, good_channel(), good_guard()).reason, Reason::kLossy)
            << message.collective.bytes << " over " << cut.channels << ", channel " << channel;
      }
      message.transfers = static_cast<std::uint32_t>((part + step - 1) / step);
      for (message.transfer = 0; message.transfer < message.transfers; ++message.transfer) {
        message.size = std::min(step, part - message.transfer * step);
        if (message.size < 65'536) continue;
        const Reason simple = decide(policy, message, good_channel(), good_guard()).reason;
        ASSERT_TRUE(simple == Reason::kLossy || (simple == Reason::kNotSimple && cut.channels > 1)) << name_of(simple);
        ++(simple == Reason::kLossy ? sure : doubtful);
      }
    }
  }
  EXPECT_LT(doubtful, sure / 10);
}

}  // namespace
}  // namespace clustar::nccl_plugin
