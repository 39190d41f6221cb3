// Jobs as a closed loop: times by hand, GPUs that are waited for, loads.
#include "bench/coflow/jobs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/coflow/summary.h"
#include "coflow/registry.h"
#include "transport/base/rng.h"

namespace clustar::bench::coflow {
namespace {

using ms = std::chrono::milliseconds;
using Seconds = std::vector<double>;

constexpr double kBytesPerS = 1e9;
constexpr double kByMs = 1e6;  // bytes

std::vector<JobResult> run_jobs(const JobMix& mix, const std::string& policy) {
  Rules rules;
  rules.port_rate = kBytesPerS;
  JobWorkload workload(mix, kBytesPerS);
  const auto replayed = replay(workload, rules, clustar::coflow::find_policy(policy).value());
  EXPECT_TRUE(replayed) << policy << ": " << replayed.error().message;
  return workload.results();
}

void expect_near(const Seconds& actual, const Seconds& expected, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-6) << what << ", " << i;
}

// 100 ms of compute, then 100 ms of sending where nobody else does.
Job half_and_half(const std::string& name, std::size_t iterations) {
  return {.name = name, .iterations = iterations, .phases = {{ms(100), {{0, 1, 100 * kByMs}}}}};
}

JobMix placed(std::size_t ports, std::size_t gpus_per_port, std::vector<Job> jobs) {
  return {"mix", ports, gpus_per_port, std::move(jobs)};
}

// `sends_ms` where nobody else does.
Job on_gpus(std::size_t gpus, std::size_t iterations, double sends_ms, ms begins = ms(0)) {
  return {.name = "job",
          .begins = TimePoint(begins),
          .iterations = iterations,
          .phases = {{ms(100), {}, sends_ms * kByMs}},
          .gpus = gpus};
}

TEST(CoflowJobs, AloneAJobTakesWhatItTakesAlone) {
  // 50 + 100 + 25 + 75 + 10 ms: the second phase stays within a port, the third has its bottleneck at port 0.
  const Job job{.name = "one",
                .begins = TimePoint(ms(7)),
                .iterations = 3,
                .phases = {{ms(50), {{0, 1, 100 * kByMs}}},
                           {ms(25), {}},
                           {ms(0), {{0, 1, 25 * kByMs}, {0, 2, 50 * kByMs}, {2, 1, 50 * kByMs}}}},
                .compute_after = ms(10)};
  const Alone once = alone(job.phases, job.compute_after, kBytesPerS);
  EXPECT_NEAR(once.compute_s, 0.085, 1e-12);
  EXPECT_NEAR(once.communication_s, 0.175, 1e-12);
  for (const auto& policy : clustar::coflow::policies()) {
    if (policy.name == "fair" || policy.name == "dark" || policy.name == "pfp") continue;  // waste what is free
    const auto results = run_jobs({"mix", 3, 0, {job}}, std::string(policy.name));
    expect_near(results[0].iterations_s, {0.26, 0.26, 0.26}, std::string(policy.name));
    EXPECT_EQ(results[0].began, TimePoint(ms(7)));
    EXPECT_NEAR(std::chrono::duration<double>(results[0].ended - results[0].began).count(), 0.78, 1e-6);
    EXPECT_NEAR(results[0].alone_s, 0.26, 1e-12);
  }
}

// Fair sharing keeps both in step: each takes twice as long to send, forever. An order lets one go ahead once, and
// from then on one computes while the other sends.
TEST(CoflowJobs, AnOrderMakesTwoJobsTakeTurns) {
  const JobMix mix{"mix", 2, 0, {half_and_half("a", 4), half_and_half("b", 4)}};
  const auto fair = run_jobs(mix, "maxmin");
  expect_near(fair[0].iterations_s, {0.3, 0.3, 0.3, 0.3}, "maxmin");
  expect_near(fair[1].iterations_s, {0.3, 0.3, 0.3, 0.3}, "maxmin");
  for (const char* policy : {"fifo", "sebf", "bssi", "match"}) {
    const auto ordered = run_jobs(mix, policy);
    const bool first = ordered[0].iterations_s[0] < 0.25;
    expect_near(ordered[first ? 0 : 1].iterations_s, {0.2, 0.2, 0.2, 0.2}, policy);
    expect_near(ordered[first ? 1 : 0].iterations_s, {0.3, 0.2, 0.2, 0.2}, policy);
  }
}

TEST(CoflowJobs, TheWeightIsItsCoflows) {
  JobMix mix{"mix", 2, 0, {half_and_half("a", 2), half_and_half("b", 2)}};
  for (const std::size_t heavy : {0, 1}) {
    mix.jobs[heavy].weight = 10;
    mix.jobs[1 - heavy].weight = 1;
    for (const char* policy : {"sebf", "bssi", "match"}) {
      expect_near(run_jobs(mix, policy)[heavy].iterations_s, {0.2, 0.2}, policy);
    }
  }
}

TEST(CoflowJobs, WithoutNetworkAJobOnlyComputes) {
  const JobMix mix{
      "mix",
      2,
      0,
      {{.name = "a", .iterations = 2, .phases = {{ms(5), {}}, {ms(6), {{0, 1, 0}}}}, .compute_after = ms(7)}}};
  expect_near(run_jobs(mix, "match")[0].iterations_s, {0.018, 0.018}, "compute only");
}

TEST(CoflowJobs, SpreadOverThePortsWithMostFree) {
  const JobMix mix = placed(3, 2, {on_gpus(4, 1, 60), on_gpus(2, 1, 60)});
  JobWorkload workload(mix, kBytesPerS);
  ASSERT_EQ(workload.next_arrival(), TimePoint(ms(100)));
  workload.reached(TimePoint(ms(100)));
  const auto first = workload.take(), second = workload.take();
  EXPECT_EQ(workload.next_arrival(), std::nullopt);
  const auto ring = [](const clustar::coflow::CoflowSpec& coflow) {
    std::vector<std::pair<clustar::coflow::PortId, clustar::coflow::PortId>> edges;
    for (const auto& flow : coflow.flows) {
      edges.emplace_back(flow.src, flow.dst);
      EXPECT_EQ(flow.bytes, 60 * kByMs);
    }
    return edges;
  };
  using Edges = decltype(ring(first));
  EXPECT_EQ(first.label, 1u);
  EXPECT_EQ(ring(first), (Edges{{0, 1}, {1, 2}, {2, 0}})) << "GPUs on ports 0, 1, 2 and 0";
  EXPECT_EQ(ring(second), (Edges{{1, 2}, {2, 1}})) << "what is left";
}

TEST(CoflowJobs, WaitForGpusFirstComeFirstServed) {
  // The third needs one GPU, and waits behind the second, which needs two.
  const JobMix mix = placed(2, 1, {on_gpus(1, 3, 50), on_gpus(2, 1, 50, ms(10)), on_gpus(1, 1, 50, ms(20))});
  for (const char* policy : {"maxmin", "match"}) {
    const auto results = run_jobs(mix, policy);
    expect_near(results[0].iterations_s, {0.1, 0.1, 0.1}, "on one port it sends nothing");
    EXPECT_EQ(results[1].began, TimePoint(ms(300)));
    expect_near(results[1].iterations_s, {0.15}, "a ring of two ports");
    EXPECT_NEAR(results[1].alone_s, 0.15, 1e-12);
    EXPECT_EQ(results[2].began, results[1].ended);
    EXPECT_NEAR(results[0].alone_s, 0.1, 1e-12);
  }
}

// When the first ends is known long before, but the second ends sooner.
TEST(CoflowJobs, GpusAreTakenAtTheTimeWhenTheyAreFree) {
  const auto results =
      run_jobs(placed(3, 1, {on_gpus(1, 10, 50), on_gpus(2, 1, 50), on_gpus(1, 1, 50, ms(10))}), "match");
  EXPECT_EQ(results[0].ended, TimePoint(ms(1000)));
  EXPECT_EQ(results[2].began, results[1].ended);
  EXPECT_NEAR(std::chrono::duration<double>(results[2].began - TimePoint{}).count(), 0.15, 1e-6);
}

TEST(CoflowJobs, WhoComesWhenAnotherEndsFindsItsGpus) {
  const auto results = run_jobs(placed(2, 1, {on_gpus(2, 1, 0), on_gpus(1, 1, 0, ms(100))}), "match");
  EXPECT_EQ(results[0].ended, TimePoint(ms(100)));
  EXPECT_EQ(results[1].began, TimePoint(ms(100)));
}

// It ends long after its last coflow, at a time when nothing else happens.
TEST(CoflowJobs, GpusAreHeldToTheEndOfCompute) {
  Job first = on_gpus(2, 1, 50);
  first.compute_after = ms(1000);
  const auto results = run_jobs(placed(2, 1, {first, on_gpus(2, 1, 50)}), "match");
  EXPECT_EQ(results[0].ended - TimePoint{}, results[1].began - TimePoint{});
  EXPECT_NEAR(std::chrono::duration<double>(results[1].began - TimePoint{}).count(), 1.15, 1e-6);
}

TEST(CoflowJobs, TheSameEveryTime) {
  std::vector<Job> jobs;
  for (std::size_t i = 0; i < 40; ++i)
    jobs.push_back(on_gpus(1 + i % 7, 1 + i % 5, 10.0 * static_cast<double>(i), ms(i * 30)));
  const JobMix mix = placed(4, 2, jobs);
  for (const char* policy : {"maxmin", "match", "dclas"}) {
    const auto one = run_jobs(mix, policy), other = run_jobs(mix, policy);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(one[i].iterations_s, other[i].iterations_s);
      EXPECT_EQ(one[i].ended, other[i].ended);
      EXPECT_EQ(one[i].iterations_s.size(), jobs[i].iterations);
      for (const double s : one[i].iterations_s) EXPECT_GE(s, one[i].alone_s - 1e-6) << policy;
    }
  }
}

