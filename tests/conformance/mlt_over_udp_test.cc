// The MLT core on real packets: two endpoints on loopback, over kernel UDP or libfabric's datagrams
// (mlt_over_devices.h), with and without faults on the way, every byte compared. What mlt/driver will do for a
// transport, in the least form.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mlt/core/endpoint.h"
#include "tests/conformance/mlt_over_devices.h"
#include "transport/base/rng.h"
#include "transport/base/system_clock.h"
#include "transport/io/decorators/faulty_io.h"

namespace clustar::mlt {
namespace {

namespace io = transport::io;
using std::chrono::microseconds;

constexpr std::uint64_t kSecret = 0x6f5e4d3c2b1a0918;
constexpr std::size_t kMemory = 16 << 20;

Options options_for_loopback(std::uint16_t segment) {
  Options options;
  options.segment = segment;
  options.paths = 4;
  options.line_rate = 1'250'000'000;
  options.base_rtt = microseconds(100);
  options.initial_rtt = microseconds(500);
  options.credit_slack = 256 * 1024;
  options.max_tolerance_ppm = 1'000'000;
  DctcpSwift::Options congestion;
  congestion.queue_target = std::chrono::milliseconds(1);  // the scheduler's pauses are no queue
  options.congestion = DctcpSwift(congestion);
  return options;
}

// One end: an endpoint, its device, and memory for what it sends or receives.
class End {
 public:
  End(const Options& options, std::unique_ptr<io::PacketIo> device, io::PeerId peer)
      : options_(options), core(options_, 1), io_(std::move(device)), peer_(peer), memory(kMemory) {
    staging_.resize(std::size_t{options_.max_staged} * options_.staging_bytes());
    auto mr = io_->reg_mr({gdr::MemoryKind::kHost, memory.data(), memory.size()});
    if (mr) mr_ = std::move(*mr);
  }

  struct Received {
    std::size_t offset = 0;
    std::uint32_t bytes = 0;
    std::uint32_t missing = 0;
  };
  void post(std::uint32_t connection, std::uint32_t bytes) {
    const auto receive = core.post(connection, 7, bytes, clock_.now());
    ASSERT_TRUE(receive.has_value());
    if (targets_.size() <= *receive) targets_.resize(*receive + 1);
    targets_[*receive] = used_;
    used_ += bytes;
  }
  void send(std::uint32_t connection, std::uint32_t bytes, const SendTerms& terms) {
    const auto message = core.send(connection, bytes, 7, terms, clock_.now());
    ASSERT_TRUE(message.has_value());
    if (sources_.size() <= *message) sources_.resize(*message + 1);
    sources_[*message] = used_;
    used_ += bytes;
  }
  // What there is to do now; false: nothing.
  bool turn() {
    bool busy = false;
    std::array<io::RxPacket, 64> burst;
    const auto got = io_->receive(burst);
    if (!got) return false;
    for (const io::RxPacket& packet : std::span(burst).first(*got)) take(packet);
    io_->release(std::span(burst).first(*got));
    busy = *got > 0;
    const TimePoint now = clock_.now();
    if (core.next_timeout() <= now) core.on_timeout(now);
    events();
    return emit() || busy;
  }
  void wait() { io_->wait(microseconds(100)); }

  Options options_;
  Endpoint core;
  std::vector<Received> received;  // in order of completion
  std::uint64_t sent = 0;

 private:
  void take(const io::RxPacket& packet) {
    const bool marked = packet.ecn == io::Ecn::kCe;
    const auto length = static_cast<std::uint32_t>(packet.payload.size());
    const auto arrival = core.on_packet(packet.header, length, marked, clock_.now());
    const Placement& place = arrival.placement;
    if (place.kind == Placement::Kind::kDrop) return;
    std::byte* to = place.kind == Placement::Kind::kPlace
                        ? memory.data() + targets_[place.id] + place.offset
                        : staging_.data() + std::size_t{place.id} * options_.staging_bytes() + place.offset;
    std::memcpy(to, packet.payload.data(), place.length);
  }
  void events() {
    while (const auto event = core.poll_event()) {
      if (const auto* unstage = std::get_if<Endpoint::Unstage>(&event->what)) {
        Receiver& receiver = core.receiver(event->connection);
        for (auto part = receiver.staged(unstage->receive, 0); part;
             part = receiver.staged(unstage->receive, part->number + 1)) {
          std::memcpy(memory.data() + targets_[unstage->receive] + part->offset,
                      staging_.data() + std::size_t{part->buffer} * options_.staging_bytes() + part->buffer_offset,
                      part->length);
        }
        receiver.unstaged(unstage->receive);
      } else if (const auto* done = std::get_if<ReceiveDone>(&event->what)) {
        received.push_back({targets_[done->receive], done->bytes, done->missing});
        core.release(event->connection, done->receive);
      } else if (std::holds_alternative<SendDone>(event->what)) {
        ++sent;
      } else {
        ADD_FAILURE() << "the peer counts as lost";
      }
    }
  }
  bool emit() {
    bool any = false;
    while (true) {
      while (burst_.size() < 32) {
        auto out = core.poll_transmit(clock_.now());
        if (!out) break;
        burst_.push_back(packet_of(out->transmit));
      }
      if (burst_.empty()) return any;
      const auto taken = io_->send(burst_);
      if (!taken) {
        ADD_FAILURE() << taken.error().message;
        return false;
      }
      any = any || *taken > 0;
      burst_.erase(burst_.begin(), burst_.begin() + static_cast<std::ptrdiff_t>(*taken));
      if (!burst_.empty()) return any;
    }
  }
  io::TxPacket packet_of(const Transmit& transmit) {
    std::array<std::byte, kMaxHeader> bytes{};
    const std::size_t size = serialize(transmit.header, bytes);
    io::TxPacket packet;
    packet.peer = peer_;
    packet.path = transmit.path;
    packet.traffic_class = transmit.traffic_class;
    packet.ect = transmit.ect;
    packet.header = io::Header(size);
    std::copy_n(bytes.begin(), size, packet.header.bytes().begin());
    if (transmit.length > 0)
      packet.payload = {mr_.get(), sources_[transmit.message] + transmit.offset, transmit.length};
    return packet;
  }

