// What every implementation of io::PacketIo must do. The rules are those of transport/io/packet_io.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/conformance/packet_io_under_test.h"

namespace clustar::transport::conformance {
namespace {

class PacketIoConformance : public ::testing::TestWithParam<PacketIoUnderTest> {
 protected:
  void SetUp() override {
    auto created = GetParam().create();
    if (!created) GTEST_SKIP() << GetParam().name << " cannot run here: " << created.error().message;
    bed_ = std::move(*created);
  }
  const io::Capabilities& capabilities() { return bed_->end(0).capabilities(); }
  io::TxPacket packet(std::size_t from, std::size_t to, io::Header header, const PayloadBuffer& buffer,
                      std::size_t length) {
    io::TxPacket out;
    out.peer = bed_->peer(from, to);
    out.header = header;
    out.payload = {buffer.mr.get(), 0, length};
    return out;
  }
  // A number that the packet carries in its header.
  static io::Header numbered(std::uint32_t number) {
    io::Header header(4);
    for (std::size_t i = 0; i < 4; ++i) header.bytes()[i] = static_cast<std::byte>(number >> (8 * i));
    return header;
  }
  static std::uint32_t number_of(std::span<const std::byte> header) {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < 4; ++i) number |= static_cast<std::uint32_t>(header[i]) << (8 * i);
    return number;
  }

