#include "transport/io/dpdk/core/neighbours.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "transport/base/rng.h"

namespace clustar::transport::io::dpdk {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using State = Neighbours::State;

constexpr Ipv4 kIp = 0x0a000002;
constexpr Mac kMac{2, 0, 0, 0, 0, 2};
constexpr Mac kOther{2, 0, 0, 0, 0, 3};

std::size_t asks(Neighbours& neighbours) {
  std::size_t count = 0;
  while (neighbours.poll_ask()) ++count;
  return count;
}

TEST(DpdkNeighbours, WhoAnswersIsKnownAndIsAskedAgainWhenItIsOld) {
  Neighbours neighbours({});
  TimePoint now{};
  const auto id = neighbours.want(kIp, now).value();
  EXPECT_EQ(neighbours.state(id), State::kAsking);
  EXPECT_EQ(neighbours.mac(id), nullptr);
  const auto ask = neighbours.poll_ask();
  ASSERT_TRUE(ask);
  EXPECT_EQ(ask->ip, kIp);
  EXPECT_FALSE(ask->mac);
  EXPECT_EQ(neighbours.on_claim(kIp, kMac, now), id);
  ASSERT_NE(neighbours.mac(id), nullptr);
  EXPECT_EQ(*neighbours.mac(id), kMac);
  EXPECT_EQ(neighbours.next_timeout(), now + seconds(30));
  neighbours.on_timeout(now + seconds(30) - Duration(1));
  EXPECT_EQ(asks(neighbours), 0u);
  neighbours.on_timeout(now += seconds(30));
  EXPECT_EQ(neighbours.state(id), State::kChecking);
  EXPECT_EQ(*neighbours.mac(id), kMac);  // what was known counts meanwhile
  const auto check = neighbours.poll_ask();
  ASSERT_TRUE(check);
  EXPECT_EQ(check->mac, kMac);                        // that one alone is asked
  EXPECT_FALSE(neighbours.on_claim(kIp, kMac, now));  // no news
  EXPECT_EQ(neighbours.state(id), State::kKnown);
}

TEST(DpdkNeighbours, WhoDoesNotAnswerIsSilentAndIsAskedNowAndThen) {
  Neighbours neighbours({});
  TimePoint now{};
  const auto id = neighbours.want(kIp, now).value();
  std::size_t asked = 0;
  while (neighbours.state(id) == State::kAsking) {
    asked += asks(neighbours);
    now = neighbours.next_timeout();
    neighbours.on_timeout(now);
    ASSERT_LT(now, TimePoint{} + seconds(10));
  }
  EXPECT_EQ(asked, 5u);
  EXPECT_EQ(now, TimePoint{} + seconds(1));
  EXPECT_EQ(neighbours.state(id), State::kSilent);
  EXPECT_EQ(neighbours.poll_silent(), id);
  EXPECT_FALSE(neighbours.poll_silent());
  EXPECT_EQ(neighbours.mac(id), nullptr);
  EXPECT_EQ(asks(neighbours), 1u);
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(neighbours.next_timeout(), now + seconds(1));
    neighbours.on_timeout(now += seconds(1));
    EXPECT_EQ(asks(neighbours), 1u);
    EXPECT_FALSE(neighbours.poll_silent());
  }
  EXPECT_EQ(neighbours.on_claim(kIp, kMac, now), id);  // it is back
  EXPECT_EQ(*neighbours.mac(id), kMac);
}

TEST(DpdkNeighbours, AnAddressThatMovesIsNewsAndAnotherHostsIsNothing) {
  Neighbours neighbours({});
  const TimePoint now{};
  const auto id = neighbours.want(kIp, now).value();
  neighbours.on_claim(kIp, kMac, now);
  EXPECT_EQ(neighbours.on_claim(kIp, kOther, now), id);
  EXPECT_EQ(*neighbours.mac(id), kOther);
  EXPECT_FALSE(neighbours.on_claim(kIp + 1, kMac, now));
  EXPECT_FALSE(neighbours.on_claim(kIp, kBroadcast, now));
  EXPECT_FALSE(neighbours.on_claim(kIp, Mac{}, now));
  EXPECT_EQ(*neighbours.mac(id), kOther);
}

