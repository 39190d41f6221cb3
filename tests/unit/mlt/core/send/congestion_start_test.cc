// DctcpSwift's first round trips, and round trips that cannot be.
#include <gtest/gtest.h>

#include <cstdint>
#include <utility>

#include "mlt/core/send/congestion.h"

namespace clustar::mlt {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(DctcpSwift, AnIdlePathIsFilledByTheFirstAcknowledgements) {
  constexpr std::uint32_t kInitial = 32 * 1024;
  const auto window_after = [](std::uint64_t bytes, Duration rtt, Duration base, std::uint64_t marked = 0) {
    DctcpSwift::Options options;
    options.initial = kInitial;
    DctcpSwift congestion(options);
    congestion.set_base_rtt(base);
    TimePoint now{seconds(1)};
    for (std::uint64_t acked = 0; acked < bytes; acked += 4096, now += microseconds(1)) {
      congestion.on_ack({4096, marked, rtt, rtt}, now);
    }
    return congestion.window_bytes();
  };
  EXPECT_EQ(window_after(8 * 1024, microseconds(100), microseconds(100)), kInitial);
  EXPECT_EQ(window_after(16 * 1024, microseconds(100), microseconds(100)), 2 * kInitial);
  EXPECT_EQ(window_after(32 * 1024, microseconds(100), microseconds(100)), 4 * kInitial);
  EXPECT_EQ(window_after(256 * 1024, microseconds(100), microseconds(100)), 8 * kInitial) << "and no further";
  EXPECT_EQ(window_after(32 * 1024, microseconds(100), Duration::zero()), kInitial) << "nobody knows the empty network";
  EXPECT_EQ(window_after(32 * 1024, microseconds(130), microseconds(100)), kInitial) << "somebody's queue is there";
  EXPECT_EQ(window_after(32 * 1024, microseconds(100), microseconds(100), 1), kInitial) << "and marks say so";
}

// A clock that jumps makes one absurd round trip: decisions must not wait for so long.
TEST(DctcpSwift, OneAbsurdSampleHoldsUpNothing) {
  DctcpSwift congestion;
  TimePoint now{seconds(1)};
  congestion.on_ack({1448, 0, seconds(10), microseconds(100)}, now);
  std::uint64_t changes = 0, before = congestion.window_bytes();
  for (int i = 0; i < 3000; ++i) {
    now += microseconds(10);
    congestion.on_ack({64 * 1024, 0, microseconds(100), microseconds(100)}, now);
    if (std::exchange(before, congestion.window_bytes()) != congestion.window_bytes()) ++changes;
  }
  EXPECT_GT(changes, 5u) << "within 30 ms";
}

}  // namespace
}  // namespace clustar::mlt
