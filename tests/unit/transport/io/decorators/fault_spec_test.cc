#include "transport/io/decorators/fault_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "transport/io/decorators/fault_dice.h"

namespace clustar::transport::io {
namespace {

using std::chrono::microseconds;
using testing::HasSubstr;

FaultSpec parsed(std::string_view text) {
  auto spec = FaultSpec::parse(text);
  EXPECT_TRUE(spec) << text << ": " << (spec ? "" : spec.error().message);
  return spec.value_or(FaultSpec{});
}

TEST(FaultSpec, ReadsEveryKey) {
  const FaultSpec spec = parsed(
      "loss=0.01,burst=0.001/0.2/0.8,reorder=0.05/3,duplicate=0.01,corrupt=0.001/"
      "header,delay=100us,jitter=0.05ms,path=3,"
      "class=7,seed=18446744073709551615");
  FaultSpec expected;
  expected.loss = 0.01;
  expected.burst_enter = 0.001;
  expected.burst_leave = 0.2;
  expected.burst_loss = 0.8;
  expected.reorder = 0.05;
  expected.reorder_packets = 3;
  expected.duplicate = 0.01;
  expected.corrupt = 0.001;
  expected.corrupt_where = FaultSpec::Where::kHeader;
  expected.delay = microseconds(100);
  expected.jitter = microseconds(50);
  expected.path = 3;
  expected.traffic_class = 7;
  expected.seed = ~std::uint64_t{0};
  EXPECT_EQ(spec, expected);
  EXPECT_EQ(parsed(""), FaultSpec{});
  EXPECT_FALSE(parsed("").copies());
  EXPECT_EQ(parsed("reorder=1/2us").reorder_time, microseconds(2));
  EXPECT_EQ(parsed("reorder=1/2us").reorder_packets, 0u);
}

TEST(FaultSpec, TextAndBack) {
  EXPECT_EQ(FaultSpec{}.to_string(), "");
  for (const char* text : {"loss=0.01", "burst=0.001/0.2/0.8", "reorder=0.05/3", "reorder=0.05/20us", "duplicate=1",
                           "corrupt=0.5", "corrupt=0.5/payload", "delay=1s", "delay=1500ns,jitter=7ms",
                           "path=0,class=0", "loss=1e-07,direction=both,seed=0", "loss=0.3,direction=in"}) {
    EXPECT_EQ(parsed(text).to_string(), text);
    EXPECT_EQ(parsed(parsed(text).to_string()), parsed(text)) << text;
  }
  EXPECT_EQ(parsed("jitter=0.001s,loss=0.10,delay=2000us").to_string(), "loss=0.1,delay=2ms,jitter=1ms");
}

TEST(FaultSpec, ErrorsNameTheKeyAndWhatIsAllowed) {
  const struct {
    const char* text;
    const char* key;
    const char* allowed;
  } kBad[] = {
      {"loss=1.5", "'loss'", "0 to 1"},
      {"loss=-0.1", "'loss'", "0 to 1"},
      {"loss=nan", "'loss'", "0 to 1"},
      {"loss=", "'loss'", "0 to 1"},
      {"loss", "'loss'", "0 to 1"},
      {"loss=0.1x", "'loss'", "0 to 1"},
      {"loss=0.1/0.2", "'loss'", "0 to 1"},
      {"loss=0.1,loss=0.2", "'loss'", "once"},
      {"lose=0.1", "'lose'", "loss, burst, reorder"},
      {"loss=0.1,", "''", "allowed are"},
      {" loss=0.1", "' loss'", "allowed are"},
      {"burst=0.1", "'burst'", "ENTER/LEAVE/LOSS"},
      {"burst=0.1/0.1/2", "'burst'", "ENTER/LEAVE/LOSS"},
      {"reorder=0.1", "'reorder'", "P/PACKETS"},
      {"reorder=0.1/0", "'reorder'", "1 to 1024"},
      {"reorder=0.1/1025", "'reorder'", "1 to 1024"},
      {"corrupt=0.1/tail", "'corrupt'", "/payload"},
      {"delay=100", "'delay'", "ns, us, ms or s"},
      {"delay=-1us", "'delay'", "ns, us, ms or s"},
      {"delay=11s", "'delay'", "10s"},
      {"delay=us", "'delay'", "100us"},
      {"path=255", "'path'", "0 to 254"},
      {"class=8", "'class'", "0 to 7"},
      {"direction=up", "'direction'", "out, in or both"},
      {"direction=in,delay=1us", "'direction'", "loss, burst"},
      {"seed=-1", "'seed'", "2^64"},
  };
  for (const auto& bad : kBad) {
    const auto spec = FaultSpec::parse(bad.text);
    ASSERT_FALSE(spec) << bad.text;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(spec.error().message, HasSubstr(bad.key)) << bad.text;
    EXPECT_THAT(spec.error().message, HasSubstr(bad.allowed)) << bad.text;
  }
}

constexpr int kRolls = 200'000;

// Within five standard deviations of a binomial distribution.
void expect_share(int count, double probability, const char* what) {
  const double mean = kRolls * probability;
  EXPECT_NEAR(count, mean, 5 * std::sqrt(mean * (1 - probability)) + 1) << what;
}

TEST(FaultDice, EveryFaultHasItsShare) {
  FaultDice dice(parsed("loss=0.01,reorder=0.05/3,duplicate=0.2,corrupt=0.001,delay=100us,jitter=50us,seed=3"), 0);
  int lost = 0, reordered = 0, duplicated = 0, corrupted = 0, late_half = 0;
  for (int i = 0; i < kRolls; ++i) {
    const Fate fate = dice.roll(0, 0);
    lost += fate.lost;
    reordered += fate.held_back;
    duplicated += fate.duplicated;
    corrupted += fate.corrupted;
    late_half += fate.delay > microseconds(125);
    ASSERT_GE(fate.delay, microseconds(100));
    ASSERT_LE(fate.delay, microseconds(150));
  }
  expect_share(lost, 0.01, "loss");
  expect_share(reordered, 0.05, "reorder");
  expect_share(duplicated, 0.2, "duplicate");
  expect_share(corrupted, 0.001, "corrupt");
  expect_share(late_half, 0.5, "jitter");
}

TEST(FaultDice, BurstsHaveTheLengthAndShareOfTheModel) {
  FaultDice dice(parsed("burst=0.01/0.25/1"), 0);
  int lost = 0, bursts = 0;
  bool before = false;
  for (int i = 0; i < kRolls; ++i) {
    const bool now = dice.roll(0, 0).burst_lost;
    lost += now;
    bursts += now && !before;
    before = now;
  }
  // The chain is in its bad state enter / (enter + leave) of the time; a stay there is 1 / leave packets long. The
  // variance of the share is that of a binomial times about 2 / (enter + leave).
  const double share = 0.01 / 0.26;
  EXPECT_NEAR(lost, kRolls * share, 5 * std::sqrt(kRolls * share * 2 / 0.26));
  EXPECT_NEAR(static_cast<double>(lost) / bursts, 4.0, 0.3);
  // In the bad state only some are lost.
  FaultDice half(parsed("burst=1/0/0.5"), 0);
  int some = 0;
  for (int i = 0; i < kRolls; ++i) some += half.roll(0, 0).burst_lost;
  expect_share(some, 0.5, "loss in the bad state");
}

TEST(FaultDice, ASeedRepeatsAndAnotherDiffers) {
  const FaultSpec spec =
      parsed("loss=0.1,burst=0.01/0.2/0.8,reorder=0.1/3,duplicate=0.1,corrupt=0.1,jitter=50us,seed=5");
  FaultSpec other_seed = spec;
  other_seed.seed = 6;
  FaultDice one(spec, 0), same(spec, 0), other(other_seed, 0), stream(spec, 1);
  int differ = 0, differ_stream = 0;
  for (int i = 0; i < 1000; ++i) {
    const Fate fate = one.roll(0, 0);
    ASSERT_EQ(fate, same.roll(0, 0));
    differ += fate != other.roll(0, 0);
    differ_stream += fate != stream.roll(0, 0);
  }
  EXPECT_GT(differ, 500);
  EXPECT_GT(differ_stream, 500);
}

TEST(FaultDice, FaultsDoNotShiftEachOther) {
  FaultDice alone(parsed("loss=0.1"), 0);
  FaultDice among(parsed("loss=0.1,burst=0.1/0.1/1,reorder=0.5/1,duplicate=0.5,corrupt=0.5,jitter=9us"), 0);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(alone.roll(0, 0).lost, among.roll(0, 0).lost);
}

TEST(FaultDice, FaultsAreIndependent) {
  FaultDice dice(parsed("loss=0.5,burst=0.5/0.5/1,reorder=0.5/1,duplicate=0.5,corrupt=0.5,jitter=1us"), 0);
  int both[4] = {};
  for (int i = 0; i < kRolls; ++i) {
    const Fate fate = dice.roll(0, 0);
    both[0] += fate.lost && fate.held_back;
    both[1] += fate.held_back && fate.duplicated;
    both[2] += fate.duplicated && fate.corrupted;
    both[3] += fate.corrupted && fate.delay >= Duration(500);
  }
  for (const int count : both) EXPECT_NEAR(count, kRolls * 0.25, kRolls * 0.006);
}

TEST(FaultDice, OutOfScopeDrawsNothing) {
  FaultDice scoped(parsed("loss=0.5,path=3,class=2"), 0);
  FaultDice plain(parsed("loss=0.5"), 0);
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(scoped.roll(3, 1), Fate{});
    ASSERT_EQ(scoped.roll(2, 2), Fate{});
    ASSERT_EQ(scoped.roll(3, 2), plain.roll(0, 0));
  }
}

}  // namespace
}  // namespace clustar::transport::io
