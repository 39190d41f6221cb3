// Scenarios and arms of `clustar ab --scenario`, and how its runs are conducted. No fabric is made here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/ab/suite/arm.h"
#include "bench/ab/suite/background.h"
#include "bench/ab/suite/conduct.h"
#include "bench/ab/suite/route_rto.h"
#include "bench/ab/suite/scenario.h"
#include "bench/fabric/places.h"
#include "tests/ab/fake_hands.h"

namespace clustar::bench::ab::suite {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Words = std::vector<std::string>;

TEST(SuiteScenarios, AreValidFabrics) {
  const auto all = choose_scenarios(scenario_names(), {});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(all->size(), scenario_names().size());
  for (const Scenario& scenario : *all) {
    const auto spec = lossy_fabric_of(scenario, "test", 7);
    ASSERT_TRUE(spec) << scenario.name << ": " << spec.error().message;
    EXPECT_EQ(spec->hosts, scenario.ranks + scenario.background.senders) << scenario.name;
    EXPECT_EQ(scenario.ranks, scenario.name == "lossy" || scenario.name == "long-haul" ? 4 : 8) << scenario.name;
    EXPECT_EQ(spec->rate_bps, 200'000'000u) << scenario.name;
    EXPECT_FALSE(scenario.question.empty());
    EXPECT_EQ(describe_losses(scenario).size(), scenario.losses.size());
    const auto without = fabric_of(scenario, "test");
    ASSERT_TRUE(without);
    EXPECT_EQ(*spec == *without, scenario.losses.empty()) << scenario.name << ": losses begin with the runs";
  }
}

const fabric::PortRules& rules_at(const fabric::FabricSpec& spec, const std::string& port) {
  return spec.rules.of(port);
}

TEST(SuiteScenarios, TheGrayLinkIsOneCableBothWays) {
  const auto chosen = choose_scenarios({"gray"}, {});
  ASSERT_TRUE(chosen);
  const auto spec = lossy_fabric_of(chosen->front(), "test", 7);
  ASSERT_TRUE(spec);
  for (int host = 0; host < 8; ++host) {
    const fabric::PortRules& rules = rules_at(*spec, fabric::host_name(host));
    EXPECT_NEAR(rules.to_host.random, host == 1 ? 0.01 : 0, 1e-6) << host;
    EXPECT_NEAR(rules.from_host.random, host == 1 ? 0.01 : 0, 1e-6) << host;
  }
}

TEST(SuiteScenarios, LossyLosesTwoPerCentTowardsEachHost) {
  for (const int ranks : {0, 6}) {
    const auto chosen = choose_scenarios({"lossy"}, {.ranks = ranks});
    ASSERT_TRUE(chosen);
    const int hosts = ranks == 0 ? 4 : ranks;
    const auto spec = lossy_fabric_of(chosen->front(), "test", 7);
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->hosts, hosts);
    for (int host = 0; host < hosts; ++host) {
      EXPECT_NEAR(rules_at(*spec, fabric::host_name(host)).to_host.random, 0.02, 1e-6);
      EXPECT_EQ(rules_at(*spec, fabric::host_name(host)).from_host.random, 0);
    }
  }
}

TEST(SuiteScenarios, ALongHaulHasALongRoundTripAndABufferForIt) {
  const auto chosen = choose_scenarios({"long-haul"}, {});
  ASSERT_TRUE(chosen) << chosen.error().message;
  const auto spec = lossy_fabric_of(chosen->front(), "test", 7);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->hosts, 4);
  EXPECT_EQ(spec->delay_ns, 10'000'000u);
  EXPECT_EQ(spec->buffer_bytes, 1'000'000u);
  for (int host = 0; host < 4; ++host) {
    EXPECT_NEAR(rules_at(*spec, fabric::host_name(host)).to_host.random, 0.001, 1e-6);
  }
}

// Mean length over period, which is the share of the time, and at a steady rate of the bytes.
double burst_share(const fabric::Bursts& bursts) {
  return (static_cast<double>(bursts.length_ns + bursts.longest_ns) / 2) / static_cast<double>(bursts.every_ns);
}

