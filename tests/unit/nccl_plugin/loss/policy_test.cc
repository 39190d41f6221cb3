// The policy against an oracle that is written from the loss contract (architecture guide, points 1 to 3), condition by
// condition, over every combination of what its inputs may be.
#include "nccl_plugin/loss/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/loss/settings.h"
#include "transport/base/rng.h"

namespace clustar::nccl_plugin {
namespace {

using nccl_abi::kAllGather;
using nccl_abi::kAllReduce;
using nccl_abi::kLL128;
using nccl_abi::kReduceScatter;
using nccl_abi::kRing;
using nccl_abi::kSimple;
using nccl_abi::kTree;
using ::testing::HasSubstr;

constexpr int kUint64 = 5, kFloat16 = 6, kFloat32 = 7, kBfloat16 = 9, kFloat8E5M2 = 11;
constexpr std::uint64_t kWarmUp = 100;

LossSettings config_of(const std::string& rules, const std::string& classes = "") {
  LossSettings config;
  config.rules = rules;
  config.traffic_classes = classes;
  config.warmup = kWarmUp;
  return config;
}
LossPolicy policy_of(const std::string& rules, const std::string& classes = "") {
  return LossPolicy::create(config_of(rules, classes)).value();
}

CommFacts comm_of(std::uint32_t ranks, std::uint32_t nodes, const std::string& name = "dp0", int traffic_class = -1) {
  CommFacts comm;
  comm.comm_id = 77;
  comm.name = name;
  comm.ranks = ranks;
  comm.nodes = nodes;
  comm.traffic_class = traffic_class;
  return comm;
}

// One that may lose.
CollectiveFacts good_collective() {
  return {.function = kAllReduce,
          .datatype = kFloat32,
          .algorithm = kRing,
          .protocol = kSimple,
          .bytes = 1 << 24,
          .captured = false,
          .ordinal = kWarmUp};
}
MessageFacts good_message() {
  MessageFacts message;
  message.collective = good_collective();
  message.verdict = {Reason::kLossy, 10'000};
  message.identified = true;
  message.comm_id = 77;
  message.ledger_number = 5;
  message.ranks = 4;
  message.edges = 2;
  message.transfers = 24;  // two loops of 4 ranks
  message.transfer = 4;    // stage 2, the last that reduces
  message.in_order = true;
  message.size = 65536;
  return message;
}
ChannelFacts good_channel() { return {.comm_id = 77, .knows_comm = true, .tolerance_ppm = 10'000}; }
NetGuard good_guard() {
  return {.has = true, .same_comm = true, .op = 1u << kAllReduce, .algo = 1u << kRing, .proto = 1u << kSimple};
}

TEST(Reason, EachHasANameOfItsOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i <= kReasons; ++i) names.insert(name_of(static_cast<Reason>(i)));
  EXPECT_EQ(names.size(), kReasons + 1);
  EXPECT_STREQ(name_of(Reason::kGatherPhase), "gather-phase");
  EXPECT_STREQ(name_of(static_cast<Reason>(255)), "unknown");
}

TEST(LossPolicy, IsOffUnlessARuleAllowsLoss) {
  EXPECT_TRUE(LossPolicy().off());
  EXPECT_TRUE(policy_of("").off());
  EXPECT_TRUE(policy_of("comm=*,p=0").off());
  EXPECT_FALSE(policy_of("comm=*").off());
  EXPECT_FALSE(policy_of("", "160").off());
  EXPECT_EQ(decide(LossPolicy(), good_message(), good_channel(), good_guard()).reason, Reason::kNotOptedIn);
  EXPECT_EQ(LossPolicy().judge(comm_of(4, 4), good_collective(), false).reason, Reason::kNotOptedIn);
  EXPECT_EQ(LossPolicy().channel_tolerance_ppm(comm_of(4, 4)), 0u);
}

TEST(LossPolicy, BadSettingsAreErrors) {
  const auto error_of = [](const LossSettings& config) {
    const auto policy = LossPolicy::create(config);
    return policy ? "no error" : policy.error().message;
  };
  EXPECT_THAT(error_of(config_of("p=0.2")), HasSubstr("CLUSTAR_LOSS_RULES"));
  EXPECT_THAT(error_of(config_of("", "x")), HasSubstr("CLUSTAR_LOSS_TRAFFIC_CLASSES"));
  LossSettings config;
  config.tolerance_ppm = kMaxTolerancePpm + 1;
  EXPECT_THAT(error_of(config), HasSubstr("0 to 0.1"));
  config = {};
  config.critical_tolerance_ppm = kMaxTolerancePpm + 1;
  EXPECT_THAT(error_of(config), HasSubstr("CLUSTAR_LOSS_CRITICAL_TOLERANCE"));
  for (const double drop : {0.0, -1.0, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    config = {};
    config.critical_drop = drop;
    EXPECT_THAT(error_of(config), HasSubstr("CLUSTAR_LOSS_CRITICAL_DROP"));
  }
}

TEST(LossPolicy, TheFirstRuleThatFitsCounts) {
  const LossPolicy policy =
      policy_of("comm=dp?,bytes=32M-,p=0.05; comm=dp*,func=allreduce,p=0.02; comm=tp*,p=0; ranks=8", "160-167");
  const auto ppm = [&](const CommFacts& comm, int function, std::uint64_t bytes) {
    CollectiveFacts collective = good_collective();
    collective.function = function;
    collective.bytes = bytes;
    const CollectiveVerdict verdict = policy.judge(comm, collective, false);
    EXPECT_EQ(verdict.reason == Reason::kLossy, verdict.tolerance_ppm > 0);
    EXPECT_LE(verdict.tolerance_ppm, policy.channel_tolerance_ppm(comm));
    return verdict.tolerance_ppm;
  };
  EXPECT_EQ(ppm(comm_of(4, 4, "dp0"), kAllReduce, 32 << 20), 50'000u);
  EXPECT_EQ(ppm(comm_of(4, 4, "dp0"), kAllReduce, (32 << 20) - 1), 20'000u);
  EXPECT_EQ(ppm(comm_of(4, 4, "dp0"), kReduceScatter, 1 << 20), 0u);
  EXPECT_EQ(ppm(comm_of(8, 4, "dp0"), kReduceScatter, 1 << 20), 10'000u);
  EXPECT_EQ(ppm(comm_of(4, 4, "dp0", 163), kReduceScatter, 1 << 20), 10'000u);
  EXPECT_EQ(ppm(comm_of(8, 4, "tp0", 163), kAllReduce, 1 << 30), 0u) << "a rule with p=0 excludes";
  EXPECT_EQ(ppm(comm_of(4, 4, "", 160), kAllReduce, 1), 10'000u);
  EXPECT_EQ(ppm(comm_of(4, 4, "", 168), kAllReduce, 1), 0u);
  EXPECT_EQ(ppm(comm_of(4, 4, "", -1), kAllReduce, 1), 0u);

  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of(4, 4, "dp0")), 50'000u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of(4, 4, "dp_long")), 20'000u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of(8, 4, "tp0")), 0u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of(4, 4, "pp", 160)), 10'000u);
  EXPECT_EQ(policy.channel_tolerance_ppm(comm_of(4, 4, "pp")), 0u);
  // A rule for some sizes hides nothing of later ones, a rule for all sizes hides its function's.
  EXPECT_EQ(policy_of("bytes=1M-,p=0.01; p=0.05").channel_tolerance_ppm(comm_of(4, 4)), 50'000u);
  EXPECT_EQ(policy_of("func=allreduce,p=0; p=0.05").channel_tolerance_ppm(comm_of(4, 4)), 50'000u);
  EXPECT_EQ(policy_of("p=0.01; p=0.05").channel_tolerance_ppm(comm_of(4, 4)), 10'000u);
}

TEST(LossPolicy, CriticalPhasesLoseLess) {
  LossSettings config = config_of("comm=dp*,p=0.05; comm=*,p=0.002");
  const auto verdict = [&](const char* name) {
    return LossPolicy::create(config)->judge(comm_of(4, 4, name), good_collective(), true);
  };
  // Not set: loss_tolerance, 1 %.
  EXPECT_EQ(verdict("dp0").tolerance_ppm, 10'000u);
  EXPECT_EQ(verdict("other").tolerance_ppm, 2'000u);
  config.critical_tolerance_ppm = 1'000;
  EXPECT_EQ(verdict("dp0").tolerance_ppm, 1'000u);
  EXPECT_EQ(verdict("other").tolerance_ppm, 1'000u);
  config.critical_tolerance_ppm = 100'000;
  EXPECT_EQ(verdict("dp0").tolerance_ppm, 50'000u) << "never more than the rule's";
  config.critical_tolerance_ppm = 0;
  EXPECT_EQ(verdict("dp0").reason, Reason::kCritical);
  EXPECT_EQ(verdict("dp0").tolerance_ppm, 0u);
}

// All combinations, one per `code`: pick() chooses by its digits. `past_the_last` after all picks: there are no more.
class Combination {
 public:
  explicit Combination(std::uint64_t code) : code_(code) {}
  template <class T>
  T pick(std::initializer_list<T> values) {
    const T value = values.begin()[code_ % values.size()];
    code_ /= values.size();
    return value;
  }
  int pick_from(int low, int high) {
    const auto size = static_cast<std::uint64_t>(high - low + 1);
    const int value = low + static_cast<int>(code_ % size);
    code_ /= size;
    return value;
  }
  bool past_the_last() const { return code_ > 0; }

 private:
  std::uint64_t code_;
};

// One condition of an oracle: the reason if it does not hold.
struct Condition {
  bool holds;
  Reason otherwise;
};
Reason first_that_fails(std::initializer_list<Condition> conditions) {
  for (const Condition& condition : conditions) {
    if (!condition.holds) return condition.otherwise;
  }
  return Reason::kLossy;
}

TEST(LossPolicy, JudgesEveryKindOfCollective) {
  const LossPolicy policy = policy_of("comm=dp*,bytes=1K-");
  int lossy = 0;
  for (std::uint64_t code = 0;; ++code) {
    Combination next(code);
    const bool named = next.pick({true, false});
    const int function = next.pick_from(-1, 11), datatype = next.pick_from(-1, 13);
    const int algorithm = next.pick_from(-1, 7), protocol = next.pick_from(-1, 3);
    const auto bytes = next.pick<std::uint64_t>({0, 1023, 1024});
    const auto [ranks, nodes] = next.pick<std::pair<std::uint32_t, std::uint32_t>>(
        {{4, 4}, {4, 1}, {4, 0}, {0, 0}, {1, 1}, {2, 3}, {70'000, 2}});
    const bool captured = next.pick({false, true});
    const auto ordinal = next.pick<std::uint64_t>({kWarmUp - 1, kWarmUp});
    if (next.past_the_last()) break;
    const CollectiveFacts collective{function, datatype, algorithm, protocol, bytes, captured, ordinal};
    const CollectiveVerdict verdict = policy.judge(comm_of(ranks, nodes, named ? "dp0" : "tp0"), collective, false);
    const bool reduction = function == 3 || function == 4;
    const Reason expected = first_that_fails({
        {named && (!reduction || bytes != 1023), Reason::kNotOptedIn},
        {reduction, Reason::kNotReduction},
        {datatype >= kFloat16 && datatype <= kFloat8E5M2, Reason::kNotFloat},
        {algorithm == 1, Reason::kNotRing},
        {protocol == 2, Reason::kNotSimple},
        {bytes > 0 && ranks == 4 && nodes > 0, Reason::kUnknownSize},
        {!captured, Reason::kCaptured},
        {ordinal >= kWarmUp, Reason::kWarmUp},
    });
    ASSERT_EQ(name_of(verdict.reason), name_of(expected)) << function << " " << bytes << " " << ranks << " " << nodes;
    ASSERT_EQ(verdict.tolerance_ppm, expected == Reason::kLossy ? 10'000u : 0u);
    lossy += expected == Reason::kLossy;
  }
  EXPECT_EQ(lossy, 2 * 6 * 2);  // functions, datatypes, nodes
}

// The contract, of one message.
Reason oracle(const LossPolicy& policy, const MessageFacts& message, const ChannelFacts& channel,
              const NetGuard& guard) {
  const CollectiveFacts& collective = message.collective;
  const std::uint64_t n = message.ranks;
  const std::uint64_t loop = (collective.function == kAllReduce ? 2 : 1) * (n - 1) * 2;
  const bool steps_fit = n >= 2 && message.transfers % loop == 0 && message.transfer < message.transfers;
  const std::uint32_t function_bit = collective.function == kAllReduce ? 0x10 : 0x8;
  const bool said = guard.same_comm && guard.op != ~0u && guard.algo != ~0u && guard.proto != ~0u;
  return first_that_fails({
      {!policy.off(), Reason::kNotOptedIn},
      {message.identified || message.unidentified == Reason::kForeignProcess, Reason::kUnidentified},
      {message.identified, Reason::kForeignProcess},
      {message.verdict.reason == Reason::kLossy, message.verdict.reason},
      {message.verdict.tolerance_ppm > 0 && message.verdict.tolerance_ppm <= 100'000, Reason::kNotOptedIn},
      {collective.function == kAllReduce || collective.function == kReduceScatter, Reason::kNotReduction},
      {collective.datatype >= kFloat16 && collective.datatype <= kFloat8E5M2, Reason::kNotFloat},
      {collective.algorithm == kRing, Reason::kNotRing},
      {collective.protocol == kSimple, Reason::kNotSimple},
      {collective.bytes > 0 && n >= 2 && n <= 65'535 && message.edges >= 1 && message.edges <= n, Reason::kUnknownSize},
      {!collective.captured, Reason::kCaptured},
      {collective.ordinal >= policy.warm_up(), Reason::kWarmUp},
      {steps_fit && message.in_order, Reason::kStepsDiffer},
      {steps_fit && message.transfer % loop / 2 < n - 1, Reason::kGatherPhase},
      {message.size >= 65'536, Reason::kSmallMessage},
      {!channel.knows_comm || channel.comm_id == message.comm_id, Reason::kSharedChannel},
      {guard.has ? said : policy.trusts_profiler_alone(), Reason::kNoSecondGuard},
      {!guard.has || (guard.op == function_bit && guard.algo == 2 && guard.proto == 4), Reason::kGuardDisagrees},
      {channel.tolerance_ppm >= message.verdict.tolerance_ppm, Reason::kChannelReliable},
  });
}

// Decides, compares with the oracle, and checks the terms.
Reason checked(const LossPolicy& policy, const MessageFacts& message, const ChannelFacts& channel,
               const NetGuard& guard) {
  const Decision decision = decide(policy, message, channel, guard);
  const Reason expected = oracle(policy, message, channel, guard);
  const transport::LossTerms& terms = decision.loss;
  if (decision.reason != expected) {
    ADD_FAILURE() << name_of(decision.reason) << ", expected " << name_of(expected);
  }
  if (expected != Reason::kLossy) {
    EXPECT_EQ(terms.tolerance_ppm, 0u);
    EXPECT_EQ(terms.collective_bytes, 0u);
    return expected;
  }
  EXPECT_EQ(terms.communicator, message.comm_id);
  EXPECT_EQ(terms.collective, message.ledger_number);
  EXPECT_EQ(terms.collective_bytes, message.collective.bytes);
  EXPECT_EQ(terms.ranks, message.ranks);
  EXPECT_EQ(terms.edges, message.edges);
  EXPECT_LE(terms.stage, message.ranks - 2);
  EXPECT_EQ(terms.tolerance_ppm, message.verdict.tolerance_ppm);
  return expected;
}

const std::vector<NetGuard>& guards() {
  static const std::vector<NetGuard> all = [] {
    std::vector<NetGuard> made(7, good_guard());
    made[1] = {};               // below v11
    made[2].same_comm = false;  // spoke for another communicator
    made[3].proto = ~0u;        // the service thread's
    made[4].op = 1u << kReduceScatter;
    made[5].algo = 1u << kTree;
    made[6].proto = 1u << kLL128;
    return made;
  }();
  return all;
}

// Every combination of the kinds of each input; finer variants of each follow below.
TEST(Decide, EveryCombination) {
  LossSettings config = config_of("comm=dp*");
  config.trust_profiler = false;
  const LossPolicy strict = LossPolicy::create(config).value();
  config.trust_profiler = true;
  const LossPolicy trusting = LossPolicy::create(config).value();
  std::array<std::uint64_t, kReasons> seen{};
  for (std::uint64_t code = 0; !HasFailure(); ++code) {
    Combination next(code);
    MessageFacts message = good_message();
    ChannelFacts channel = good_channel();
    message.identified = next.pick({true, false});
    message.unidentified = next.pick({Reason::kUnidentified, Reason::kForeignProcess});
    message.verdict = next.pick<CollectiveVerdict>({{Reason::kLossy, 10'000}, {Reason::kLossy, 0}, {Reason::kWarmUp}});
    message.collective.function = next.pick({kAllReduce, kReduceScatter, kAllGather});
    message.collective.datatype = next.pick({kFloat32, kUint64});
    message.collective.algorithm = next.pick({kRing, kTree});
    message.collective.protocol = next.pick({kSimple, kLL128});
    message.collective.bytes = next.pick<std::uint64_t>({1 << 24, 0});
    message.edges = next.pick({2u, 5u});
    message.collective.captured = next.pick({false, true});
    message.collective.ordinal = next.pick({kWarmUp, kWarmUp - 1});
    message.transfer = next.pick({4u, 6u, 24u});  // reduces, gathers, is none
    message.in_order = next.pick({true, false});
    message.size = next.pick<std::size_t>({65536, 65535});
    channel.comm_id = next.pick({77u, 78u});
    channel.knows_comm = next.pick({true, false});
    channel.tolerance_ppm = next.pick({10'000u, 9'999u, 0u});
    const NetGuard& guard = guards()[static_cast<std::size_t>(next.pick_from(0, 6))];
    if (next.past_the_last()) break;
    ++seen[static_cast<std::size_t>(checked(strict, message, channel, guard))];
    if (!guard.has) ++seen[static_cast<std::size_t>(checked(trusting, message, channel, guard))];
  }
  for (std::size_t i = 0; i < kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    // Some verdicts come from judge() only.
    EXPECT_EQ(seen[i] > 0, reason != Reason::kCritical) << name_of(reason);
  }
}

// From a message that may lose, one thing is changed at a time, through everything that it may be.
TEST(Decide, OneByOneThroughAllValues) {
  const LossPolicy policy = policy_of("comm=dp*");
  const auto reason = [&](auto&& change) {
    MessageFacts message = good_message();
    ChannelFacts channel = good_channel();
    NetGuard guard = good_guard();
    change(message, channel, guard);
    return checked(policy, message, channel, guard);
  };
  using M = MessageFacts&;
  using C = ChannelFacts&;
  using G = NetGuard&;
  EXPECT_EQ(reason([](M, C, G) {}), Reason::kLossy);
  int lossy = 0;
  for (int value = -2; value < 260; ++value) {
    reason([=](M m, C, G) { m.collective.function = value; });
    lossy += reason([=](M m, C, G) { m.collective.datatype = value; }) == Reason::kLossy;
    lossy += reason([=](M m, C, G) { m.collective.algorithm = value; }) == Reason::kLossy;
    lossy += reason([=](M m, C, G) { m.collective.protocol = value; }) == Reason::kLossy;
    const auto any = static_cast<Reason>(value & 0xff);
    const Decision hostile = [&] {
      MessageFacts message = good_message();
      message.verdict.reason = any;
      return decide(policy, message, good_channel(), good_guard());
    }();
    EXPECT_LT(static_cast<std::size_t>(hostile.reason), kReasons);
    EXPECT_EQ(hostile.reason == Reason::kLossy, any == Reason::kLossy);
  }
  EXPECT_EQ(lossy, 6 + 1 + 1);
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    reason([=](M, C, G g) { g.op = 1u << bit; });
    reason([=](M, C, G g) { g.op |= 1u << bit; });
    reason([=](M, C, G g) { g.algo = 1u << bit; });
    reason([=](M, C, G g) { g.proto ^= 1u << bit; });
  }
  for (std::uint32_t transfer = 0; transfer <= 25; ++transfer) {
    const bool reduces = transfer < 24 && transfer % 12 < 6;
    EXPECT_EQ(reason([=](M m, C, G) { m.transfer = transfer; }) == Reason::kLossy, reduces) << transfer;
    EXPECT_EQ(reason([=](M m, C, G) { m.transfers = transfer + 5; }) == Reason::kLossy,
              transfer == 7 || transfer == 19);
  }
  for (const std::uint32_t ranks : {0u, 1u, 2u, 3u, 4u, 65'535u, 65'536u, 0xffffffffu}) {
    reason([=](M m, C, G) { m.ranks = ranks; });
    reason([=](M m, C, G) { m.edges = ranks; });
  }
  EXPECT_EQ(reason([](M m, C, G) { m.verdict.tolerance_ppm = 100'001; }), Reason::kNotOptedIn);
  EXPECT_EQ(reason([](M, C c, G) { c.tolerance_ppm = 100'000; }), Reason::kLossy);
}

TEST(Decide, TheLargestRingFits) {
  MessageFacts message = good_message();
  message.ranks = message.edges = 65'535;
  message.transfers = 4 * 65'534;
  message.transfer = 2 * 65'534 - 1;
  const Decision decision = decide(policy_of("comm=dp*"), message, good_channel(), good_guard());
  EXPECT_EQ(decision.reason, Reason::kLossy);
  EXPECT_EQ(decision.loss.stage, 65'533);
  EXPECT_EQ(decision.loss.ranks, 65'535);
}

// Of facts that are mostly sound, so that many pass, and then of any.
TEST(Decide, AMillionMessages) {
  Rng rng(11);
  const LossPolicy policy = policy_of("comm=dp*");
  std::uint64_t lossy = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    const double sound = i % 2 == 0 ? 0.95 : 0.5;
    const auto pick = [&](auto good, std::uint64_t bound) {
      return rng.chance(sound) ? good : static_cast<decltype(good)>(rng.below(bound));
    };
    MessageFacts message = good_message();
    message.identified = rng.chance(sound);
    message.unidentified = static_cast<Reason>(rng.below(256));
    message.verdict = {pick(Reason::kLossy, 256), pick(10'000u, 200'000)};
    message.collective.function = pick(rng.chance(0.5) ? int{kAllReduce} : int{kReduceScatter}, 12);
    message.collective.datatype = pick(int{kBfloat16}, 14);
    message.collective.algorithm = pick(int{kRing}, 8);
    message.collective.protocol = pick(int{kSimple}, 4);
    message.collective.bytes = pick(std::uint64_t{1} << 30, 2);
    message.collective.captured = !rng.chance(sound);
    message.collective.ordinal = pick(kWarmUp, 200);
    message.comm_id = pick(std::uint64_t{77}, 79);
    message.ranks = pick(2 + static_cast<std::uint32_t>(rng.below(15)), 70'000);
    message.edges = pick(1 + static_cast<std::uint32_t>(rng.below(message.ranks + 1)), 70'000);
    message.transfers = pick(4 * (message.ranks - 1) * (1 + static_cast<std::uint32_t>(rng.below(4))), 1'000);
    message.transfer = static_cast<std::uint32_t>(rng.below(message.transfers + 2));
    message.in_order = rng.chance(sound);
    message.size = pick(std::size_t{65536}, 200'000);
    ChannelFacts channel = good_channel();
    channel.knows_comm = rng.chance(sound);
    channel.tolerance_ppm = pick(100'000u, 200'000);
    NetGuard guard{.has = rng.chance(sound),
                   .same_comm = rng.chance(sound),
                   .op = pick(1u << (message.collective.function & 31), 1u << 12),
                   .algo = pick(1u << kRing, 1u << 8),
                   .proto = pick(1u << kSimple, 1u << 4)};
    const Decision decision = decide(policy, message, channel, guard);
    // A verdict's reason that is none is the only one that the oracle does not know.
    if (message.verdict.reason < Reason::kCount) {
      ASSERT_EQ(name_of(decision.reason), name_of(oracle(policy, message, channel, guard))) << i;
    }
    ASSERT_EQ(decision.reason == Reason::kLossy, decision.loss.tolerance_ppm > 0);
    if (decision.reason == Reason::kLossy) {
      ASSERT_EQ(checked(policy, message, channel, guard), Reason::kLossy) << i;
      ++lossy;
    }
  }
  EXPECT_GT(lossy, 20'000u);
}

}  // namespace
}  // namespace clustar::nccl_plugin
