#include "bench/coflow/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace clustar::bench::coflow {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SweepRun of_average(double load, std::uint64_t seed, const std::string& policy, double average_s) {
  return {.load = load, .seed = seed, .policy = policy, .average_s = average_s, .p95_s = 1, .p99_s = 1, .slowdown = 1};
}

// Whatever the order of runs.
TEST(CoflowSweep, RatiosByHand) {
  Sweep swept{.ports = 2, .coflows = 1, .seeds = 2, .port_gbps = 1, .loads = {0.5, 3}, .policies = {"p", "q"}};
  swept.runs = {of_average(0.5, 2, "p", 8), of_average(0.5, 1, "maxmin", 6), of_average(0.5, 2, "maxmin", 4),
                of_average(0.5, 1, "p", 3), of_average(3, 1, "p", 1),        of_average(3, 1, "maxmin", 1),
                of_average(3, 2, "p", 1),   of_average(3, 2, "maxmin", 9)};
  const Ratio half = ratio_of(swept, "p", kFigures[0], 0.5);
  EXPECT_EQ(half.mean, 1.25) << "6 over 3 and 4 over 8";
  EXPECT_EQ(half.least, 0.5);
  EXPECT_EQ(half.most, 2);
  EXPECT_EQ(half.runs, 2u);
  EXPECT_EQ(half.worse, 1u);
  const Ratio all = ratio_of(swept, "p", kFigures[0]);
  EXPECT_EQ(all.runs, 4u);
  EXPECT_EQ(all.worse, 1u) << "the same is not worse";
  EXPECT_EQ(all.most, 9);
  EXPECT_EQ(ratio_of(swept, "q", kFigures[0]).runs, 0u);
  EXPECT_THAT(text(swept), HasSubstr("1 (0.500)!"));
  const auto rows = to_json(swept);
  EXPECT_EQ(rows[0]["average_cct_ratio"]["worse_runs"], 1);
  EXPECT_EQ(rows[0]["average_cct_s"], 5.5);
  EXPECT_EQ(rows[0]["maxmin_average_cct_s"], 5);
}

TEST(CoflowSweep, PairsBySeedAndRepeats) {
  SweepOptions options;
  options.generator = parse_sweep_generator("ports=6,coflows=20").value();
  options.loads = {0.9, 0.4};
  options.seeds = 2;
  options.policies = {"match", "maxmin", "match", "fifo"};
  std::vector<std::string> said;
  const auto once = sweep(options, [&](const std::string& line, bool done) {
    if (done) said.push_back(line);
  });
  ASSERT_TRUE(once) << once.error().message;
  EXPECT_THAT(once->policies, ElementsAre("match", "fifo"));
  ASSERT_EQ(once->runs.size(), 12u);
  ASSERT_EQ(said.size(), 4u);
  EXPECT_THAT(said[1], HasSubstr("[2/4] load 0.4, seed 1: maxmin/ match"));
  EXPECT_THAT(said[1], HasSubstr("left"));
  // What a replay of that very trace says.
  Source source;
  source.generator = options.generator;
  source.generator->load = 0.4;
  source.generator->seed = 2;
  CompareOptions alone;
  alone.policies = {"fifo"};
  const auto replayed = compare(source, alone, [](const std::string&, bool) {});
  const SweepRun& last = once->runs.back();
  EXPECT_EQ(last.policy, "fifo");
  EXPECT_EQ(last.seed, 2u);
  EXPECT_EQ(last.load, 0.4);
  EXPECT_EQ(last.average_s, replayed->policies[0].average_s);
  const auto again = sweep(options, [](const std::string&, bool) {});
  EXPECT_EQ(to_json(*again), to_json(*once));
  EXPECT_EQ(text(*again), text(*once));
}

TEST(CoflowSweep, RefillsAsAReplayDoes) {
  SweepOptions options;
  options.generator = parse_sweep_generator("ports=6,coflows=20").value();
  options.loads = {0.9};
  options.seeds = 1;
  options.refill = std::chrono::milliseconds(700);
  const auto quiet = [](const std::string&, bool) {};
  const auto swept = sweep(options, quiet);
  ASSERT_TRUE(swept) << swept.error().message;
  ASSERT_EQ(swept->runs.size(), 2u);
  EXPECT_EQ(swept->runs[0].refill_ms, 700);
  EXPECT_EQ(swept->runs[1].refill_ms, 0) << "match takes ends into account at once";
  EXPECT_EQ(context_json(*swept)["runs"][0]["refill_ms"], 700);
  Source source;
  source.generator = options.generator;
  source.generator->load = 0.9;
  const auto replayed = compare(source, {.policies = {"maxmin"}, .refill = options.refill}, quiet);
  EXPECT_EQ(swept->runs[0].average_s, replayed->policies[0].average_s);
  options.refill = Duration::zero();
  EXPECT_LT(sweep(options, quiet)->runs[0].average_s, swept->runs[0].average_s);
}

TEST(CoflowSweep, SaysWhatIsAllowed) {
  for (const char* loads : {"", "0.5,", "0", "nan", "0.0009", "101", "-1", "0.5;0.9", "0.5,x"}) {
    const auto parsed = parse_loads(loads);
    ASSERT_FALSE(parsed) << loads;
    EXPECT_THAT(parsed.error().message, HasSubstr("allowed: numbers from 0.001 to 100"));
  }
  EXPECT_THAT(parse_loads("0.5,0.50").error().message, HasSubstr("twice"));
  EXPECT_THAT(parse_loads("0.3,3,100").value(), ElementsAre(0.3, 3, 100));
  EXPECT_THAT(parse_sweep_generator("ports=8,load=0.9").error().message, HasSubstr("contradicts --loads"));
  EXPECT_THAT(parse_sweep_generator("seed=2").error().message, HasSubstr("contradicts --seeds"));
  EXPECT_THAT(parse_sweep_generator("ports=1").error().message, HasSubstr("allowed: ports (2 to 4096)"));
  SweepOptions options;
  options.loads = {0.5};
  const auto message = [&] { return sweep(options, [](const std::string&, bool) {}).error().message; };
  options.seeds = 0;
  EXPECT_THAT(message(), HasSubstr("allowed: 1 to 1000"));
  options.seeds = 1001;
  EXPECT_THAT(message(), HasSubstr("allowed: 1 to 1000"));
  options.seeds = 1;
  options.policies = {"varys"};
  EXPECT_THAT(message(), HasSubstr("there is no policy 'varys'; allowed:"));
  options.policies = {"sebf:deadlines=1"};
  EXPECT_THAT(message(), HasSubstr("have no deadlines"));
}

}  // namespace
}  // namespace clustar::bench::coflow