  std::unique_ptr<PacketIoBed> bed_;
};

TEST_P(PacketIoConformance, SaysWhatItCanDo) {
  for (std::size_t i = 0; i < PacketIoBed::kEnds; ++i) {
    const io::Capabilities& can = bed_->end(i).capabilities();
    EXPECT_GE(can.max_packet, 64u);
    EXPECT_GE(can.header_bytes, 4u);
    EXPECT_LE(can.header_bytes, io::Header::kMax);
    EXPECT_LE(can.header_bytes, can.max_packet);
    EXPECT_GE(can.paths, 1);
  }
}

TEST_P(PacketIoConformance, HeaderAndPayloadOfEverySizeArriveWhole) {
  PayloadBuffer buffer(bed_->end(0), capabilities().max_packet, 1);
  for (std::size_t header = 1; header <= capabilities().header_bytes; header = header * 2 + 1) {
    const std::size_t most = capabilities().max_packet - header;
    std::vector<std::size_t> sizes = {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, most / 2, most - 1, most};
    std::erase_if(sizes, [most](std::size_t size) { return size > most; });
    for (const std::size_t size : sizes) {
      const io::TxPacket sent = packet(0, 1, header_of(header, static_cast<unsigned>(size)), buffer, size);
      send_all(*bed_, 0, std::span(&sent, 1));
      const std::vector<Received> received = collect(*bed_, 1, 1);
      ASSERT_EQ(received.size(), 1u) << header << " + " << size;
      EXPECT_TRUE(std::ranges::equal(received[0].header, sent.header.bytes())) << header << " + " << size;
      EXPECT_TRUE(std::ranges::equal(received[0].payload, std::span(buffer.bytes).first(size))) << size;
      EXPECT_EQ(received[0].info.peer, bed_->peer(1, 0));
      EXPECT_FALSE(received[0].info.trimmed);
    }
  }
}

TEST_P(PacketIoConformance, EveryLengthUpToTheLargestArrives) {
  PayloadBuffer buffer(bed_->end(0), capabilities().max_packet, 2);
  std::size_t next = 0;
  while (next + 4 <= capabilities().max_packet) {
    std::vector<io::TxPacket> burst;
    for (; burst.size() < 64 && next + 4 <= capabilities().max_packet; next += 3) {
      burst.push_back(packet(0, 1, numbered(static_cast<std::uint32_t>(next)), buffer, next));
    }
    send_all(*bed_, 0, burst);
    const std::vector<Received> received = collect(*bed_, 1, burst.size());
    ASSERT_EQ(received.size(), burst.size());
    for (const Received& one : received) {
      ASSERT_EQ(one.payload.size(), number_of(one.header));
      EXPECT_TRUE(std::ranges::equal(one.payload, std::span(buffer.bytes).first(one.payload.size())));
    }
  }
}

TEST_P(PacketIoConformance, PayloadIsTakenFromItsOffset) {
  PayloadBuffer buffer(bed_->end(0), 1000, 3);
  io::TxPacket sent = packet(0, 1, numbered(0), buffer, 40);
  sent.payload.offset = 333;
  send_all(*bed_, 0, std::span(&sent, 1));
  const std::vector<Received> received = collect(*bed_, 1, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_TRUE(std::ranges::equal(received[0].payload, std::span(buffer.bytes).subspan(333, 40)));
}

TEST_P(PacketIoConformance, AHeaderWithoutPayloadNeedsNoMemory) {
  io::TxPacket sent;
  sent.peer = bed_->peer(0, 1);
  sent.header = header_of(4, 1);
  send_all(*bed_, 0, std::span(&sent, 1));
  const std::vector<Received> received = collect(*bed_, 1, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_TRUE(received[0].payload.empty());
}

TEST_P(PacketIoConformance, RefusesWhatIsTooLargeAndGoesOn) {
  const std::size_t most = capabilities().max_packet;
  PayloadBuffer buffer(bed_->end(0), 2 * most, 4);
  for (const std::size_t size : {most - 3, most, 2 * most}) {  // with 4 bytes of header
    const io::TxPacket sent = packet(0, 1, numbered(9), buffer, size);
    const auto taken = bed_->end(0).send(std::span(&sent, 1));
    ASSERT_FALSE(taken) << size;
    EXPECT_EQ(taken.error().code, ErrorCode::kInvalidArgument);
    EXPECT_FALSE(taken.error().message.empty());
  }
  // Those in front of a bad one are taken or offered again, never lost and never sent twice.
  const io::TxPacket burst[] = {packet(0, 1, numbered(1), buffer, 10), packet(0, 1, numbered(2), buffer, 10),
                                packet(0, 1, numbered(3), buffer, most)};
  std::size_t accepted = 0;
  for (int rounds = 0; accepted < 2 && rounds < 1000; ++rounds) {
    const auto taken = bed_->end(0).send(std::span(burst).subspan(accepted));
    ASSERT_TRUE(taken) << taken.error().message;
    accepted += *taken;
    if (*taken == 0) bed_->advance(std::chrono::microseconds(10));
  }
  ASSERT_EQ(accepted, 2u);
  EXPECT_FALSE(bed_->end(0).send(std::span(burst).subspan(2)));
  const io::TxPacket good = packet(0, 1, numbered(4), buffer, most - 4);
  send_all(*bed_, 0, std::span(&good, 1));
  std::multiset<std::uint32_t> numbers;
  for (const Received& one : collect(*bed_, 1, 4)) numbers.insert(number_of(one.header));
  EXPECT_EQ(numbers, (std::multiset<std::uint32_t>{1, 2, 4}));
}

TEST_P(PacketIoConformance, RefusesWhatIsOutsideOfItsMemoryOrRange) {
  PayloadBuffer buffer(bed_->end(0), 64, 5);
  std::vector<io::TxPacket> bad(4, packet(0, 1, numbered(9), buffer, 32));
  bad[0].payload.offset = 33;
  bad[1].payload.offset = ~std::size_t{0} - 8;
  bad[2].payload.mr = nullptr;
  bad[3].traffic_class = 8;
  if (capabilities().paths < 255) {
    bad.push_back(packet(0, 1, numbered(9), buffer, 32));
    bad.back().path = capabilities().paths;
  }
  for (std::size_t i = 0; i < bad.size(); ++i) {
    const auto taken = bed_->end(0).send(std::span(&bad[i], 1));
    ASSERT_FALSE(taken) << i;
    EXPECT_EQ(taken.error().code, ErrorCode::kInvalidArgument) << i;
  }
  EXPECT_TRUE(collect(*bed_, 1, 1).empty());
}

TEST_P(PacketIoConformance, EmptyBurstsAreFine) {
  EXPECT_EQ(bed_->end(0).send({}).value(), 0u);
  EXPECT_EQ(bed_->end(0).receive({}).value(), 0u);
  bed_->end(0).release({});
  io::RxPacket one;
  EXPECT_EQ(bed_->end(0).receive(std::span(&one, 1)).value(), 0u);
}

TEST_P(PacketIoConformance, BackPressureLosesNothing) {
  constexpr std::uint32_t kPackets = 4096;
  PayloadBuffer buffer(bed_->end(0), 256, 6);
  std::vector<io::TxPacket> packets;
  for (std::uint32_t i = 0; i < kPackets; ++i) packets.push_back(packet(0, 1, numbered(i), buffer, i % 57));
  std::span<const io::TxPacket> rest = packets;
  bool refused = false;
  std::vector<std::uint32_t> numbers;
  const auto drain = [&] {
    for (const Received& one : collect(*bed_, 1, kPackets, std::chrono::microseconds(1))) {
      numbers.push_back(number_of(one.header));
    }
  };
  for (int rounds = 0; !rest.empty() && rounds < 1'000'000; ++rounds) {
    const auto taken = bed_->end(0).send(rest);
    ASSERT_TRUE(taken) << taken.error().message;
    refused |= *taken < rest.size();
    rest = rest.subspan(*taken);
    bed_->end(0).wait(std::chrono::microseconds(1));
    drain();
  }
  ASSERT_TRUE(rest.empty());
  for (const Received& one : collect(*bed_, 1, kPackets - numbers.size())) numbers.push_back(number_of(one.header));
  std::sort(numbers.begin(), numbers.end());
  ASSERT_EQ(numbers.size(), kPackets);
  for (std::uint32_t i = 0; i < kPackets; ++i) ASSERT_EQ(numbers[i], i);
  if (bed_->refuses_bursts()) {
    EXPECT_TRUE(refused);
  }
}

TEST_P(PacketIoConformance, CopiedPayloadMayBeOverwrittenAtOnce) {
  if (!capabilities().copies) GTEST_SKIP() << "this backend reads payload after send()";
  PayloadBuffer buffer(bed_->end(0), 60, 7);
  const std::vector<std::byte> before = buffer.bytes;
  const io::TxPacket sent = packet(0, 1, numbered(1), buffer, 60);
  send_all(*bed_, 0, std::span(&sent, 1));
  std::fill(buffer.bytes.begin(), buffer.bytes.end(), std::byte{0});
  const std::vector<Received> received = collect(*bed_, 1, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].payload, before);
}

TEST_P(PacketIoConformance, PayloadMayBeOverwrittenOnceSettled) {
  // Long enough that a backend that can does not copy it.
  const std::size_t bytes = std::min<std::size_t>(1000, capabilities().max_packet - 16);
  PayloadBuffer buffer(bed_->end(0), bytes, 17);
  const std::vector<std::byte> before = buffer.bytes;
  const io::TxPacket sent = packet(0, 1, numbered(1), buffer, bytes);
  send_all(*bed_, 0, std::span(&sent, 1));
  bed_->end(0).quiesce();
  std::fill(buffer.bytes.begin(), buffer.bytes.end(), std::byte{0});
  const std::vector<Received> received = collect(*bed_, 1, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].payload, before);
}

// The same without waiting for it: a ring of payloads that is longer by one than what may be in flight.
TEST_P(PacketIoConformance, PayloadMayBeOverwrittenWhenSoManyMoreWereTaken) {
  if (capabilities().copies) GTEST_SKIP() << "this backend copies";
  const std::size_t bytes = std::min<std::size_t>(1000, capabilities().max_packet - 16);
  const std::size_t places = capabilities().in_flight + 1;
  PayloadBuffer ring(bed_->end(0), places * bytes, 18);
  std::uint32_t arrived = 0;
  const auto drain = [&](std::size_t count) {
    for (const Received& one : collect(*bed_, 1, count)) {
      const auto expected = static_cast<std::byte>(number_of(one.header) % 251);
      ASSERT_TRUE(std::ranges::all_of(one.payload, [&](std::byte byte) { return byte == expected; }));
      ++arrived;
    }
  };
  const std::size_t rounds = 2 * places + 100;
  for (std::uint32_t i = 0; i < rounds; ++i) {
    const std::size_t offset = i % places * bytes;
    std::fill_n(ring.bytes.begin() + static_cast<std::ptrdiff_t>(offset), bytes, static_cast<std::byte>(i % 251));
    io::TxPacket one = packet(0, 1, numbered(i), ring, bytes);
    one.payload.offset = offset;
    one.path = static_cast<std::uint8_t>(i / 3 % capabilities().paths);
    send_all(*bed_, 0, std::span(&one, 1));
    if (i % 256 == 255) drain(256);
  }
  drain(rounds - arrived);
  EXPECT_EQ(arrived, rounds);
}

// Each of its buffers is used several times. A busy machine's interfaces may lose a few packets; none comes any more
// where buffers do not come back.
TEST_P(PacketIoConformance, GoesOnForMorePacketsThanItHasBuffers) {
  constexpr std::uint32_t kBurst = 50;
  constexpr std::uint32_t kBursts = 400;
  PayloadBuffer buffer(bed_->end(0), 60, 19);
  std::size_t arrived = 0;
  for (std::uint32_t burst = 0; burst < kBursts; ++burst) {
    std::vector<io::TxPacket> packets;
    for (std::uint32_t i = 0; i < kBurst; ++i) {
      packets.push_back(packet(0, 1, numbered(burst * kBurst + i), buffer, 60));
    }
    send_all(*bed_, 0, packets);
    const std::size_t came = collect(*bed_, 1, kBurst).size();
    ASSERT_GT(came, 0u) << "burst " << burst;
    arrived += came;
  }
  EXPECT_GT(arrived, kBurst * kBursts * 95 / 100);
}

TEST_P(PacketIoConformance, ReportsPathAndClassAndKeepsTheOrderOfBoth) {
  PayloadBuffer buffer(bed_->end(0), 16, 8);
  const unsigned paths = std::min<unsigned>(capabilities().paths, 16);
  std::vector<io::TxPacket> packets;
  for (std::uint32_t i = 0; i < 512; ++i) {
    io::TxPacket one = packet(0, 1, numbered(i), buffer, 16);
    one.path = static_cast<std::uint8_t>(i * 7 % paths);
    one.traffic_class = static_cast<std::uint8_t>(i * 5 / 3 % 8);
    packets.push_back(one);
  }
  send_all(*bed_, 0, packets);
  const std::vector<Received> received = collect(*bed_, 1, packets.size());
  ASSERT_EQ(received.size(), packets.size());
  std::map<std::pair<int, int>, std::uint32_t> last;
  for (const Received& one : received) {
    const std::uint32_t number = number_of(one.header);
    ASSERT_LT(number, packets.size());
    EXPECT_EQ(one.info.path, packets[number].path) << number;
    EXPECT_EQ(one.info.traffic_class, packets[number].traffic_class) << number;
    const auto [place, first] = last.try_emplace({one.info.path, one.info.traffic_class}, number);
    EXPECT_TRUE(first || place->second < number) << "path " << int{one.info.path};
    place->second = number;
  }
}

TEST_P(PacketIoConformance, ReportsEcn) {
  PayloadBuffer first(bed_->end(1), 64, 9);
  PayloadBuffer second(bed_->end(2), 64, 9);
  std::size_t marks = 0;
  for (const bool ect : {false, true}) {
    for (int round = 0; round < 8; ++round) {
      std::vector<io::TxPacket> one(64, packet(1, 0, numbered(1), first, 64));
      std::vector<io::TxPacket> two(64, packet(2, 0, numbered(2), second, 64));
      for (auto* packets : {&one, &two}) {
        for (io::TxPacket& each : *packets) each.ect = ect;
      }
      send_all(*bed_, 1, one);
      send_all(*bed_, 2, two);
    }
    const std::vector<Received> received = collect(*bed_, 0, 1024);
    EXPECT_EQ(received.size(), 1024u);
    for (const Received& packet : received) {
      EXPECT_EQ(packet.info.ecn != io::Ecn::kNotEct, ect && capabilities().marks);
      marks += packet.info.ecn == io::Ecn::kCe;
    }
  }
  if (bed_->marks_incast()) {
    EXPECT_GT(marks, 0u);
  }
}

TEST_P(PacketIoConformance, PacketsStayAsTheyAreUntilReleased) {
  PayloadBuffer buffer(bed_->end(0), 16 * 48, 10);
  const auto send_from = [&](std::uint32_t begin) {
    std::vector<io::TxPacket> packets;
    for (std::uint32_t i = begin; i < begin + 16; ++i) {
      packets.push_back(packet(0, 1, numbered(i), buffer, 48));
      packets.back().payload.offset = (i % 16) * 48;
    }
    send_all(*bed_, 0, packets);
  };
  // Sixteen are held while many others come and go.
  send_from(0);
  io::RxPacket held[16];
  std::size_t count = 0;
  for (int rounds = 0; rounds < 1000 && count < 16; ++rounds) {
    count += bed_->end(1).receive(std::span(held).subspan(count)).value();
    bed_->advance(std::chrono::microseconds(10));
  }
  ASSERT_EQ(count, 16u);
  for (std::uint32_t round = 1; round <= 50; ++round) {
    send_from(16 * round);
    ASSERT_EQ(collect(*bed_, 1, 16).size(), 16u);
    // Released one at a time, last first, so that order cannot matter.
    if (round % 5 == 0 && count > 8) bed_->end(1).release(std::span(held).subspan(--count, 1));
  }
  for (const io::RxPacket& one : std::span(held).first(count)) {
    const std::uint32_t number = number_of(one.header);
    ASSERT_LT(number, 16u);
    EXPECT_TRUE(std::ranges::equal(one.payload, std::span(buffer.bytes).subspan(number * 48, 48)));
  }
  bed_->end(1).release(std::span(held).first(count));
}

TEST_P(PacketIoConformance, RegistersHostMemory) {
  std::vector<std::byte> bytes(12345);
  auto mr = bed_->end(0).reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size()));
  ASSERT_TRUE(mr) << mr.error().message;
  EXPECT_EQ((*mr)->memory().address, bytes.data());
  EXPECT_EQ((*mr)->memory().length, bytes.size());
  auto again = bed_->end(0).reg_mr(gdr::MemoryRef::host(bytes.data() + 100, 1000));  // overlaps
  EXPECT_TRUE(again);
}

