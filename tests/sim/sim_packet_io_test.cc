// What the conformance suite cannot see: time, trimming, limits and losses of the simulated backend.
#include "transport/sim/sim_packet_io.h"

#include <gtest/gtest.h>

#include "tests/sim/endpoints.h"

namespace clustar::transport::sim {
namespace {

struct Bed {
  explicit Bed(StarOptions options = {.hosts = 3, .link = {}, .host = {}, .switches = {}}, SimPacketIoOptions io = {})
      : network(Network::star(simulation, options)), a(*network, 0, io), b(*network, 1, io), memory(4096) {
    mr = std::move(a.reg_mr(gdr::MemoryRef::host(memory.data(), memory.size())).value());
  }
  io::TxPacket packet(std::size_t payload, std::uint8_t tag) {
    io::TxPacket out;
    out.peer = 1;
    out.header = io::Header(4);
    out.header.bytes()[0] = static_cast<std::byte>(tag);
    out.payload = {mr.get(), 0, payload};
    return out;
  }
  std::size_t send(std::size_t payload, std::uint8_t tag) {
    const io::TxPacket one = packet(payload, tag);
    return a.send(std::span(&one, 1)).value();
  }
  Simulation simulation;
  std::unique_ptr<Network> network;
  SimPacketIo a;
  SimPacketIo b;
  std::vector<std::byte> memory;
  std::unique_ptr<io::Mr> mr;
};

TEST(SimPacketIo, WaitEndsAtTheArrivalAndReportsItsTime) {
  Bed bed;
  EXPECT_EQ(bed.send(1000, 1), 1u);
  bed.b.wait(std::chrono::seconds(5));
  // 1,070 B at 100 Gbit/s are 85.6 ns, twice, and 500 ns of delay, twice.
  EXPECT_EQ(bed.simulation.now(), ns(85 + 500 + 85 + 500));
  io::RxPacket received[2];
  ASSERT_EQ(bed.b.receive(received).value(), 1u);
  EXPECT_EQ(received[0].rx_time, ns(1170));
  bed.b.release(std::span(received, 1));
  bed.b.wait(Duration(830));
  EXPECT_EQ(bed.simulation.now(), ns(2000));
}

TEST(SimPacketIo, WaitAfterBackPressureEndsWhenThereIsRoom) {
  Bed bed({.hosts = 2, .link = {1'000'000'000, Duration(0)}, .host = {2, 1}, .switches = {}});
  EXPECT_EQ(bed.send(1000, 1) + bed.send(1000, 2) + bed.send(1000, 3) + bed.send(1000, 4), 3u);
  bed.a.wait(std::chrono::seconds(5));
  EXPECT_EQ(bed.simulation.now(), ns(1070 * 8));
  EXPECT_EQ(bed.send(1000, 4), 1u);
}

TEST(SimPacketIo, WaitInsideOfAnEventReturnsAtOnce) {
  Bed bed;
  bed.simulation.at(ns(5), [&] {
    bed.b.wait(std::chrono::seconds(1));
    EXPECT_EQ(bed.simulation.now(), ns(5));
  });
  bed.simulation.run(10);
}

TEST(SimPacketIo, AFullReceiveQueueLosesAndCounts) {
  SimPacketIoOptions io;
  io.receive_queue_packets = 4;
  Bed bed({.hosts = 2, .link = {}, .host = {}, .switches = {}}, io);
  for (std::uint8_t i = 0; i < 10; ++i) EXPECT_EQ(bed.send(10, i), 1u);
  bed.simulation.run(~0ull);
  EXPECT_EQ(bed.b.unreleased(), 4u);
  EXPECT_EQ(bed.network->drops()[DropCause::kReceiveQueue], 6u);
  io::RxPacket received[8];
  ASSERT_EQ(bed.b.receive(received).value(), 4u);
  EXPECT_EQ(bed.send(10, 77), 1u);  // received is not released
  bed.simulation.run(~0ull);
  EXPECT_EQ(bed.network->drops()[DropCause::kReceiveQueue], 7u);
  bed.b.release(std::span(received, 4));
  EXPECT_EQ(bed.b.unreleased(), 0u);
  EXPECT_EQ(bed.send(10, 78), 1u);
  bed.simulation.run(~0ull);
  EXPECT_EQ(bed.b.receive(received).value(), 1u);
  EXPECT_EQ(received[0].header[0], std::byte{78});
  bed.b.release(std::span(received, 1));
}

TEST(SimPacketIo, TrimmedPacketsSaySo) {
  StarOptions options{.hosts = 3, .link = {}, .host = {}, .switches = {}};
  options.switches.buffer_bytes = 1500;
  options.switches.trim = every_class(true);
  Bed bed(options);
  SimPacketIo other(*bed.network, 2);
  for (std::uint8_t i = 0; i < 8; ++i) {
    EXPECT_EQ(bed.send(1400, i), 1u);
    const io::TxPacket packet = bed.packet(1400, i);
    EXPECT_EQ(other.send(std::span(&packet, 1)).value(), 1u);
  }
  bed.simulation.run(~0ull);
  io::RxPacket received[32];
  ASSERT_EQ(bed.b.receive(received).value(), 16u);
  std::size_t trimmed = 0;
  for (const io::RxPacket& packet : std::span(received, 16)) {
    trimmed += packet.trimmed;
    EXPECT_EQ(packet.payload.size(), packet.trimmed ? 0u : 1400u);
    EXPECT_EQ(packet.traffic_class, packet.trimmed ? 7 : 0);
    EXPECT_EQ(packet.header.size(), 4u);
  }
  EXPECT_GT(trimmed, 0u);
  EXPECT_EQ(trimmed, bed.network->down(1).counters().trims);
  bed.b.release(std::span(received, 16));
}

}  // namespace
}  // namespace clustar::transport::sim
