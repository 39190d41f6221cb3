// The times of MLT, derived from what a link is.
#include <gtest/gtest.h>

#include "mlt/driver/driver_options.h"

namespace clustar::mlt::driver {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using transport::io::LinkKind;
using transport::io::LinkProfile;

Options options_of(const LinkProfile& link) {
  transport::io::Capabilities can;
  can.max_packet = 8972;
  can.paths = 8;
  return options_for(can, link, 0).value();
}

// What MLT was tuned and measured with.
TEST(LinkProfile, KernelUdpHasTheTimesThatWereMeasured) {
  const Options options = options_of(LinkProfile::usual(LinkKind::kKernel));
  EXPECT_EQ(options.base_rtt, microseconds(100));
  EXPECT_EQ(options.initial_rtt, microseconds(500));
  EXPECT_EQ(options.gap_floor, microseconds(200));
  EXPECT_EQ(options.probe_floor, milliseconds(2));
  EXPECT_EQ(options.ask_cap, milliseconds(4));
  EXPECT_EQ(options.ack_delay, milliseconds(1));
  EXPECT_EQ(options.pace_bytes, 256u * 1024);
  EXPECT_EQ(options.line_rate, 12'500'000'000u) << "an unknown one is taken for 100 Gbit/s";
  EXPECT_EQ(options.credit_slack, 1024u * 1024);
  EXPECT_EQ(options_of(LinkProfile::usual(LinkKind::kKernel, 25'000'000'000)).line_rate, 3'125'000'000u);
  EXPECT_EQ(LinkProfile::usual(LinkKind::kKernel).blind_sleep(), microseconds(200));
}

TEST(LinkProfile, EveryKindGivesOptionsThatTheCoreTakesAndNoneIsSlowerThanTheKernel) {
  const Options kernel = options_of(LinkProfile::usual(LinkKind::kKernel));
  for (const LinkKind kind : {LinkKind::kKernel, LinkKind::kNic, LinkKind::kPollMode, LinkKind::kSimulated}) {
    const Options options = options_of(LinkProfile::usual(kind));
    EXPECT_NO_THROW(options.check()) << to_string(kind);
    EXPECT_LE(options.base_rtt, kernel.base_rtt);
    EXPECT_LE(options.ack_delay, kernel.ack_delay);
    EXPECT_LE(options.ask_cap, kernel.ask_cap);
    EXPECT_LE(options.probe_floor, kernel.probe_floor);
    EXPECT_GE(options.pace_bytes, options.burst_bytes);
    EXPECT_LE(options.pace_bytes, kernel.pace_bytes);
  }
  EXPECT_EQ(LinkProfile::usual(LinkKind::kNic, 100'000'000'000).to_string(),
            "nic, round trip 20 us, jitter 200 us, wake 12.5 us, 100 Gbit/s");
}

}  // namespace
}  // namespace clustar::mlt::driver