TEST_P(PacketIoConformance, RefusesMemoryThatItCannotKnow) {
  std::byte byte{};
  const gdr::MemoryRef unknown{static_cast<gdr::MemoryKind>(0x7f), &byte, 1, -1, 0};
  const gdr::MemoryRef no_descriptor{gdr::MemoryKind::kDmaBuf, nullptr, 4096, -1, 0};
  const gdr::MemoryRef no_address{gdr::MemoryKind::kHost, nullptr, 4096, -1, 0};
  for (const gdr::MemoryRef& memory : {unknown, no_descriptor, no_address}) {
    auto mr = bed_->end(0).reg_mr(memory);
    ASSERT_FALSE(mr) << gdr::to_string(memory.kind);
    EXPECT_GE(mr.error().message.size(), 10u);  // a sentence
  }
}

TEST_P(PacketIoConformance, LandingsAreAHint) {
  PayloadBuffer target(bed_->end(1), 4096, 11);
  PayloadBuffer source(bed_->end(0), 64, 12);
  const io::PlacementHint landing = bed_->end(1).expect(bed_->peer(1, 0), 3, {target.mr.get(), 0, 4096}, 1024);
  if (!capabilities().landing) {
    EXPECT_EQ(landing.id, 0u);
  }
  bed_->end(1).cancel(landing);
  bed_->end(1).cancel(io::PlacementHint{});
  const io::TxPacket sent = packet(0, 1, numbered(5), source, 64);
  send_all(*bed_, 0, std::span(&sent, 1));
  const std::vector<Received> received = collect(*bed_, 1, 1);
  ASSERT_EQ(received.size(), 1u);
  EXPECT_EQ(received[0].payload, source.bytes);
}