// Jobs of any sizes, each with a ring over the same ports; often more than these can carry.
JobMix random_rings(std::uint64_t seed) {
  Rng rng(seed);
  JobMix mix{"mix", 4, 0, {}};
  for (std::uint64_t jobs = 2 + rng.below(4); jobs > 0; --jobs) {
    Job job{.name = "job", .begins = TimePoint(ms(rng.below(200)))};
    const double largest = 10 * std::pow(100, rng.uniform());  // ms
    double all = 0;
    for (std::uint64_t phases = 1 + rng.below(5); phases > 0; --phases) {
      const double sends = largest * rng.uniform();
      Phase phase{.compute = ms(static_cast<int>(2 * largest * rng.uniform()))};
      for (clustar::coflow::PortId port = 0; port < 4; ++port) {
        phase.flows.push_back({port, (port + 1) % 4, sends * kByMs});
      }
      all += sends + std::chrono::duration<double, std::milli>(phase.compute).count();
      job.phases.push_back(phase);
    }
    job.iterations = static_cast<std::size_t>(30'000 / all) + 5;
    mix.jobs.push_back(job);
  }
  return mix;
}

// By size alone a large job can be starved: in turns it is not.
TEST(CoflowJobs, InTurnsNobodyStarves) {
  double fair = 0, in_turns = 0, worst_by_size = 0, worst_in_turns = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const JobMix mix = random_rings(seed);
    const auto sharing = summarize(mix, run_jobs(mix, "maxmin"));
    const auto by_size = summarize(mix, run_jobs(mix, "match"));
    const auto turns = summarize(mix, run_jobs(mix, "turns"));
    for (std::size_t i = 0; i < mix.jobs.size(); ++i) {
      fair += sharing[i].contended_s / sharing[i].alone_s;
      in_turns += turns[i].contended_s / turns[i].alone_s;
      worst_by_size = std::max(worst_by_size, by_size[i].contended_s / sharing[i].contended_s);
      worst_in_turns = std::max(worst_in_turns, turns[i].contended_s / sharing[i].contended_s);
    }
  }
  EXPECT_GT(worst_by_size, 4) << "these jobs show nothing";
  EXPECT_LT(worst_in_turns, 2);
  EXPECT_LT(in_turns, fair);
}

