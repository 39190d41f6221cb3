// The simulator: times by hand, CoflowSim's ticks and epochs, and policies that keep their promises in it.
#include "bench/coflow/replay.h"

#include <gtest/gtest.h>

#include "bench/coflow/generator.h"
#include "bench/coflow/summary.h"
#include "coflow/registry.h"

namespace clustar::bench::coflow {
namespace {

using std::chrono::milliseconds;

Replay run(const Trace& trace, const Rules& rules, const std::string& policy) {
  TraceWorkload workload(trace);
  auto replayed = replay(workload, rules, clustar::coflow::find_policy(policy).value());
  EXPECT_TRUE(replayed) << policy << ": " << replayed.error().message;
  return replayed ? std::move(*replayed) : Replay{};
}

Trace two_on_one_port() {
  Trace trace{"two", 3, {}};
  trace.coflows.push_back({.label = 1, .arrival = TimePoint(milliseconds(0)), .flows = {{0, 1, 1000}}});
  trace.coflows.push_back({.label = 2, .arrival = TimePoint(milliseconds(100)), .flows = {{0, 2, 100}}});
  return trace;
}

TEST(CoflowReplay, TimesByHand) {
  Rules rules;
  rules.port_rate = 1000;
  // 900 bytes are left when the second comes. Alone it takes 100 ms.
  const struct {
    const char* policy;
    double first, second;
  } cases[] = {{"fifo", 1, 1}, {"sebf", 1.1, 0.1}, {"match", 1.1, 0.1}, {"bssi", 1.1, 0.1}, {"maxmin", 1.1, 0.2}};
  for (const auto& one : cases) {
    const Replay replayed = run(two_on_one_port(), rules, one.policy);
    ASSERT_EQ(replayed.coflows.size(), 2u);
    EXPECT_NEAR(replayed.coflows[0].cct_s(), one.first, 0.002) << one.policy;
    EXPECT_NEAR(replayed.coflows[1].cct_s(), one.second, 0.002) << one.policy;
    EXPECT_NEAR(replayed.coflows[1].isolated_s, 0.1, 1e-9);
  }
}

TEST(CoflowReplay, GivesUpWithinTheSimulationWhenItIsToStop) {
  Rules rules;
  rules.port_rate = 1000;
  const Trace trace = two_on_one_port();
  for (const int steps : {0, 1, 2}) {
    TraceWorkload workload(trace);
    int asked = 0;
    const auto replayed =
        replay(workload, rules, clustar::coflow::find_policy("sebf").value(), {}, [&] { return asked++ == steps; });
    ASSERT_FALSE(replayed) << steps;
    EXPECT_EQ(replayed.error().code, ErrorCode::kUnavailable);
    EXPECT_EQ(replayed.error().message, "interrupted");
    EXPECT_EQ(asked, steps + 1);
  }
}

TEST(CoflowReplay, EndsAtTicksAndBeginsAtEpochs) {
  Rules rules;
  rules.port_rate = 1000;
  rules.tick = milliseconds(8);
  rules.epoch = milliseconds(10240);
  Trace trace{"epochs", 2, {}};
  trace.coflows.push_back({.label = 1, .arrival = TimePoint(milliseconds(10240)), .flows = {{0, 1, 100}}});
  trace.coflows.push_back({.label = 2, .arrival = TimePoint(milliseconds(10241)), .flows = {{0, 1, 100}}});
  const Replay replayed = run(trace, rules, "sebf");
  EXPECT_EQ(replayed.coflows[0].began, TimePoint{}) << "what comes at the end of an epoch counts from its begin";
  EXPECT_EQ(replayed.coflows[0].ended, TimePoint(milliseconds(104))) << "13 ticks for 100 ms";
  EXPECT_EQ(replayed.coflows[1].began, TimePoint(milliseconds(10240)));
  EXPECT_EQ(replayed.coflows[1].ended, TimePoint(milliseconds(10344)));
}

// Also where a refill is no whole number of ticks.
TEST(CoflowReplay, AllEndsAreTicks) {
  Rules rules = coflowsim_rules();
  rules.refill = milliseconds(100);
  const Trace trace = generate({.ports = 12, .coflows = 40, .load = 0.9, .seed = 3}, 1 << 27);
  for (const auto& policy : clustar::coflow::policies()) {
    for (const CoflowResult& one : run(trace, rules, std::string(policy.name)).coflows) {
      EXPECT_EQ((one.ended - TimePoint{}) % milliseconds(8), Duration(0)) << policy.name;
      EXPECT_GT(one.ended, one.began) << policy.name;
    }
  }
}

// An arrival that changes nothing does not make the ends that were gathered wait for another.
TEST(CoflowReplay, EmptyArrivalsDelayNothing) {
  const auto makespan = [](bool with_empty) {
    Rules rules;
    rules.port_rate = 1000;
    rules.refill = milliseconds(100);
    Trace trace{"gathered", 4, {}};
    trace.coflows.push_back({.label = 1, .arrival = TimePoint{}, .flows = {{0, 1, 8}, {0, 2, 8000}}});
    trace.coflows.push_back({.label = 2, .arrival = TimePoint{}, .flows = {{3, 1, 16000}}});
    if (with_empty) trace.coflows.push_back({.label = 3, .arrival = TimePoint(milliseconds(50)), .flows = {}});
    return summarize("bssi", "", run(trace, rules, "bssi")).makespan_s;
  };
  EXPECT_NEAR(makespan(true), makespan(false), 0.1);
}

TEST(CoflowReplay, CoflowsWithoutBytesTakeNoTime) {
  Trace trace{"empty", 2, {}};
  trace.coflows.push_back({.label = 1, .arrival = TimePoint(milliseconds(5)), .flows = {{0, 1, 0}}});
  trace.coflows.push_back({.label = 2, .arrival = TimePoint(milliseconds(5)), .flows = {}});
  const Replay replayed = run(trace, {}, "match");
  ASSERT_EQ(replayed.coflows.size(), 2u);
  EXPECT_EQ(replayed.coflows[0].cct_s(), 0);
  EXPECT_TRUE(run({"nothing", 2, {}}, {}, "match").coflows.empty());
}

TEST(CoflowReplay, RejectedCoflowsAreNotSent) {
  Rules rules;
  rules.port_rate = 1000;
  Trace trace{"deadlines", 2, {}};
  for (std::uint64_t i = 0; i < 3; ++i) {
    trace.coflows.push_back(
        {.label = i, .arrival = TimePoint{}, .deadline = milliseconds(1000), .flows = {{0, 1, 400}}});
  }
  const Summary summary = summarize("sebf", "exact", run(trace, rules, "sebf:deadlines=1"));
  EXPECT_EQ(summary.coflows, 2u);
  EXPECT_EQ(summary.rejected, 1u);
  EXPECT_EQ(summary.late, 0u);
}

// Bytes counted tick by tick end with the same coflows at the same ticks, but for rounding.
TEST(CoflowReplay, TickByTickIsTheSame) {
  const Trace trace = generate({.ports = 12, .coflows = 40, .load = 0.9, .seed = 3}, 1 << 27);
  Rules rules = coflowsim_rules();
  for (const char* policy : {"sebf", "dark", "fifo"}) {
    rules.tick_by_tick = false;
    const double at_once = summarize(policy, "", run(trace, rules, policy)).average_s;
    rules.tick_by_tick = true;
    EXPECT_NEAR(summarize(policy, "", run(trace, rules, policy)).average_s / at_once, 1, 0.01) << policy;
  }
}

// At any load, ours is never worse than fair sharing.
TEST(CoflowReplay, OursIsNeverWorseThanMaxMinFairness) {
  for (const double load : {0.3, 0.6, 0.95, 3.0}) {
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      Rules rules;
      const Trace trace = generate({.ports = 16, .coflows = 100, .load = load, .seed = seed}, rules.port_rate);
      const double ours = summarize("match", "", run(trace, rules, "match")).average_s;
      const double fair = summarize("maxmin", "", run(trace, rules, "maxmin")).average_s;
      EXPECT_LT(ours, fair) << "load " << load << " seed " << seed;
    }
  }
}

TEST(CoflowSummary, CountsByKind) {
  Replay replayed;
  const auto add = [&](double s, double longest, std::size_t flows) {
    CoflowResult one;
    one.ended = TimePoint(Duration(static_cast<Duration::rep>(s * 1e9)));
    one.longest_flow = longest;
    one.flows = flows;
    one.isolated_s = 1;
    replayed.coflows.push_back(one);
  };
  add(1, 1e6, 50);
  add(2, 1e7, 50);
  add(3, 1e6, 51);
  add(4, 1e7, 51);
  const Summary summary = summarize("p", "r", replayed);
  EXPECT_EQ(summary.average_s, 2.5);
  EXPECT_EQ(summary.median_s, 2);
  EXPECT_EQ(summary.max_s, 4);
  EXPECT_EQ(summary.sum_ms, 10000);
  EXPECT_EQ(summary.bin_average_s, (std::array<double, 4>{1, 2, 3, 4}));
  EXPECT_EQ(summary.slowdown_mean, 2.5);
}

}  // namespace
}  // namespace clustar::bench::coflow
