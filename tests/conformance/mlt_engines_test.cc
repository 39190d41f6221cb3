// MltTransport with several engines per NIC.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

#include "tests/conformance/mlt_bed.h"

namespace clustar::transport::conformance {
namespace {

class MltEngines : public MltBed {};

// Of each communicator a thread, as NCCL has it: nobody waits for another's engine.
TEST_F(MltEngines, CommunicatorsOfFourThreadsHaveEnginesOfTheirOwn) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    const std::size_t opened = ports().size();
    const auto transport = create({.engine = engine, .engines = 4});
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        Connection connection = connect(*transport, *transport, {.comm_id = t + 1});
        for (int round = 0; round < 10; ++round) transfer(connection, round % 2 == 0 ? 200000 : 64, t);
        // Until all four are there: one that ended would leave its engine to another.
        const auto latest = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (transport->counters().devices.at(0).total.received.messages < 40u &&
               std::chrono::steady_clock::now() < latest)
          std::this_thread::yield();
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Counters counters = transport->counters();
    EXPECT_EQ(ports().size() - opened, 4u) << engine;
    ASSERT_EQ(counters.devices.size(), 1u) << "NCCL knows one device, whatever it has inside";
    EXPECT_EQ(counters.devices[0].total.received.messages, 40u) << engine;
    ASSERT_EQ(counters.devices[0].peers.size(), 1u);
    EXPECT_GT(counters.devices[0].packets_sent, 40u);
  }
}

// What a communicator may lose is counted in its engine, over all its connections.
TEST_F(MltEngines, ACommunicatorThatMayLoseHasOneEngine) {
  const auto transport = create({.engine = "thread", .engines = 4});
  std::vector<Connection> lossy, reliable;
  for (int i = 0; i < 3; ++i)
    lossy.push_back(connect(*transport, *transport, {.comm_id = 7, .max_tolerance_ppm = 10'000}));
  EXPECT_EQ(ports().size(), 1u);
  for (int i = 0; i < 3; ++i) reliable.push_back(connect(*transport, *transport, {.comm_id = 7}));
  EXPECT_EQ(ports().size(), 4u);
  for (Connection& connection : lossy) EXPECT_TRUE(transfer(connection, 200000));
  for (Connection& connection : reliable) EXPECT_TRUE(transfer(connection, 200000));
}

}  // namespace
}  // namespace clustar::transport::conformance