TEST(DpdkNeighbours, WhatIsWantedTwiceIsForgottenWithTheSecond) {
  Neighbours neighbours({.most = 1});
  const TimePoint now{};
  const auto id = neighbours.want(kIp, now).value();
  EXPECT_EQ(neighbours.want(kIp, now), id);
  EXPECT_FALSE(neighbours.want(kIp + 1, now)) << "there may be one";
  neighbours.forget(id);
  EXPECT_EQ(neighbours.state(id), State::kAsking);
  neighbours.forget(id);
  EXPECT_EQ(neighbours.state(id), State::kUnused);
  EXPECT_EQ(neighbours.next_timeout(), Neighbours::kNever);
  EXPECT_EQ(asks(neighbours), 0u);
  EXPECT_TRUE(neighbours.want(kIp + 1, now));
}

TEST(DpdkNeighbours, WhatNobodyWantsAnyMoreStaysKnownUntilItIsOldOrItsPlaceIsWanted) {
  Neighbours neighbours({.most = 1});
  TimePoint now{};
  auto id = neighbours.want(kIp, now).value();
  neighbours.on_claim(kIp, kMac, now);
  neighbours.forget(id);
  id = neighbours.want(kIp, now).value();
  EXPECT_EQ(asks(neighbours), 0u);
  ASSERT_NE(neighbours.mac(id), nullptr);
  neighbours.forget(id);
  neighbours.on_timeout(now += seconds(30));
  EXPECT_EQ(neighbours.state(id), State::kUnused);
  EXPECT_EQ(asks(neighbours), 0u) << "for nobody";
  id = neighbours.want(kIp, now).value();
  neighbours.on_claim(kIp, kMac, now);
  neighbours.forget(id);
  EXPECT_TRUE(neighbours.want(kIp + 1, now));
}

// Hosts that answer now and then, in random order: what is known is what was last said, it is asked in time, and a
// timeout that comes early changes nothing.
TEST(DpdkNeighbours, RandomHostsForALongTime) {
  for (unsigned seed = 1; seed <= 200; ++seed) {
    Rng rng(seed);
    const NeighbourOptions options{.most = 6};
    Neighbours neighbours(options);
    TimePoint now{};
    std::map<Ipv4, std::vector<Neighbours::Id>> wanted;
    std::map<Ipv4, Mac> said;
    for (int step = 0; step < 400; ++step) {
      const auto ip = static_cast<Ipv4>(kIp + rng.next() % 8);
      switch (rng.next() % 5) {
        case 0:
          if (const auto id = neighbours.want(ip, now)) wanted[ip].push_back(*id);
          break;
        case 1:
          if (!wanted[ip].empty()) {
            neighbours.forget(wanted[ip].back());
            wanted[ip].pop_back();
          }
          break;
        case 2: {
          const Mac mac{2, 0, 0, 0, 0, static_cast<std::uint8_t>(rng.next() % 3 + 1)};
          const auto news = neighbours.on_claim(ip, mac, now);
          ASSERT_TRUE(!news || wanted[ip].empty() || *news == wanted[ip].front());
          said[ip] = mac;
          break;
        }
        case 3: now += milliseconds(rng.next() % 3000); [[fallthrough]];
        default: neighbours.on_timeout(now);
      }
      while (const auto ask = neighbours.poll_ask()) ASSERT_FALSE(wanted[ask->ip].empty()) << seed;
      while (const auto id = neighbours.poll_silent()) ASSERT_EQ(neighbours.state(*id), State::kSilent);
      ASSERT_TRUE(neighbours.is_consistent()) << seed << " at " << step;
      for (const auto& [address, ids] : wanted) {
        if (ids.empty()) continue;
        const Mac* mac = neighbours.mac(ids.front());
        ASSERT_TRUE(mac == nullptr || *mac == said.at(address));
      }
    }
    ASSERT_LE(neighbours.next_timeout(), std::max(now, TimePoint::max()));
  }
}

}  // namespace
}  // namespace clustar::transport::io::dpdk
