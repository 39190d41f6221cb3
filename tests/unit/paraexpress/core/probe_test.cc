#include "paraexpress/core/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "transport/base/rng.h"

namespace clustar::paraexpress {
namespace {

// A made-up fabric: ranks at random in regions of equal size behind uplinks, and what probing it gives.
struct Fabric {
  std::uint32_t ranks, regions;
  double oversubscription;
  double hop_s;   // more for a pair that crosses
  double noise;   // a time is up to so much of itself longer
  double strays;  // chance of a time that is several times as long
  std::uint64_t seed;

  std::vector<std::uint32_t> truth() const {
    std::vector<std::uint32_t> region;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) region.push_back(rank % regions);
    Rng rng(seed);
    for (std::uint32_t i = ranks; i > 1; --i) std::swap(region[i - 1], region[rng.below(i)]);
    std::vector<std::uint32_t> name(regions, ~0u);  // by its first rank
    std::uint32_t names = 0;
    for (std::uint32_t& one : region) {
      if (name[one] == ~0u) name[one] = names++;
      one = name[one];
    }
    return region;
  }

  Probed probe() const {
    const auto region = truth();
    Rng rng(seed + 1000003);
    const auto noisy = [&](double time) {
      return time * (1 + noise * rng.uniform()) * (rng.chance(strays) ? 2 + 4 * rng.uniform() : 1);
    };
    constexpr double kNic = 6.25e6;
    Probed probed;
    probed.exchange_bytes = 64 << 10;
    probed.round_trip_s.assign(std::size_t{ranks} * ranks, 0);
    for (Member a = 0; a < ranks; ++a) {
      for (Member b = 0; b < ranks; ++b) {
        if (a != b) probed.round_trip_s[a * ranks + b] = noisy(100e-6 + (region[a] == region[b] ? 0 : hop_s));
      }
    }
    const double hosts = static_cast<double>(ranks) / regions;
    for (std::uint64_t number = 0; number < 3; ++number) {
      const Tournament tournament(ranks, number);
      PairTimes times(std::size_t{ranks} * ranks, 0);
      for (std::uint32_t round = 0; round < tournament.rounds(); ++round) {
        std::vector<double> crossing(regions, 0);
        for (Member a = 0; a < ranks; ++a) {
          const Member b = tournament.partner(round, a);
          if (b != kNobody && region[a] != region[b]) ++crossing[region[a]];
        }
        for (Member a = 0; a < ranks; ++a) {
          const Member b = tournament.partner(round, a);
          if (b == kNobody) continue;
          double rate = kNic;
          for (const Member end : {a, b}) {
            if (region[a] != region[b]) rate = std::min(rate, kNic * hosts / oversubscription / crossing[region[end]]);
          }
          times[a * ranks + b] = noisy(static_cast<double>(probed.exchange_bytes) / rate);
        }
      }
      probed.exchange_s.push_back(std::move(times));
    }
    return probed;
  }
};

TEST(Probe, InATournamentEachPairMeetsOnce) {
  for (const std::uint32_t ranks : {1U, 2U, 3U, 4U, 7U, 8U, 33U}) {
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Tournament tournament(ranks, seed);
      std::set<std::pair<Member, Member>> met;
      for (std::uint32_t round = 0; round < tournament.rounds(); ++round) {
        for (Member rank = 0; rank < ranks; ++rank) {
          const Member partner = tournament.partner(round, rank);
          if (partner == kNobody) continue;
          ASSERT_NE(partner, rank);
          EXPECT_EQ(tournament.partner(round, partner), rank);
          EXPECT_EQ(met.insert({rank, partner}).second, true);
        }
      }
      EXPECT_EQ(met.size(), std::size_t{ranks} * (ranks - 1));
    }
  }
}

struct Tally {
  int right = 0, one_region = 0, wrong = 0;
  double worst_ratio = 1;  // of the oversubscription found, to the true one
};

Tally over_seeds(Fabric fabric, int seeds) {
  Tally tally;
  for (int seed = 0; seed < seeds; ++seed) {
    fabric.seed = static_cast<std::uint64_t>(seed);
    const auto found = find_regions(fabric.ranks, fabric.probe());
    if (found.map.regions.size() == 1) {
      ++tally.one_region;
    } else if (found.map.region_of != fabric.truth()) {
      ++tally.wrong;
    } else {
      ++tally.right;
      for (const Region& region : found.map.regions) {
        const double ratio = region.oversubscription / fabric.oversubscription;
        tally.worst_ratio = std::max({tally.worst_ratio, ratio, 1 / ratio});
      }
    }
  }
  return tally;
}

TEST(Probe, RatesAloneShowTheRegionsOfARandomFabric) {
  for (const auto& [ranks, regions] : {std::pair{8U, 2U}, {16U, 2U}, {16U, 4U}, {32U, 4U}, {64U, 8U}}) {
    const Tally tally = over_seeds({ranks, regions, 4, 0, 0.1, 0, 0}, 100);
    EXPECT_EQ(tally.wrong, 0) << ranks << " " << regions;
    EXPECT_GE(tally.right, 95) << ranks << " " << regions << ", one region " << tally.one_region;
    EXPECT_LT(tally.worst_ratio, 1.35) << ranks << " " << regions;
  }
}

TEST(Probe, RoundTripsAloneShowThemWhereUplinksAreWide) {
  for (const auto& [ranks, regions] : {std::pair{4U, 2U}, {8U, 2U}, {16U, 4U}, {64U, 8U}}) {
    const Tally tally = over_seeds({ranks, regions, 1, 150e-6, 0.3, 0, 0}, 100);
    EXPECT_EQ(tally.wrong, 0) << ranks;
    EXPECT_GE(tally.right, 99) << ranks;
    EXPECT_LT(tally.worst_ratio, 1.4) << ranks;
  }
}

TEST(Probe, StraysAndNoiseGiveOneRegionRatherThanAWrongMap) {
  for (const double strays : {0.01, 0.05, 0.2}) {
    for (const double noise : {0.1, 0.5, 1.0, 3.0}) {
      for (const double hop : {0.0, 30e-6, 150e-6}) {
        const Tally tally = over_seeds({16, 2, 4, hop, noise, strays, 0}, 50);
        EXPECT_EQ(tally.wrong, 0) << strays << " " << noise << " " << hop;
      }
    }
  }
}

TEST(Probe, WhatIsAllAlikeIsOneRegion) {
  for (const std::uint32_t ranks : {2U, 3U, 4U, 8U, 16U, 32U}) {
    for (const double noise : {0.05, 0.3, 1.0, 3.0}) {
      Fabric fabric{ranks, 1, 1, 0, noise, 0.02, 0};
      for (std::uint64_t seed = 0; seed < 50; ++seed) {
        fabric.seed = seed;
        const auto found = find_regions(ranks, fabric.probe());
        EXPECT_EQ(found.map.regions.size(), 1U) << ranks << " " << noise << " " << seed << " " << found.how;
      }
    }
  }
}

TEST(Probe, AMapIsWrittenAsItIsRead) {
  const auto found = find_regions(16, Fabric{16, 4, 4, 150e-6, 0.05, 0, 7}.probe());
  const auto again = parse_region_map(to_text(found.map, 16), 16, 0);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->region_of, found.map.region_of);
  for (std::size_t i = 0; i < again->regions.size(); ++i) {
    EXPECT_EQ(again->regions[i].name, found.map.regions[i].name);
    EXPECT_NEAR(again->regions[i].oversubscription, found.map.regions[i].oversubscription, 1e-5);
  }
}

}  // namespace
}  // namespace clustar::paraexpress