TEST(SuiteScenarios, BurstsMeetFivePerCentOfTheBytes) {
  const auto chosen = choose_scenarios({"bursts", "bursts-light"}, {});
  ASSERT_TRUE(chosen);
  for (const Scenario& scenario : *chosen) {
    double sum = 0;
    std::set<std::string> places;
    for (const PortLoss& loss : scenario.losses) {
      const fabric::Bursts& bursts = loss.to_host.bursts;
      EXPECT_EQ(bursts.length_ns, 5'000'000u);
      EXPECT_EQ(bursts.longest_ns, 50'000'000u);
      EXPECT_EQ(bursts.loss, 0.6);
      EXPECT_EQ(bursts.highest_loss, 0.9);
      EXPECT_LE(bursts.longest_ns + bursts.jitter_ns, bursts.every_ns);
      places.insert(loss.place);
      sum += burst_share(bursts);
    }
    EXPECT_EQ(places.size(), 8u);
    EXPECT_NEAR(sum, scenario.name == "bursts" ? 8 * 0.05 : 0.05, 1e-6);
  }
}

TEST(SuiteScenarios, FollowTheCommandLine) {
  const auto small = choose_scenarios(scenario_names(), {.ranks = 4, .rate = "100M", .buffer = "64k", .mtu = 9000});
  ASSERT_TRUE(small) << small.error().message;
  for (const Scenario& scenario : *small) {
    EXPECT_EQ(scenario.ranks, 4);
    EXPECT_EQ(scenario.fabric.rate_bps, 100'000'000u);
    EXPECT_EQ(scenario.fabric.buffer_bytes, 64'000u);
    EXPECT_EQ(scenario.fabric.mtu, 9000);
    if (scenario.name == "bursts") {
      EXPECT_EQ(scenario.losses.size(), 4u);
    }
  }
  const auto error = [](const Words& names, const Changes& changes) {
    const auto chosen = choose_scenarios(names, changes);
    return chosen ? std::string("none") : chosen.error().message;
  };
  EXPECT_THAT(error({"nonsense"}, {}), HasSubstr("bursts-light"));
  EXPECT_THAT(error({"clean"}, {.rate = "fast"}), HasSubstr("--rate"));
  EXPECT_THAT(error({"clean"}, {.rate = "off"}), HasSubstr("200M"));
  EXPECT_THAT(error({"gray"}, {.mtu = 100}), HasSubstr("gray"));
  EXPECT_EQ(choose_scenarios({}, {})->size(), 5u);
}

TEST(SuiteArms, AreSettingsThatOurPluginTakes) {
  const Load load{1 << 20, 8, 200'000'000};
  const auto arms = choose_arms({}, {});
  ASSERT_TRUE(arms);
  EXPECT_EQ(arms->size(), 14u);
  std::set<std::string> names;
  for (const SuiteArm& arm : *arms) {
    names.insert(arm.name());
    Arm plain;
    plain.settings = environment_of(arm, load);
    const auto ok = check_settings(plain, {});
    EXPECT_TRUE(ok) << arm.name() << ": " << ok.error().message;
    EXPECT_TRUE(in_the_way(plain.settings).size() == plain.settings.size()) << "nobody else may set them";
  }
  EXPECT_EQ(names.size(), 14u);
  EXPECT_EQ(in_the_way({{"CLUSTAR_LOSS_RULES", "x"}, {"CLUSTAR_LOSS_WARMUP", "1"}, {"NCCL_DEBUG", "INFO"}}),
            Words{"CLUSTAR_LOSS_RULES"});
  const auto one = choose_arms({"mlt-p1"}, {"all-to-all"});
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ(one->front().name(), "mlt-p1/all-to-all");
  EXPECT_EQ(environment_of(one->front(), load).at("CLUSTAR_LOSS_TOLERANCE"), "0.01");
  EXPECT_EQ(environment_of(one->front(), load).at("CLUSTAR_LOSS_RULES"), "func=allreduce;func=sendrecv");
  EXPECT_EQ(arguments_of(one->front(), "residual"), (Words{"--all-reduce", "all-to-all", "--missing", "residual"}));
  EXPECT_TRUE(arguments_of(choose_arms({"tcp-bbr"}, {"ring"})->front(), "rescale").empty());
  EXPECT_THAT(choose_arms({"udp"}, {}).error().message, HasSubstr("tcp-cubic-rto5"));
  EXPECT_THAT(choose_arms({}, {"tree"}).error().message, HasSubstr("all-to-all"));
}

TEST(SuiteArms, ParaexpressIsForCarriersThatLoseNothing) {
  const auto arms = choose_arms({"tcp-cubic-rto5", "mlt-p0", "mlt-p1", "mlt-deadline"}, {"ring", "paraexpress"});
  ASSERT_TRUE(arms) << arms.error().message;
  Words names;
  for (const SuiteArm& arm : *arms) names.push_back(arm.name());
  EXPECT_EQ(names, (Words{"tcp-cubic-rto5/ring", "mlt-p0/ring", "mlt-p1/ring", "mlt-deadline/ring",
                          "tcp-cubic-rto5/paraexpress", "mlt-p0/paraexpress"}));
  EXPECT_TRUE(arguments_of(arms->back(), "rescale").empty());
  SuitePlan plan;
  plan.training.baseline.plugin = "/x.so";
  const Words ring = train_arguments(plan, arms->front(), 0), paraexpress = train_arguments(plan, arms->back(), 0);
  EXPECT_THAT(ring, testing::IsSupersetOf({"--plugin", "--channels"}));
  EXPECT_THAT(paraexpress, testing::IsSupersetOf({"--collective", "paraexpress", "--regions", "probe"}));
  EXPECT_THAT(paraexpress, testing::Not(testing::Contains("--plugin"))) << "it opens none, and refuses one";
  EXPECT_THAT(choose_arms({"mlt-p1"}, {"paraexpress"}).error().message, HasSubstr("loses nothing"));
}

TEST(SuiteScenarios, AShuffledOneHasItsRanksAnywhere) {
  const auto both = choose_scenarios({"spine", "spine-shuffled"}, {.ranks = 6});
  ASSERT_TRUE(both) << both.error().message;
  const std::vector<int> order{0, 1, 2, 3, 4, 5};
  std::set<std::vector<int>> seen;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(hosts_of((*both)[0], seed), order);
    std::vector<int> hosts = hosts_of((*both)[1], seed);
    EXPECT_EQ(hosts, hosts_of((*both)[1], seed)) << "the same for all arms of a round";
    seen.insert(hosts);
    EXPECT_TRUE(std::is_permutation(hosts.begin(), hosts.end(), order.begin(), order.end()));
  }
  EXPECT_GT(seen.size(), 15u);
}