TEST_P(PacketIoConformance, WaitReturnsByItsTimeoutAndWhenSomethingComes) {
  for (const Duration timeout : {Duration(0), Duration(1000), Duration(5'000'000)}) bed_->end(1).wait(timeout);
  PayloadBuffer buffer(bed_->end(0), 8, 13);
  const io::TxPacket sent = packet(0, 1, numbered(1), buffer, 8);
  send_all(*bed_, 0, std::span(&sent, 1));
  io::RxPacket one;
  std::size_t received = 0;
  for (int i = 0; i < 100 && received == 0; ++i) {
    bed_->end(1).wait(std::chrono::milliseconds(100));
    received = bed_->end(1).receive(std::span(&one, 1)).value();
  }
  ASSERT_EQ(received, 1u);
  bed_->end(1).wait(Duration(0));  // while a packet is held
  bed_->end(1).release(std::span(&one, 1));
}

TEST_P(PacketIoConformance, TimesOfArrivalDoNotGoBack) {
  PayloadBuffer buffer(bed_->end(0), 8, 14);
  const std::vector<io::TxPacket> packets(200, packet(0, 1, numbered(1), buffer, 8));
  send_all(*bed_, 0, packets);
  const std::vector<Received> received = collect(*bed_, 1, packets.size());
  ASSERT_EQ(received.size(), packets.size());
  for (std::size_t i = 1; i < received.size(); ++i) {
    EXPECT_LE(received[i - 1].info.rx_time, received[i].info.rx_time);
  }
}

