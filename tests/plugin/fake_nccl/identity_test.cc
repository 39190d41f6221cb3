// A million messages through the plugin's own parts, each compared with the oracle.
#include <gtest/gtest.h>

#include "tests/plugin/fake_nccl/scenario.h"
#include "tests/sanitized.h"

namespace clustar::tests::fake_nccl {
namespace {

using nccl_plugin::Reason;

constexpr std::uint64_t kMessages = kSanitized ? 400'000 : 1'000'000;

std::uint64_t of(const Tally& tally, Reason reason) { return tally.reasons[static_cast<std::size_t>(reason)]; }

void print(const Tally& tally) {
  std::string text;
  for (std::size_t i = 0; i < nccl_plugin::kReasons; ++i) {
    text += std::string(" ") + nccl_plugin::name_of(static_cast<Reason>(i)) + " " + std::to_string(tally.reasons[i]);
  }
  std::cout << tally.messages << " messages, " << tally.identified << " identified of " << tally.should_be_identified
            << " that must be, " << tally.phases << " phases, " << tally.lossy << " lossy (" << tally.lossy_sends
            << " of sends), " << tally.empty << " empty;" << text << "\n";
}

Tally run(std::initializer_list<Kind> kinds, std::uint64_t messages, std::uint64_t first_seed) {
  Tally tally;
  for (std::uint64_t seed = first_seed; tally.messages < messages && tally.first_failures.size() < 5; ++seed) {
    for (const Kind kind : kinds) run_scenario(kind, seed, tally);
  }
  for (const std::string& text : tally.first_failures) ADD_FAILURE() << text;
  EXPECT_EQ(tally.failures, 0u);
  print(tally);
  return tally;
}

TEST(FakeNccl, EveryMessageOfNcclIsIdentifiedWithItsPhaseAndStage) {
  const Tally tally = run({Kind::kClean}, kMessages, 1);
  EXPECT_EQ(tally.identified, tally.messages);
  EXPECT_EQ(tally.should_be_identified, tally.messages);
  EXPECT_GT(tally.phases, tally.messages / 5);
  EXPECT_GT(tally.lossy, tally.messages / 50);
  EXPECT_GT(tally.lossy_sends, 0u);
  EXPECT_GT(tally.empty, 0u);
  EXPECT_EQ(tally.ring_sizes.count(), 15u);   // 2 .. 16
  EXPECT_EQ(tally.paired_sizes.count(), 8u);  // 2 (both on one node), 4 .. 16
  EXPECT_GE(tally.most_loops, 3u);
  EXPECT_EQ(tally.most_channels, 4u);
}

TEST(FakeNccl, NothingIsLostOutsideTheContractWhateverTheEvents) {
  const Tally tally = run({Kind::kHostile, Kind::kShortPools, Kind::kOldNccl, Kind::kClean}, kMessages, 1'000'000);
  EXPECT_GT(tally.lossy, 0u);
  EXPECT_GT(tally.lossy_sends, 0u);
  // Every reason was met, so that none of them was right by never being asked.
  for (std::size_t i = 0; i < nccl_plugin::kReasons; ++i) {
    const auto reason = static_cast<Reason>(i);
    if (reason == Reason::kUnknownSize) continue;  // a float collective without bytes has no message
    EXPECT_GT(of(tally, reason), 0u) << nccl_plugin::name_of(reason);
  }
}

}  // namespace
}  // namespace clustar::tests::fake_nccl
