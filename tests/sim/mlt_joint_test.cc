// Two processes with several NICs each: what the receiving one may lose of a collective is counted over all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "mlt/core/joint_budget.h"
#include "tests/sim/direct.h"
#include "transport/base/rng.h"

namespace clustar::mlt::test {
namespace {

constexpr std::uint32_t kMessageBytes = 256 * 1024;

struct Outcome {
  std::uint64_t bound = 0;
  std::uint64_t lost = 0;     // contribution-bytes that are missing, of all NICs
  std::uint64_t charged = 0;  // what their ledgers say
  bool came = true;           // all messages
};

// A ring's reduce-scatter whose steps come by the NICs in turn, over cables that lose some percent.
Outcome play(std::uint64_t seed, bool joined) {
  Rng rng(seed);
  JointBudgetTable received({}), sent({});
  const Endpoint::Joint joint = joined ? Endpoint::Joint{&received, &sent} : Endpoint::Joint{};
  std::vector<std::unique_ptr<Direct>> nics;
  for (std::uint64_t i = 2 + rng.below(2); i > 0; --i) {
    nics.push_back(std::make_unique<Direct>(opted_in(), joint, joint));
    const double part = 0.01 + 0.01 * static_cast<double>(rng.below(5));
    nics.back()->loses = [&rng, part](const DataHeader&) { return rng.chance(part); };
  }
  SendTerms terms = tolerant_terms();
  terms.ranks = terms.edges = static_cast<std::uint16_t>(4 + rng.below(5));
  terms.tolerance_ppm = 20'000;
  terms.collective_bytes = std::uint64_t{nics.size()} * 6 * kMessageBytes;
  Outcome outcome{.bound = loss_bound({terms.collective_bytes, terms.ranks, terms.edges, terms.tolerance_ppm})};
  for (int round = 0; round < 6; ++round) {
    terms.stage = static_cast<std::uint16_t>(terms.ranks - 2 - rng.below(2));
    std::uint64_t missing = 0;
    for (const auto& nic : nics) {
      missing -= nic->missing;
      outcome.came = nic->post(kMessageBytes) && nic->send(kMessageBytes, 7, terms) && outcome.came;
    }
    const auto all = [&] {
      return std::all_of(nics.begin(), nics.end(), [&](const auto& nic) { return nic->received == round + 1; });
    };
    for (int turn = 0; turn < 10'000 && !all(); ++turn) nics[rng.below(nics.size())]->run(std::chrono::microseconds(5));
    outcome.came = outcome.came && all();
    for (const auto& nic : nics) missing += nic->missing;
    outcome.lost += missing * (std::uint64_t{terms.stage} + 1);
  }
  for (const auto& nic : nics) outcome.charged += nic->to.ledgers().totals().charged;
  return outcome;
}

TEST(MltJoint, NicsOfAProcessLoseNoMoreThanTheBoundTogether) {
  std::uint64_t lost = 0, beyond_alone = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Outcome joined = play(seed, true);
    ASSERT_TRUE(joined.came) << "seed " << seed;
    ASSERT_EQ(joined.lost, joined.charged) << "seed " << seed;
    ASSERT_LE(joined.lost, joined.bound) << "seed " << seed;
    lost += joined.lost > 0 ? 1 : 0;
    beyond_alone += play(seed, false).lost > joined.bound ? 1 : 0;
  }
  EXPECT_GT(lost, 30u);
  EXPECT_GT(beyond_alone, 10u) << "what each may lose alone is within the bound: this would prove nothing";
}

}  // namespace
}  // namespace clustar::mlt::test
