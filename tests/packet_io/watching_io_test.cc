// PcapIo, whose file is parsed back here, and TraceIo.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/packet_io/pcap_io.h"
#include "tests/packet_io/trace_io.h"
#include "tests/temp_path.h"
#include "tests/unit/transport/io/recording_io.h"

namespace clustar::transport::io {
namespace {

using testing::HasSubstr;

struct Block {
  std::uint64_t time = 0;
  std::uint32_t length = 0;  // of the packet
  std::uint32_t flags = 0;
  std::vector<std::byte> bytes;
};

// An own reading of the format, which fails the test on anything that the draft does not allow.
class Pcapng {
 public:
  explicit Pcapng(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    bytes_.resize(text.size());
    std::memcpy(bytes_.data(), text.data(), text.size());
    read_blocks();
  }
  std::uint16_t link_type = 0;
  std::uint32_t snap = 0;
  std::vector<Block> packets;

 private:
  void read_blocks() {
    for (std::size_t at = 0; at < bytes_.size();) {
      const auto type = load<std::uint32_t>(at);
      const auto length = load<std::uint32_t>(at + 4);
      ASSERT_GE(length, 12u);
      ASSERT_EQ(length % 4, 0u);
      ASSERT_LE(at + length, bytes_.size());
      ASSERT_EQ(load<std::uint32_t>(at + length - 4), length);
      if (at == 0) {
        ASSERT_EQ(type, 0x0a0d0d0au);
        ASSERT_EQ(load<std::uint32_t>(8), 0x1a2b3c4du);
      } else if (type == 1) {
        link_type = load<std::uint16_t>(at + 8);
        snap = load<std::uint32_t>(at + 12);
        ASSERT_EQ(load<std::uint16_t>(at + 16), 9u);  // if_tsresol
        ASSERT_EQ(load<std::uint8_t>(at + 20), 9u);   // nanoseconds
      } else {
        ASSERT_EQ(type, 6u);
        read_packet(at);
      }
      at += length;
    }
  }
  template <class T>
  T load(std::size_t at) const {
    T value{};
    EXPECT_LE(at + sizeof(T), bytes_.size());
    if (at + sizeof(T) <= bytes_.size()) std::memcpy(&value, bytes_.data() + at, sizeof(T));
    return value;
  }
  void read_packet(std::size_t at) {
    Block block;
    block.time = std::uint64_t{load<std::uint32_t>(at + 12)} << 32 | load<std::uint32_t>(at + 16);
    const auto captured = load<std::uint32_t>(at + 20);
    block.length = load<std::uint32_t>(at + 24);
    const std::size_t options = at + 28 + (captured + 3) / 4 * 4;
    ASSERT_LE(options + 12, bytes_.size());
    block.bytes.assign(bytes_.begin() + static_cast<std::ptrdiff_t>(at) + 28,
                       bytes_.begin() + static_cast<std::ptrdiff_t>(at + 28 + captured));
    ASSERT_EQ(load<std::uint16_t>(options), 2u);
    block.flags = load<std::uint32_t>(options + 4);
    packets.push_back(block);
  }

