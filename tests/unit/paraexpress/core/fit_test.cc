#include "paraexpress/core/fit.h"

#include <gtest/gtest.h>

#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {
namespace {

double seconds(Plan plan, const Group& group, const Network& network, std::uint64_t bytes) {
  return cost(shape_of(build(plan, group), group, network), network, bytes, 1).seconds;
}

Measured as_modelled(const Group& group, const Network& network) {
  constexpr std::uint64_t kSmall = 64, kLarge = 16 << 20;
  return {kSmall, seconds(Plan::kDirect, group, network, kSmall), seconds(Plan::kRing, group, network, kSmall), kLarge,
          seconds(Plan::kDirect, group, network, kLarge)};
}

TEST(Fit, FindsTheParametersThatGiveTheTimes) {
  for (const std::uint32_t n : {3U, 8U, 16U}) {
    for (const double oversubscription : {1.0, 4.0}) {
      const Group group = make_group(n, 0, equal_regions(n, 4, oversubscription));
      for (const double latency : {5e-6, 1e-3}) {
        for (const double rate : {6.25e6, 1.25e9}) {
          Network network;
          network.latency_s = latency;
          network.message_s = latency / 20;
          network.nic_bytes_per_s = rate;
          const Network found = fit(group, as_modelled(group, network), network);
          // 64 bytes take some time, too.
          EXPECT_NEAR(found.latency_s, latency, 0.05 * latency + 1e3 / rate) << n;
          EXPECT_NEAR(found.message_s, network.message_s, 0.05 * network.message_s + 1e3 / rate) << n;
          EXPECT_NEAR(found.nic_bytes_per_s, rate, 0.05 * rate) << n;
        }
      }
    }
  }
}

TEST(Fit, TimesThatNoNetworkGivesAreTakenAsWellAsCanBe) {
  const Group group = make_group(4, 0, one_region(4));
  for (const Measured& measured : {Measured{64, 1e-3, 5e-2, 1 << 20, 1e-4}, Measured{64, 0, 0, 1 << 20, 0},
                                   Measured{64, 5e-3, 1e-5, 1 << 20, 1}}) {
    const Network found = fit(group, measured, {});
    EXPECT_EQ(inconsistency(found, group), "");
    EXPECT_GT(found.latency_s, 0);
  }
}

TEST(Fit, TwoRanksHaveALatency) {
  const Group group = make_group(2, 0, one_region(2));
  Network network;
  network.latency_s = 1e-3;
  const Network found = fit(group, as_modelled(group, network), network);
  EXPECT_NEAR(found.latency_s, 1e-3, 1e-4);
}

}  // namespace
}  // namespace clustar::paraexpress
