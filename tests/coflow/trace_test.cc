// Traces as files and generated: what is read, and what is said of what cannot be.
#include <gtest/gtest.h>

#include "bench/coflow/benchmark_format.h"
#include "bench/coflow/coflowsim_trace.h"
#include "bench/coflow/generator.h"

namespace clustar::bench::coflow {
namespace {

std::string error(const std::string& text) {
  const auto trace = parse_benchmark(text, "t.txt");
  return trace ? std::string() : trace.error().message;
}

TEST(CoflowBenchmarkFormat, ReadsMappersAndReducersByRack) {
  const auto trace = parse_benchmark("5 2\n2 30 1 4 1 0:1.5\n1 20 3 0 2 0 2 3:10 1:4\n", "t.txt");
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_EQ(trace->ports, 5u);
  ASSERT_EQ(trace->coflows.size(), 2u);
  EXPECT_EQ(trace->coflows[0].label, 1u) << "by arrival";
  EXPECT_EQ(trace->coflows[0].arrival, TimePoint(std::chrono::milliseconds(20)));
  ASSERT_EQ(trace->coflows[0].flows.size(), 4u) << "two mappers on one rack are one sender";
  double bytes = 0;
  for (const auto& flow : trace->coflows[0].flows) bytes += flow.bytes;
  EXPECT_EQ(bytes, 14 * 1048576.0);
  EXPECT_EQ(trace->coflows[1].flows[0].bytes, 1.5 * 1048576);
}

TEST(CoflowBenchmarkFormat, WholeMbPerFlowWhereAsked) {
  const auto trace = parse_benchmark("3 1\n1 0 2 0 1 1 2:3\n", "t.txt", {.whole_mb = true});
  ASSERT_TRUE(trace);
  for (const auto& flow : trace->coflows[0].flows) EXPECT_EQ(flow.bytes, 2 * 1048576.0);
}

TEST(CoflowBenchmarkFormat, ErrorsNameTheLineAndWhatWasExpected) {
  EXPECT_EQ(error(""), "t.txt: empty; expected: ports coflows");
  EXPECT_EQ(error("0 1\n"), "t.txt:1: the number of ports is '0'; allowed: whole numbers from 1 to 4096");
  EXPECT_EQ(error("3\n"), "t.txt:1: the line ends where the number of coflows was expected");
  EXPECT_EQ(error("3 1 1\n"), "t.txt:1: more than two numbers; expected: ports coflows");
  EXPECT_EQ(error("3 1\n"), "t.txt: 0 coflows; the first line says 1");
  EXPECT_EQ(error("3 1\n1 0 1 0 1 1:1\n2 0 1 0 1 1:1\n"), "t.txt:3: another coflow; the first line says 1");
  EXPECT_EQ(error("3 1\n1 0 1 3 1 1:1\n"), "t.txt:2: the rack of a mapper is '3'; allowed: whole numbers from 0 to 2");
  EXPECT_EQ(error("3 1\n1 0 1 0 1 9:1\n"), "t.txt:2: the rack of a reducer is '9'; allowed: whole numbers from 0 to 2");
  EXPECT_EQ(error("3 1\n1 0 2 0 1 1 1:1 2:1\n"), "t.txt:2: '2:1' behind the last of 1 reducers");
  EXPECT_EQ(error("3 1\n1 0 1 0 2 1:1\n"), "t.txt:2: the line ends where a reducer (rack:MB) was expected");
  EXPECT_NE(error("3 1\n1 0 1 0 1 1:-4\n").find("t.txt:2: the size of a reducer is '-4' MB; allowed: 0 to"),
            std::string::npos);
  EXPECT_NE(error("3 1\n1 0 1 0 1 1:nan\n").find("'nan' MB"), std::string::npos);
  EXPECT_NE(error("3 1\n1 0 1 0 1 11\n").find("'11' is no reducer; expected: rack:MB"), std::string::npos);
  EXPECT_NE(error("3 1\n1 -5 1 0 1 1:1\n").find("the arrival in ms is '-5'"), std::string::npos);
  EXPECT_NE(error("3 1\nx 0 1 0 1 1:1\n").find("the coflow's name is 'x'"), std::string::npos);
}

TEST(CoflowBenchmarkFormat, RefusesMoreFlowsThanItCanHold) {
  std::string text = "4096 3\n";
  for (int coflow = 0; coflow < 3; ++coflow) {
    text += "1 0 4096";
    for (int rack = 0; rack < 4096; ++rack) text += " " + std::to_string(rack);
    text += " 4096";
    for (int rack = 0; rack < 4096; ++rack) text += " " + std::to_string(rack) + ":1";
    text += "\n";
  }
  EXPECT_NE(error(text).find("t.txt:3: more than 20000000 flows in all"), std::string::npos) << error(text);
}

TEST(CoflowGenerator, MakesTheLoadAndReplays) {
  for (const double load : {0.3, 0.95, 3.0}) {
    const GeneratorOptions options{.ports = 20, .coflows = 100, .load = load, .seed = 4};
    const Trace trace = generate(options, 1e8);
    EXPECT_NEAR(load_of(trace, 1e8).busiest, load, 1e-6);
    EXPECT_LT(load_of(trace, 1e8).mean, load);
    const Trace again = generate(options, 1e8);
    ASSERT_EQ(again.coflows.size(), 100u);
    for (std::size_t i = 0; i < 100; ++i) {
      ASSERT_EQ(again.coflows[i].arrival, trace.coflows[i].arrival);
      ASSERT_EQ(again.coflows[i].flows.size(), trace.coflows[i].flows.size());
      for (const auto& flow : trace.coflows[i].flows) {
        EXPECT_LT(flow.src, 20u);
        EXPECT_LT(flow.dst, 20u);
        EXPECT_GE(flow.bytes, 1048576);
      }
    }
  }
}

TEST(CoflowGenerator, ASeedsCoflowsAreTheSameAtEveryLoadAndRate) {
  const Trace slow = generate({.ports = 10, .coflows = 50, .load = 0.5, .seed = 3}, 1e8);
  const struct { double load, bytes_per_s, stretch; } cases[] = {{2, 1e8, 0.25}, {0.5, 1e9, 0.1}, {0, 1e8, 0}};
  for (const auto& one : cases) {
    const Trace other = generate({.ports = 10, .coflows = 50, .load = one.load, .seed = 3}, one.bytes_per_s);
    for (std::size_t i = 0; i < 50; ++i) {
      const auto &a = slow.coflows[i], &b = other.coflows[i];
      EXPECT_EQ(a.label, b.label);
      EXPECT_NEAR(static_cast<double>((b.arrival - TimePoint{}).count()),
                  one.stretch * static_cast<double>((a.arrival - TimePoint{}).count()), 2)
          << i;
      ASSERT_EQ(a.flows.size(), b.flows.size());
      for (std::size_t k = 0; k < a.flows.size(); ++k) {
        EXPECT_EQ(a.flows[k].src, b.flows[k].src);
        EXPECT_EQ(a.flows[k].dst, b.flows[k].dst);
        EXPECT_EQ(a.flows[k].bytes, b.flows[k].bytes);
      }
    }
  }
}

TEST(CoflowGenerator, ErrorsSayWhatIsAllowed) {
  EXPECT_EQ(parse_generator("ports=16,load=0.5").value().ports, 16u);
  EXPECT_EQ(parse_generator("seed=9007199254740992,load=0").value().seed, 9007199254740992u);
  EXPECT_EQ(parse_generator("load=0.0009").error().message,
            "'load=0.0009' cannot be; allowed: ports (2 to 4096), coflows (1 to 1000000), load (0.001 to 100; 0: all "
            "at once), seed (0 to 2^53), as ports=150,coflows=500,load=0.9,seed=1");
  for (const char* bad : {"ports=1", "ports=2.5", "load=-1", "loud=1", "seed", "coflows=0", "load=nan", "load=1e-300",
                          "load=100.5", "seed=-1", "seed=0.5", "ports=8,ports=9", "coflows=1000000"}) {
    const auto parsed = parse_generator(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_NE(parsed.error().message.find("allowed: ports (2 to 4096)"), std::string::npos);
  }
}

// Java's documented generator: new Random(42).nextDouble(), twice, as any JVM prints them.
TEST(JavaRandom, IsJavas) {
  JavaRandom random(42);
  EXPECT_DOUBLE_EQ(random.next_double(), 0.7275636800328681);
  EXPECT_DOUBLE_EQ(random.next_double(), 0.6832234717598454);
}

}  // namespace
}  // namespace clustar::bench::coflow