  std::vector<std::byte> bytes_;
};

unsigned byte_at(const Block& block, std::size_t at) { return std::to_integer<unsigned>(block.bytes.at(at)); }
unsigned word_at(const Block& block, std::size_t at) { return byte_at(block, at) << 8 | byte_at(block, at + 1); }

struct PcapBed {
  explicit PcapBed(const char* name, PcapngOptions file = {}) {
    if (file.path.empty()) file.path = tests::temp_path(name, ".pcapng");
    path = file.path;
    auto owned = std::make_unique<RecordingIo>();
    inner = owned.get();
    PcapIoOptions options;
    options.file = file;
    options.clock = &clock;
    options.epoch = std::chrono::seconds(1'700'000'000);
    io = std::make_unique<PcapIo>(std::move(owned), options);
  }
  ~PcapBed() {
    if (path != "/dev/full") std::filesystem::remove(path);
  }
  PcapBed(const PcapBed&) = delete;
  PcapBed& operator=(const PcapBed&) = delete;

  ManualClock clock;
  Packets packets;
  std::string path;
  RecordingIo* inner;
  std::unique_ptr<PcapIo> io;
};

TEST(PcapIo, TheFileHoldsWhatWasSentAndReceived) {
  PcapBed bed("both");
  bed.clock.time = TimePoint(Duration(1234));
  TxPacket sent = bed.packets.numbered(5, 33, 3, 6);
  sent.ect = true;
  sent.peer = 0x010203;
  ASSERT_EQ(bed.io->send(std::span(&sent, 1)).value(), 1u);
  RxPacket came;
  came.peer = 9;
  came.path = 1;
  came.traffic_class = 2;
  came.ecn = Ecn::kCe;
  came.rx_time = TimePoint(Duration(777));
  came.header = sent.header.bytes();
  came.payload = std::span(bed.packets.bytes()).first(2);
  bed.inner->incoming.push_back(came);
  RxPacket received[4];
  ASSERT_EQ(bed.io->receive(received).value(), 1u);
  bed.io->release(std::span(received, 1));
  bed.io->flush();
  EXPECT_EQ(bed.io->file().written(), 2u);

  const Pcapng file(bed.path);
  EXPECT_EQ(file.link_type, 101);
  ASSERT_EQ(file.packets.size(), 2u);
  const Block& out = file.packets[0];
  EXPECT_EQ(out.time, 1'700'000'000'000'001'234u);
  EXPECT_EQ(out.flags, 2u);  // outbound
  EXPECT_EQ(out.length, 20u + 8 + 1 + 8 + 33);
  ASSERT_EQ(out.bytes.size(), out.length);
  EXPECT_EQ(byte_at(out, 0), 0x45u);
  EXPECT_EQ(byte_at(out, 1), 6u << 5 | 2u);  // CS6, ECT(0)
  EXPECT_EQ(word_at(out, 2), out.length);
  EXPECT_EQ(byte_at(out, 9), 17u);
  unsigned sum = 0;
  for (std::size_t i = 0; i < 20; i += 2) sum += word_at(out, i);
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);  // RFC 791's checksum over a header that is right
  EXPECT_EQ(word_at(out, 12), 0xc000u);
  EXPECT_EQ(word_at(out, 16), 0x0a01u);
  EXPECT_EQ(word_at(out, 18), 0x0203u);
  EXPECT_EQ(word_at(out, 20), 49152u + 3);
  EXPECT_EQ(word_at(out, 22), 61074u);
  EXPECT_EQ(word_at(out, 24), out.length - 20);
  EXPECT_EQ(byte_at(out, 28), 8u);
  EXPECT_TRUE(std::ranges::equal(std::span(out.bytes).subspan(29, 8), sent.header.bytes()));
  EXPECT_TRUE(std::ranges::equal(std::span(out.bytes).subspan(37), std::span(bed.packets.bytes()).subspan(5, 33)));

