// Other recoveries than MLT's own over UDP, which benchmarks turn on by MltTransport::Adjust.
#include <gmock/gmock.h>

#include "mlt/compare/recoveries.h"
#include "tests/conformance/mlt_loss_bed.h"

namespace clustar::transport::conformance {
namespace {

using mlt::Options;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

class MltRecoveries : public MltLossBed {
 protected:
  static driver::MltTransport::Adjust use(const mlt::Recovery& recovery) {
    return [&recovery](Options& options) { options.recovery = &recovery; };
  }

  const mlt::compare::GoBackN go_back_n{};
  const mlt::compare::StaticDeadline deadline{std::chrono::milliseconds(1)};
};

TEST_F(MltRecoveries, GoBackNDeliversEveryByteUnderLoss) {
  const auto from = create({.wrap = faults("loss=0.01"), .adjust = use(go_back_n)});
  const auto to = create({.adjust = use(go_back_n)});
  std::vector<Connection> channels;
  channels.push_back(connect(*from, *to, kOptedIn));
  const Came came = run(channels, 8, kMiB, {.loss = one_percent_of(8 * kMiB)});
  EXPECT_EQ(came.missing, 0u) << "an RC NIC knows no loss";
  EXPECT_EQ(came.different, 0u);
  EXPECT_GT(count(from->summary(), " of them again"), 0u);
}

TEST_F(MltRecoveries, AStaticDeadlineEndsAMessageWithItsLossReported) {
  const auto from = create({.wrap = faults("loss=0.2"), .adjust = use(deadline)});
  const auto to = create({.adjust = use(deadline)});
  std::vector<Connection> channels;
  channels.push_back(connect(*from, *to, kOptedIn));
  const Came came = run(channels, 8, kMiB, {.loss = one_percent_of(8 * kMiB)});
  EXPECT_GT(came.missing, 0u);
  EXPECT_EQ(came.not_zero, 0u);
  EXPECT_EQ(came.different, 0u);
  EXPECT_THAT(came.sizes, Each(kMiB));
  EXPECT_EQ(count(to->summary(), " bytes missing"), came.missing);
}

// At a deadline packets are still on their way: their acknowledgement may overtake the word that they came too late.
TEST_F(MltRecoveries, BothEndsAgreeOnWhatCameTooLate) {
  const auto from = create({.wrap = faults("loss=0.02,reorder=0.2/40ms"), .adjust = use(deadline)});
  const auto to = create({.wrap = faults("reorder=0.3/5ms"), .adjust = use(deadline)});
  std::vector<Connection> channels;
  for (int i = 0; i < 2; ++i) channels.push_back(connect(*from, *to, kOptedIn));
  EXPECT_GT(run(channels, 32, kMiB, {.loss = one_percent_of(32 * kMiB)}).missing, 0u);
}

TEST_F(MltRecoveries, BothEndsHaveTheSameRecoveryAndPaths) {
  const auto plain = create({});
  const auto gbn = create({.adjust = use(go_back_n)});
  const auto narrow = create({.adjust = [](Options& options) { options.paths = 1; }});
  const auto refusal = [](Transport& from, Transport& to) {
    const auto listener = std::move(to.listen(0, {}).value());
    const auto refused = from.connect(0, listener->handle(), {});
    return refused ? std::string("connected") : refused.error().message;
  };
  EXPECT_THAT(refusal(*plain, *gbn), HasSubstr("is 0 here and 1 at the peer"));
  EXPECT_THAT(refusal(*gbn, *plain), HasSubstr("is 1 here and 0 at the peer"));
  EXPECT_THAT(refusal(*narrow, *plain), HasSubstr("paths is 1 here and 8 at the peer"));
  EXPECT_EQ(refusal(*narrow, *narrow), "connected");
}

TEST_F(MltRecoveries, WhatIsNotAllowedIsAnError) {
  const auto wide = create({.adjust = [](Options& options) { options.paths = 9; }});
  EXPECT_THAT(wide->listen(0, {}).error().message, AllOf(HasSubstr("9 paths"), HasSubstr("at most 8")));
  const auto wrong = create({.adjust = [](Options& options) { options.segment = 0; }});
  EXPECT_THAT(wrong->listen(0, {}).error().message, HasSubstr("segment"));
}

TEST_F(MltRecoveries, OnePathIsEnough) {
  const auto transport = create({.adjust = [](Options& options) { options.paths = 1; }});
  Connection connection = connect(*transport, *transport);
  EXPECT_TRUE(transfer(connection, 4 * kMiB));
}

}  // namespace
}  // namespace clustar::transport::conformance
