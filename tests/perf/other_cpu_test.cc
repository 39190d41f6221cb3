#include "bench/perf/other_cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

Party party(const std::string& machine, double own_s, std::vector<double> cores_s, std::vector<int> measures_on) {
  const std::vector<double> zero(cores_s.size(), 0.0);
  return {{machine, 0, zero}, {machine, own_s, std::move(cores_s)}, std::move(measures_on)};
}

TEST(OtherCpu, ReadsUserAndNicedTimeByCore) {
  const std::string stat =
      "cpu  600 60 9 9 9 9 9 9 0 0\n"
      "cpu0 100 20 9 9 9 9 9 9 0 0\n"
      "cpu3 500 40 9 9 9 9 9 9 0 0\n"
      "intr 1 2 3\n"
      "cpux 1 1\n";
  EXPECT_EQ(core_user_seconds(stat, 100), (std::vector<double>{1.2, 0, 0, 5.4}));
  EXPECT_TRUE(core_user_seconds("", 100).empty());
  EXPECT_TRUE(core_user_seconds("cpu7 what\ncpu99999999 1 1\n", 100).empty());
}

TEST(OtherCpu, TheMachinesTimeLessOurs) {
  // 4 + 5 s on two cores in 10 s, of which the workers used 4.5 and 3, a waiting one 0.5, and the coordinator 0.2.
  const std::vector<Party> parties{party("here", 0.2, {4, 5, 9}, {}), party("here", 4.5, {4, 5, 9}, {0}),
                                   party("here", 3, {4, 5, 9}, {1}), party("here", 0.5, {4, 5, 9}, {})};
  const auto other = other_cpu(parties, "here", 10);
  ASSERT_TRUE(other);
  EXPECT_NEAR(other->used, 0.08, 1e-9);
  EXPECT_EQ(other->cores, 2);  // core 2 is nobody's
  EXPECT_TRUE(other->disturbs());
}

// Two network namespaces have one boot id; two machines have two.
TEST(OtherCpu, EachMachineByItself) {
  const std::vector<Party> parties{party("client", 0, {9, 1}, {}), party("server", 2, {2, 6}, {0}),
                                   party("client", 1, {9, 1}, {1})};
  EXPECT_NEAR(other_cpu(parties, "client", 10)->used, 0, 1e-9);
  EXPECT_EQ(other_cpu(parties, "client", 10)->cores, 1);
  EXPECT_NEAR(other_cpu(parties, "server", 10)->used, 0, 1e-9);
  const std::vector<Party> loaded{party("client", 0, {9, 5}, {}), party("server", 2, {5, 6}, {0}),
                                  party("client", 1, {9, 5}, {1})};
  EXPECT_NEAR(other_cpu(loaded, "client", 10)->used, 0.4, 1e-9);
  EXPECT_NEAR(other_cpu(loaded, "server", 10)->used, 0.3, 1e-9);
}

TEST(OtherCpu, OfLessThanNothingAndOfNothingKnown) {
  EXPECT_EQ(other_cpu({party("here", 6, {5}, {0})}, "here", 10)->used, 0);
  EXPECT_FALSE(other_cpu({party("here", 6, {5}, {0})}, "elsewhere", 10));
  EXPECT_FALSE(other_cpu({party("", 6, {5}, {0})}, "", 10));
  EXPECT_FALSE(other_cpu({party("here", 6, {}, {0})}, "here", 10));
  EXPECT_FALSE(other_cpu({party("here", 6, {5}, {})}, "here", 10));
  EXPECT_FALSE(other_cpu({}, "here", 10));
}

TEST(OtherCpu, DisturbsFromATwentiethOfACore) {
  EXPECT_FALSE((OtherCpu{0.04, 2, 100}.disturbs()));
  EXPECT_TRUE((OtherCpu{0.06, 2, 100}.disturbs()));
  // Two ticks of 10 ms in 100 ms are within the kernel's resolution.
  EXPECT_FALSE((OtherCpu{0.2, 2, 0.1}.disturbs()));
}

TEST(OtherCpu, AUsageTravels) {
  const Usage usage{"boot", 1.5, {2.25, 0}};
  const Usage back = usage_from(to_json(usage));
  EXPECT_EQ(back.machine, "boot");
  EXPECT_EQ(back.own_s, 1.5);
  EXPECT_EQ(back.core_user_s, usage.core_user_s);
  for (const char* nonsense : {"{}", R"({"machine": 1, "own_s": 1, "core_user_s": []})",
                               R"({"machine": "a", "own_s": 1, "core_user_s": ["b"]})"}) {
    EXPECT_TRUE(usage_from(json::parse(nonsense)).machine.empty()) << nonsense;
  }
}

TEST(OtherCpu, ThisProcessIsAccountedFor) {
  const Usage before = usage_now();
  ASSERT_FALSE(before.machine.empty());
  ASSERT_FALSE(before.core_user_s.empty());
  const auto begin = std::chrono::steady_clock::now();
  volatile double sink = 1;
  while (std::chrono::steady_clock::now() - begin < std::chrono::seconds(1)) sink = sink * 1.000001;
  const Usage after = usage_now();
  const double own = after.own_s - before.own_s;
  EXPECT_GT(own, 0.05);
  double all = 0;
  for (std::size_t core = 0; core < after.core_user_s.size(); ++core) {
    all += after.core_user_s[core] - before.core_user_s[core];
  }
  EXPECT_GT(all, own - 0.1);
  EXPECT_GE(allowed_cores().size(), 1u);
}

}  // namespace
}  // namespace clustar::bench::perf