  const Block& in = file.packets[1];
  EXPECT_EQ(in.time, 1'700'000'000'000'000'777u);
  EXPECT_EQ(in.flags, 1u);  // inbound
  EXPECT_EQ(byte_at(in, 1), 2u << 5 | 3u);
  EXPECT_EQ(word_at(in, 14), 9u);
  EXPECT_EQ(word_at(in, 16), 0xc000u);
  EXPECT_EQ(in.length, 20u + 8 + 1 + 8 + 2);
}

TEST(PcapIo, OnlyWhatTheBackendTookIsWritten) {
  PcapBed bed("taken");
  bed.inner->room = 3;
  EXPECT_EQ(bed.io->send(bed.packets.sequence(10)).value(), 3u);
  bed.io->flush();
  EXPECT_EQ(Pcapng(bed.path).packets.size(), 3u);
}

TEST(PcapIo, LongPacketsAreCutAndForeignMemoryLeftOut) {
  PcapBed bed("snap", {.path = "", .max_bytes = 1 << 20, .snap_bytes = 64});
  const TxPacket sent = bed.packets.numbered(1, 200);
  Packets elsewhere(gdr::MemoryKind::kCuda);
  const TxPacket foreign = elsewhere.numbered(2, 20);
  EXPECT_EQ(bed.io->send(std::span(&sent, 1)).value() + bed.io->send(std::span(&foreign, 1)).value(), 2u);
  bed.io->flush();
  const Pcapng file(bed.path);
  EXPECT_EQ(file.snap, 64u);
  ASSERT_EQ(file.packets.size(), 2u);
  EXPECT_EQ(file.packets[0].bytes.size(), 64u);
  EXPECT_EQ(file.packets[0].length, 237u);
  EXPECT_EQ(word_at(file.packets[0], 2), 237u);
  EXPECT_EQ(file.packets[1].bytes.size(), 37u);
  EXPECT_EQ(file.packets[1].length, 57u);
}

TEST(PcapIo, TheFileStaysWithinItsLimit) {
  PcapBed bed("limit", {.path = "", .max_bytes = 4096, .snap_bytes = 65535});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(bed.io->send(bed.packets.sequence(20)).value(), 20u);
  EXPECT_EQ(bed.inner->sent.size(), 200u);
  EXPECT_THAT(bed.io->file().stopped(), HasSubstr("limit of 4096"));
  EXPECT_FALSE(bed.io->file().open());
  EXPECT_EQ(bed.io->file().written() + bed.io->file().skipped(), 200u);
  EXPECT_LE(std::filesystem::file_size(bed.path), 4096u);
  EXPECT_EQ(Pcapng(bed.path).packets.size(), bed.io->file().written());
}

TEST(PcapIo, TroubleWithTheFileDoesNotReachTheTraffic) {
  PcapBed missing("missing", {.path = tests::temp_path("no_such_folder") + "/x.pcapng"});
  EXPECT_EQ(missing.io->send(missing.packets.sequence(5)).value(), 5u);
  EXPECT_THAT(missing.io->file().stopped(), HasSubstr("cannot be opened"));
  EXPECT_EQ(missing.io->file().skipped(), 5u);
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full, which fails every write";
  PcapBed full("full", {.path = "/dev/full"});
  for (int i = 0; i < 50; ++i) EXPECT_EQ(full.io->send(full.packets.sequence(20)).value(), 20u);
  full.io->flush();
  EXPECT_THAT(full.io->file().stopped(), HasSubstr("cannot be written"));
  EXPECT_GT(full.io->file().skipped(), 0u);
  EXPECT_EQ(full.inner->sent.size(), 1000u);
}

struct TraceBed {
  explicit TraceBed(std::size_t records) {
    auto owned = std::make_unique<RecordingIo>();
    inner = owned.get();
    io = std::make_unique<TraceIo>(std::move(owned), TraceIoOptions{records, &clock});
  }
  std::vector<TraceRecord> records() const {
    std::vector<TraceRecord> all;
    io->each([&all](const TraceRecord& record) { all.push_back(record); });
    return all;
  }
  ManualClock clock;
  Packets packets;
  RecordingIo* inner;
  std::unique_ptr<TraceIo> io;
};

TEST(TraceIo, CountsAndKeepsTheLastOnes) {
  TraceBed bed(4);
  EXPECT_TRUE(bed.records().empty());
  EXPECT_EQ(bed.io->send(bed.packets.sequence(2)).value(), 2u);
  EXPECT_EQ(bed.records().size(), 2u);
  EXPECT_EQ(bed.io->send(bed.packets.sequence(7, 2)).value(), 7u);
  RxPacket came;
  came.peer = 3;
  came.ecn = Ecn::kCe;
  came.trimmed = true;
  came.header = std::span(bed.packets.bytes()).first(40);
  bed.inner->incoming.push_back(came);
  RxPacket received[2];
  bed.clock.time = TimePoint(Duration(55));
  EXPECT_EQ(bed.io->receive(received).value(), 1u);
  const auto records = bed.records();
  ASSERT_EQ(records.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(records[i].sent);
    EXPECT_EQ(std::to_integer<std::size_t>(records[i].prefix[0]), 6 + i);
    EXPECT_EQ(records[i].payload_bytes, 32u);
  }
  EXPECT_FALSE(records[3].sent);
  EXPECT_EQ(records[3].time, TimePoint(Duration(55)));
  EXPECT_EQ(records[3].header_bytes, 40u);
  const TraceCounters& counted = bed.io->counters();
  EXPECT_EQ(counted.sent_packets, 9u);
  EXPECT_EQ(counted.sent_bytes, 9u * 40);
  EXPECT_EQ(counted.received_packets, 1u);
  EXPECT_EQ(counted.received_bytes, 40u);
  EXPECT_EQ(counted.marked, 1u);
  EXPECT_EQ(counted.trimmed, 1u);
}

TEST(TraceIo, CountsBackPressureAndErrors) {
  TraceBed bed(0);
  bed.inner->room = 1;
  EXPECT_EQ(bed.io->send(bed.packets.sequence(2)).value(), 1u);
  bed.inner->broken = true;
  EXPECT_FALSE(bed.io->send(bed.packets.sequence(2)));
  RxPacket none;
  EXPECT_FALSE(bed.io->receive(std::span(&none, 1)));
  EXPECT_EQ(bed.io->counters().back_pressure, 1u);
  EXPECT_EQ(bed.io->counters().errors, 2u);
  EXPECT_TRUE(bed.records().empty());
}

TEST(TraceIo, DumpsLines) {
  TraceBed bed(4);
  bed.clock.time = TimePoint(Duration(12));
  const TxPacket packet = bed.packets.numbered(0x0102, 5, 2, 7);
  EXPECT_EQ(bed.io->send(std::span(&packet, 1)).value(), 1u);
  std::vector<std::string> lines;
  bed.io->dump([&lines](std::string_view line) { lines.emplace_back(line); });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], "12 ns out peer 7 path 2 class 7 ecn 0 header 8 payload 5 | 02 01 00 00 00 00 00 00");
}

}  // namespace
}  // namespace clustar::transport::io
