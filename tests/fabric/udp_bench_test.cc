// bench/udp: every way to send and to receive moves every byte, also when predictions fail.
#include <gtest/gtest.h>

#include "bench/udp/receivers.h"
#include "bench/udp/senders.h"
#include "bench/udp/trial.h"

namespace clustar::bench::udp {
namespace {

TEST(UdpBench, EveryWayPutsEveryByteAtItsPlace) {
  Memory memory;
  for (const Carriage carriage : {Carriage::kWhole, Carriage::kPackets}) {
    const auto wire = Wire::make(1500, carriage);
    if (!wire) GTEST_SKIP() << wire.error().message;
    Shape shape;
    shape.segments = 5000;
    shape.window_segments = 170;
    shape.swap_every = 4;
    std::vector<Arm> arms;
    for (const std::string& receiver : receiver_names()) arms.push_back({"sendmmsg", receiver});
    for (const std::string& sender : sender_names()) arms.push_back({sender, "copy"});
    for (const Arm& arm : arms) {
      SCOPED_TRACE(arm.sender + " > " + arm.receiver + ", " + to_string(carriage));
      const auto figures = run_trial(*wire, memory, shape, arm, Threads::kOne);
      if (!figures && figures.error().code == ErrorCode::kUnavailable) {
        RecordProperty(arm.sender + arm.receiver, figures.error().message);  // a kernel without io_uring
        continue;
      }
      ASSERT_TRUE(figures) << figures.error().message;
      EXPECT_EQ(figures->lost, 0u);
      EXPECT_EQ(figures->wrong, 0u);
      const ScatterCounts& scatter = figures->scatter;
      if (arm.receiver == "scatter" && carriage == Carriage::kWhole) {
        EXPECT_GT(scatter.moved, 0u);
      }
      if (arm.receiver == "scatter-peek") {
        EXPECT_EQ(scatter.placed, shape.segments);
      }
    }
  }
}

TEST(UdpBench, TwoThreadsEndAndLoseNothingThatTheWindowHolds) {
  const auto wire = Wire::make(9000, Carriage::kWhole);
  if (!wire) GTEST_SKIP() << wire.error().message;
  Memory memory;
  Shape shape;
  shape.payload_bytes = 8896;
  shape.segments = 1000;
  shape.window_segments = 28;
  const auto figures = run_trial(*wire, memory, shape, {"sendmmsg", "scatter-peek"}, Threads::kTwo);
  ASSERT_TRUE(figures) << figures.error().message;
  EXPECT_EQ(figures->lost, 0u);
  EXPECT_EQ(figures->wrong, 0u);
  EXPECT_GT(figures->sender.calls, 0u);
  EXPECT_GT(figures->receiver.calls, 0u);
}

}  // namespace
}  // namespace clustar::bench::udp
