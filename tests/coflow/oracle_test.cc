// CoflowSim's results (github.com/coflow/coflowsim b61f209) on Facebook's trace, which is not ours to ship:
// CLUSTAR_TEST_COFLOW_TRACE names FB2010-1Hr-150-0.txt of github.com/coflow/coflow-benchmark.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "bench/coflow/compare.h"

namespace clustar::bench::coflow {
namespace {

class CoflowOracle : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("CLUSTAR_TEST_COFLOW_TRACE");
    if (path == nullptr) GTEST_SKIP() << "CLUSTAR_TEST_COFLOW_TRACE does not name FB2010-1Hr-150-0.txt";
    std::ifstream in(path, std::ios::binary);
    ASSERT_TRUE(in) << path;
    source_.name = path;
    source_.text.assign(std::istreambuf_iterator<char>(in), {});
  }
  Summary run(const std::string& policy, const std::string& rules) {
    CompareOptions options;
    options.policies = {policy};
    options.rules = rules;
    options.port_gbps = 1.048576;  // 1 MiB in 8 ms, as CoflowSim's ports
    const auto compared = compare(source_, options, [](const std::string&, bool) {});
    EXPECT_TRUE(compared) << compared.error().message;
    return compared ? compared->policies.front() : Summary{};
  }
  Source source_;
};

TEST_F(CoflowOracle, DarkAndPfpAreExact) {
  EXPECT_NEAR(run("dark", "coflowsim").sum_ms, 24'247'392, 0.5);
  EXPECT_NEAR(run("pfp", "coflowsim").sum_ms, 52'216'912, 0.5);
}

// Against CoflowSim with a port counted as full below 1,000 bit/s, which is all that was changed in it.
TEST_F(CoflowOracle, OrderedPoliciesWithoutItsNumericalDefect) {
  const struct {
    const char* policy;
    double sum_ms;
  } cases[] = {
      {"sebf", 14'555'256}, {"scf", 14'670'680}, {"ncf", 21'519'008}, {"lcf", 16'115'888}, {"fifo", 46'087'488}};
  for (const auto& one : cases) {
    const double tolerance = one.policy == std::string("fifo") ? 0.001 : 1e-8;  // of the sum
    EXPECT_NEAR(run(one.policy, "coflowsim").sum_ms / one.sum_ms, 1, tolerance) << one.policy;
  }
}

TEST_F(CoflowOracle, FairSharing) {
  EXPECT_NEAR(run("fair", "coflowsim").sum_ms / 37'131'824, 1, 0.001);
  // No published figure: what our prototypes of the same policies came to.
  EXPECT_NEAR(run("maxmin", "coflowsim").average_s, 59.1, 0.3);
  EXPECT_NEAR(run("bssi", "coflowsim").average_s, 22.4, 0.3);
}

// Who ends in time by its rule. Its SEBF admits 372 and keeps 239, since it paces by the time there was, not by the
// time left: ours keeps what it admits.
TEST_F(CoflowOracle, Deadlines) {
  const auto in_time = [&](const std::string& policy) {
    const Summary summary = run(policy, "coflowsim");
    return summary.coflows - summary.late;
  };
  EXPECT_EQ(in_time("fair"), 83u);
  EXPECT_EQ(in_time("pfp"), 246u);
  const Summary sebf = run("sebf:deadlines=1", "coflowsim");
  EXPECT_GE(sebf.coflows, 350u);
  EXPECT_EQ(sebf.late, 0u);
}

TEST_F(CoflowOracle, OursIsBetterThanAllOfThem) {
  const Summary ours = run("match", "coflowsim");
  EXPECT_LE(ours.average_s, 22.4);
  EXPECT_LE(ours.p95_s, 40);
}

TEST_F(CoflowOracle, UnknownSizesCostLittle) { EXPECT_LE(run("dclas", "exact").average_s, 29); }

}  // namespace
}  // namespace clustar::bench::coflow
