#include "paraexpress/core/fit.h"

#include <gtest/gtest.h>

#include "paraexpress/core/plans/build.h"

namespace clustar::paraexpress {
namespace {

double seconds(Plan plan, const Group& group, const Network& network, std::uint64_t bytes) {
  return cost(shape_of(build(plan, group), group, network), network, bytes, 1).seconds;
}

Measured as_modelled(const Group& group, const Network& network) {
  Measured sizes;
  sizes.large_bytes = 16 << 20;
  return measured_by([&](Plan plan, std::uint64_t bytes) { return seconds(plan, group, network, bytes); }, sizes);
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

// 100 to 800 Gbit/s. Where a host's work takes longer than the bytes, these cannot be seen.
TEST(Fit, FindsTheRatesOfFastNics) {
  const Group group = make_group(8, 0, equal_regions(8, 4, 1));
  for (const double rate : {1.25e10, 5e10, 1e11}) {
    Network network;
    network.latency_s = 5e-6;
    network.message_s = 1e-7;
    network.nic_bytes_per_s = rate;
    EXPECT_NEAR(fit(group, as_modelled(group, network), network).nic_bytes_per_s, rate, 0.005 * rate);
  }
}

TEST(Fit, TimesThatNoNetworkGivesAreTakenAsWellAsCanBe) {
  const Group group = make_group(4, 0, one_region(4));
  for (const Measured& measured :
       {Measured{64, 1e-3, 5e-2, 1 << 20, 1e-4, 1e-6, 4096, 2e-3}, Measured{64, 0, 0, 1 << 20, 0, 1, 4096, 1},
        Measured{64, 5e-3, 1e-5, 1 << 20, 1, 0, 64, 0}, Measured{64, 5e-3, 1e-5, 1 << 20, 1, 1e-3, 4096, 1e-6}}) {
    const Network found = fit(group, measured, {});
    EXPECT_EQ(inconsistency(found, group), "");
    EXPECT_GT(found.latency_s, 0);
  }
}

// Headers in a narrow uplink and a host's work both make many small messages slow, but only headers add to the bytes.
TEST(Fit, HeadersAreToldFromWork) {
  for (const double oversubscription : {1.0, 8.0}) {
    const Group group = make_group(32, 0, equal_regions(32, 16, oversubscription));
    for (const double headers : {0.0, 500.0}) {
      Network network;
      network.nic_bytes_per_s = 1.25e9;
      network.latency_s = 1e-5;
      network.message_bytes = headers;
      network.message_s = headers > 0 ? 0 : 1e-6;
      const Network found = fit(group, as_modelled(group, network), network);
      EXPECT_NEAR(found.message_bytes, headers, 0.15 * headers + 40) << oversubscription;
      EXPECT_NEAR(found.message_s, network.message_s, 0.1e-6) << oversubscription;
      EXPECT_NEAR(found.nic_bytes_per_s, network.nic_bytes_per_s, 0.05 * network.nic_bytes_per_s);
    }
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