TEST(SuiteArms, MayLoseAnyPercentByName) {
  const auto arms = choose_arms({"mlt-p10", "mlt-p1", "mlt-p0.5"}, {"ring"});
  ASSERT_TRUE(arms) << arms.error().message;
  Words names, tolerances;
  for (const SuiteArm& arm : *arms) {
    names.push_back(arm.name());
    tolerances.push_back(environment_of(arm, {}).at("CLUSTAR_LOSS_TOLERANCE"));
  }
  EXPECT_EQ(names, (Words{"mlt-p1/ring", "mlt-p0.5/ring", "mlt-p10/ring"}));
  EXPECT_EQ(tolerances, (Words{"0.01", "0.005", "0.1"}));
  EXPECT_EQ(find_carrier("mlt-p5")->tolerance_ppm, 50'000u);
  EXPECT_EQ(find_carrier("mlt-p0")->tolerance_ppm, 0u);
  for (const char* wrong : {"mlt-p11", "mlt-p-1", "mlt-p0.50", "mlt-p05", "mlt-p", "mlt-px", "mlt-p1e0", "mlt-pnan"}) {
    EXPECT_FALSE(find_carrier(wrong)) << wrong;
    EXPECT_THAT(choose_arms({wrong}, {}).error().message, HasSubstr("mlt-p0.5"));
  }
}

TEST(SuiteArms, OneSendsNoParity) {
  const auto arms = choose_arms({"mlt-p0", "mlt-no-parity"}, {"ring"});
  ASSERT_TRUE(arms) << arms.error().message;
  ASSERT_EQ(arms->size(), 2u);
  EXPECT_FALSE(environment_of(arms->front(), {}).contains("CLUSTAR_PARITY")) << "as users have it";
  EXPECT_EQ(environment_of(arms->back(), {}).at("CLUSTAR_PARITY"), "off");
  EXPECT_EQ(in_the_way({{"CLUSTAR_PARITY", "auto"}}), Words{"CLUSTAR_PARITY"});
}

TEST(SuiteArms, TheStaticDeadlineFollowsTheLine) {
  // A share of 1 MiB for 8 ranks is 128 KiB: 5.24 ms of 200 Mbit/s, and 1.25 times that. All to one: seven of them.
  const Load load{1 << 20, 8, 200'000'000};
  EXPECT_NEAR(static_deadline_s(load, kRing), 1.25 * 131072 * 8 / 2e8, 1e-9);
  EXPECT_NEAR(static_deadline_s(load, kAllToAll), 7 * 1.25 * 131072 * 8 / 2e8, 1e-9);
  const Load large{64 << 20, 2, 200'000'000};
  EXPECT_NEAR(static_deadline_s(large, kRing), 1.25 * 524288 * 8 / 2e8, 1e-9) << "a chunk at most";
}

TEST(SuiteOrder, IsFair) {
  for (const std::size_t arms : {1u, 2u, 5u, 14u}) {
    std::map<std::pair<std::size_t, std::size_t>, int> seen;  // arm, position
    for (int round = 0; round < 2 * static_cast<int>(arms); ++round) {
      const auto order = order_of_round(arms, round);
      ASSERT_EQ(std::set<std::size_t>(order.begin(), order.end()).size(), arms);
      for (std::size_t i = 0; i < arms; ++i) ++seen[{order[i], i}];
    }
    EXPECT_EQ(seen.size(), arms * arms);
    for (const auto& [where, count] : seen) EXPECT_EQ(count, 2);
    const auto first = order_of_round(arms, 0), second = order_of_round(arms, 1);
    for (std::size_t arm = 0; arm < arms; ++arm) {
      const auto at = [&](const std::vector<std::size_t>& order) {
        return std::find(order.begin(), order.end(), arm) - order.begin();
      };
      EXPECT_EQ(at(first) + at(second), static_cast<std::ptrdiff_t>(arms) - 1);
    }
  }
}

TEST(SuiteConduct, RunsEveryArmOncePerRoundWithTheSameSeed) {
  FakeHands fake;
  const SuitePlan plan = small_plan({"tcp-cubic", "mlt-p0", "mlt-p1"}, 4);
  int changes = 0, last_done = 0;
  const Hands hands = fake.hands();
  const SuiteEvents events{.on_run =
                               [&](const json&, int done, int total, double rest) {
                                 EXPECT_EQ(done, ++last_done);
                                 EXPECT_EQ(total, 24);
                                 EXPECT_GE(rest, 0);
                               },
                           .on_change =
                               [&](const json& training) {
                                 ++changes;
                                 EXPECT_EQ(training["interrupted"], true) << "a file of now is not complete";
                                 EXPECT_THAT(training["ended_by"].get<std::string>(), HasSubstr("still running"));
                               },
                           .interrupted = [] { return 0; }};
  const auto training = conduct(plan, hands, events);
  ASSERT_TRUE(training);
  EXPECT_EQ(fake.opened, 2);
  EXPECT_EQ(fake.closed, 2);
  EXPECT_EQ(std::set<std::string>(fake.asked.begin(), fake.asked.end()).size(), 24u);
  EXPECT_GE(changes, 24);
  EXPECT_EQ((*training)["interrupted"], false);
  for (const json& scenario : (*training)["scenarios"]) {
    ASSERT_EQ(scenario["runs"].size(), 12u);
    for (const json& run : scenario["runs"]) {
      EXPECT_EQ(run["seed"], 39 + run["round"].get<int>());
      EXPECT_EQ(run["switch_lost_on_purpose"], 3);
      EXPECT_FALSE(run.contains("secret"));
    }
  }
}

TEST(SuiteConduct, AFailingArmIsNamedAndTheOthersGoOn) {
  FakeHands fake;
  fake.failing["mlt-p0/ring"] = {ErrorCode::kRemote, "rank 3 died"};
  fake.failing["tcp-bbr/ring"] = {ErrorCode::kUnavailable, "no bbr here"};
  const SuitePlan plan = small_plan({"tcp-cubic", "tcp-bbr", "mlt-p0"}, 5);
  const auto training = conduct(plan, fake.hands(), {});
  ASSERT_TRUE(training);
  const json& clean = (*training)["scenarios"][0];
  std::map<std::string, int> good, bad;
  for (const json& run : clean["runs"]) ++(run.contains("failed") ? bad : good)[run["arm"]];
  EXPECT_EQ(good, (std::map<std::string, int>{{"tcp-cubic/ring", 5}}));
  EXPECT_EQ(bad, (std::map<std::string, int>{{"mlt-p0/ring", 2}, {"tcp-bbr/ring", 1}}));
  for (const json& arm : clean["arms"]) {
    EXPECT_EQ(arm["left_out"].is_null(), arm["name"] == "tcp-cubic/ring") << arm;
  }
}

TEST(SuiteConduct, AnInterruptKeepsWhatIsThereAndAResumeGoesOn) {
  FakeHands fake;
  const SuitePlan plan = small_plan({"tcp-cubic", "mlt-p0"}, 3);
  SuiteEvents events;
  events.interrupted = [&] { return fake.asked.size() >= 4 ? 2 : 0; };
  const auto part = conduct(plan, fake.hands(), events);
  ASSERT_TRUE(part);
  EXPECT_EQ((*part)["interrupted"], true);
  EXPECT_THAT((*part)["ended_by"].get<std::string>(), HasSubstr("signal 2"));
  EXPECT_EQ((*part)["scenarios"][0]["runs"].size(), 4u);
  EXPECT_EQ(fake.opened, fake.closed);

  FakeHands more;
  const auto whole = conduct(plan, more.hands(), {}, *part);
  ASSERT_TRUE(whole);
  EXPECT_EQ(more.asked.size(), 12u - 4u);
  EXPECT_EQ((*whole)["scenarios"][0]["runs"].size(), 6u);
  EXPECT_EQ((*whole)["interrupted"], false);

  FakeHands none;
  ASSERT_TRUE(conduct(plan, none.hands(), {}, *whole));
  EXPECT_TRUE(none.asked.empty());
  EXPECT_EQ(none.opened, 0) << "an earlier result needs no fabric";
  SuitePlan other = plan;
  other.training.train.batch = 99;
  EXPECT_THAT(conduct(other, none.hands(), {}, *whole).error().message, HasSubstr("--resume"));
}

TEST(SuiteConduct, ASignalThatTheLauncherTookEndsIt) {
  FakeHands fake;
  fake.failing["mlt-p0/ring"] = {ErrorCode::kSystem, "interrupted by signal 2 (Interrupt); all ranks were ended"};
  const auto training = conduct(small_plan({"tcp-cubic", "mlt-p0"}, 3), fake.hands(), {});
  ASSERT_TRUE(training);
  EXPECT_EQ((*training)["interrupted"], true);
  ASSERT_EQ((*training)["scenarios"].size(), 1u);
  ASSERT_EQ((*training)["scenarios"][0]["runs"].size(), 1u) << "what was broken off is no run";
  EXPECT_EQ((*training)["scenarios"][0]["runs"][0]["arm"], "tcp-cubic/ring");
}

TEST(SuiteConduct, APlaceThatCannotBeMadeIsAProblemOfItsScenario) {
  FakeHands fake;
  Hands hands = fake.hands();
  hands.open = [&](const Scenario& scenario) -> Result<json> {
    if (scenario.name == "gray") return fail(ErrorCode::kUnavailable, "no switch program");
    return json::object();
  };
  const auto training = conduct(small_plan({"tcp-cubic"}, 2), hands, {});
  ASSERT_TRUE(training);
  EXPECT_EQ((*training)["scenarios"][0]["runs"].size(), 2u);
  EXPECT_EQ((*training)["scenarios"][1]["problems"][0], "no switch program");
}

TEST(SuiteRoutes, GetAMinimumRtoAndLoseItAgain) {
  const std::string shown =
      "default via 10.88.1.1 dev eth0 \n10.88.0.0/16 dev eth0 proto kernel scope link src 10.88.0.1 linkdown\n";
  const std::string set = route_changes(shown, 5000);
  EXPECT_EQ(set,
            "route change default via 10.88.1.1 dev eth0 rto_min 5ms\n"
            "route change 10.88.0.0/16 dev eth0 proto kernel scope link src 10.88.0.1 rto_min 5ms\n");
  EXPECT_EQ(route_changes("10.88.0.2 dev eth0 rto_min lock 5ms mtu 9000\n", 0),
            "route change 10.88.0.2 dev eth0 mtu 9000\n");
  EXPECT_EQ(route_changes("", 5000), "");
}

TEST(SuiteBackground, IsCountedOverAWindow) {
  const BackgroundTraffic::Counts first{.received_bytes = 1000, .bursts = 4, .skipped = 1, .seconds = 2};
  const BackgroundTraffic::Counts last{.received_bytes = 6000, .bursts = 9, .skipped = 1, .seconds = 4};
  EXPECT_EQ(last.since(first).received_bytes, 5000u);
  EXPECT_EQ(last.since(first).bursts, 5u);
  EXPECT_DOUBLE_EQ(last.since(first).goodput_bps(), 8 * 5000 / 2.0);
  EXPECT_EQ(last.since(last).goodput_bps(), 0);
}

TEST(SuiteArguments, DifferByTheAlgorithmAlone) {
  const SuitePlan plan = small_plan({"tcp-cubic", "mlt-p0", "mlt-p1"}, 1);
  const Words first = train_arguments(plan, plan.arms[0], 3);
  for (const SuiteArm& arm : plan.arms) EXPECT_EQ(train_arguments(plan, arm, 3), first) << arm.name();
  const auto seed = std::find(first.begin(), first.end(), "--seed");
  ASSERT_NE(seed, first.end());
  EXPECT_EQ(*(seed + 1), "43");
}

}  // namespace
}  // namespace clustar::bench::ab::suite