TEST_P(PacketIoConformance, PeersDoNotMix) {
  PayloadBuffer one(bed_->end(1), 32, 15);
  PayloadBuffer two(bed_->end(2), 32, 16);
  for (int round = 0; round < 20; ++round) {
    const std::vector<io::TxPacket> first(16, packet(1, 0, numbered(1), one, 32));
    const std::vector<io::TxPacket> second(16, packet(2, 0, numbered(2), two, 32));
    const io::TxPacket across = packet(1, 2, numbered(12), one, 32);
    send_all(*bed_, 1, first);
    send_all(*bed_, 2, second);
    send_all(*bed_, 1, std::span(&across, 1));
    std::map<std::uint32_t, int> counts;
    for (const Received& received : collect(*bed_, 0, 32)) {
      const std::uint32_t from = number_of(received.header);
      ASSERT_TRUE(from == 1 || from == 2);
      ++counts[from];
      EXPECT_EQ(received.info.peer, bed_->peer(0, from));
      EXPECT_EQ(received.payload, from == 1 ? one.bytes : two.bytes);
    }
    EXPECT_EQ(counts, (std::map<std::uint32_t, int>{{1, 16}, {2, 16}}));
    const std::vector<Received> crossed = collect(*bed_, 2, 1);
    ASSERT_EQ(crossed.size(), 1u);
    EXPECT_EQ(crossed[0].info.peer, bed_->peer(2, 1));
    EXPECT_EQ(crossed[0].payload, one.bytes);
  }
  EXPECT_TRUE(collect(*bed_, 1, 1).empty());
}

INSTANTIATE_TEST_SUITE_P(Implementations, PacketIoConformance, ::testing::ValuesIn(packet_ios_under_test()),
                         [](const auto& suite) { return suite.param.name; });

}  // namespace
}  // namespace clustar::transport::conformance