  SystemClock clock_;
  std::unique_ptr<io::PacketIo> io_;  // before mr_: it outlives it
  std::unique_ptr<io::Mr> mr_;
  io::PeerId peer_;
  std::vector<std::byte> staging_;
  std::vector<std::size_t> sources_;  // by message
  std::vector<std::size_t> targets_;  // by receive
  std::size_t used_ = 0;
  std::vector<io::TxPacket> burst_;

 public:
  std::vector<std::byte> memory;
};

struct Case {
  const char* name;
  const char* faults;  // "": none
  std::uint16_t segment;
  std::uint32_t tolerance_ppm;
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class MltOverUdp : public testing::TestWithParam<Case> {};

TEST_P(MltOverUdp, EveryByteComesToItsPlace) {
  auto two = two_devices();
  ASSERT_TRUE(two) << two.error().message;
  const std::size_t most = two->devices[0]->capabilities().max_packet;
  if (GetParam().segment + kMaxHeader > most) GTEST_SKIP() << "packets of at most " << most << " bytes here";
  std::array<std::unique_ptr<io::PacketIo>, 2> faulty;
  const auto spec = io::FaultSpec::parse(GetParam().faults);
  ASSERT_TRUE(spec) << spec.error().message;
  for (std::size_t i = 0; i < 2; ++i) {
    auto wrapped = io::FaultyIo::create(std::move(two->devices[i]), *spec);
    ASSERT_TRUE(wrapped) << wrapped.error().message;
    faulty[i] = std::move(*wrapped);
  }
  const Options options = options_for_loopback(GetParam().segment);
  End from(options, std::move(faulty[0]), two->peers[0]);
  End to(options, std::move(faulty[1]), two->peers[1]);
  const auto sender = from.core.open_sender(0, kSecret, TimePoint{});
  const auto receiver = to.core.open_receiver(0, kSecret, TimePoint{});

  Rng rng(3);
  for (std::byte& byte : from.memory) byte = static_cast<std::byte>(rng.next());
  SendTerms terms;
  terms.tolerant = GetParam().tolerance_ppm > 0;
  terms.ranks = terms.edges = 4;
  terms.collective_bytes = kMemory;
  terms.tolerance_ppm = GetParam().tolerance_ppm;
  constexpr std::size_t kMessages = 120;
  std::uint64_t bytes = 0, missing = 0;
  SystemClock clock;
  const TimePoint limit = clock.now() + std::chrono::seconds(20);
  std::size_t begun = 0;
  while ((to.received.size() < kMessages || from.sent < kMessages) && clock.now() < limit) {
    for (; begun < kMessages && begun < to.received.size() + 16; ++begun) {
      const auto size = static_cast<std::uint32_t>(begun % 10 == 0 ? 1 << 20 : rng.below(20'000));
      to.post(receiver, size);
      from.send(sender, size, terms);
      bytes += size;
    }
    const bool sender_busy = from.turn();
    const bool busy = to.turn() || sender_busy;
    if (!busy) to.wait();
  }
  ASSERT_EQ(to.received.size(), kMessages);
  EXPECT_EQ(from.sent, kMessages);
  for (const End::Received& one : to.received) missing += one.missing;
  EXPECT_LE(missing * 1'000'000, bytes * GetParam().tolerance_ppm);
  std::uint64_t different = 0;
  for (std::size_t i = 0; i < bytes; ++i) different += from.memory[i] != to.memory[i] ? 1 : 0;
  EXPECT_LE(different, missing) << "what is not missing is there";
  EXPECT_EQ(missing == 0, different == 0);
  EXPECT_TRUE(from.core.is_consistent() && to.core.is_consistent());
}

// Of 1,300 bytes: libfabric's udp has datagrams of 1,472 only.
INSTANTIATE_TEST_SUITE_P(Loopback, MltOverUdp,
                         testing::Values(Case{"clean_8192", "", 8192, 0}, Case{"clean", "", 1300, 0},
                                         Case{"one_percent", "loss=0.01", 1300, 0},
                                         Case{"a_tenth_8192", "loss=0.1,duplicate=0.02", 8192, 0},
                                         Case{"a_tenth", "loss=0.1,duplicate=0.02", 1300, 0},
                                         Case{"reordering", "reorder=0.02/3,delay=200us", 1300, 0},
                                         Case{"tolerant", "loss=0.02", 1300, 10'000}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace clustar::mlt