TEST(CoflowJobs, IterationsWhileAllRunAreSummedUpApart) {
  const JobMix mix{"mix", 2, 0, {half_and_half("a", 4), half_and_half("b", 2)}};
  const auto jobs = summarize(mix, run_jobs(mix, "maxmin"));
  EXPECT_EQ(jobs[0].iterations, 4u);
  EXPECT_NEAR(jobs[0].mean_iteration_s, 0.25, 1e-6);
  EXPECT_NEAR(jobs[0].p95_iteration_s, 0.3, 1e-6);
  EXPECT_NEAR(jobs[0].contended_s, 0.3, 1e-6) << "the two while b runs";
  EXPECT_NEAR(jobs[0].slowdown(), 1.25, 1e-5);
  EXPECT_NEAR(jobs[1].contended_s, 0.3, 1e-6);
  EXPECT_NEAR(jobs[1].ended_s, 0.6, 1e-6);
  const JobMix waiting = placed(2, 1, {on_gpus(2, 1, 50), on_gpus(2, 1, 50)});
  EXPECT_EQ(summarize(waiting, run_jobs(waiting, "maxmin"))[0].contended_s, 0);
}

// The one that the end of all running cuts off counts as far as it has got by then, if it is longer.
TEST(CoflowJobs, WhoStarvesUntilTheEndOfAllRunningIsSeen) {
  const JobMix mix{"mix", 2, 0, {half_and_half("starved", 3), half_and_half("other", 1)}};
  const auto contended_s = [&](const Seconds& iterations_s, ms other_ended) {
    const std::vector<JobResult> results = {{TimePoint(ms(0)), TimePoint(ms(20'000)), 0.2, iterations_s},
                                            {TimePoint(ms(0)), TimePoint(other_ended), 0.2, {0.2}}};
    return summarize(mix, results)[0].contended_s;
  };
  EXPECT_NEAR(contended_s({0.25, 10, 0.2}, ms(10'000)), (0.25 + 9.75) / 2, 1e-9);
  EXPECT_NEAR(contended_s({0.25, 10, 0.2}, ms(400)), 0.25, 1e-9) << "no longer than the others by then";
  EXPECT_NEAR(contended_s({0.25, 0.25, 0.2}, ms(500)), 0.25, 1e-9) << "none is cut off";
  EXPECT_NEAR(contended_s({10, 0.2, 0.2}, ms(5'000)), 10, 1e-9) << "none is complete";
}

TEST(CoflowJobs, LoadIsBytesOverTheTimeOfAnIterationAlone) {
  // Sending for 100 ms of 200 is half of a port; the second job takes a fifth of port 0.
  JobMix mix{"mix", 3, 0, {half_and_half("a", 5)}};
  EXPECT_NEAR(load_of(mix, kBytesPerS).busiest, 0.5, 1e-12);
  EXPECT_NEAR(load_of(mix, kBytesPerS).mean, 0.5 / 3, 1e-12);
  mix.jobs.push_back({.name = "b", .iterations = 1, .phases = {{ms(400), {{0, 2, 100 * kByMs}}}}});
  EXPECT_NEAR(load_of(mix, kBytesPerS).busiest, 0.7, 1e-12);
  // Placed: two rings over both ports, one after the other, send for 100 ms of 300.
  const Load waited = load_of(placed(2, 1, {on_gpus(2, 1, 50), on_gpus(2, 1, 50)}), kBytesPerS);
  EXPECT_NEAR(waited.busiest, 100 / 300.0, 1e-9);
  EXPECT_NEAR(waited.mean, 100 / 300.0, 1e-9);
}

}  // namespace
}  // namespace clustar::bench::coflow
