#include "mlt/driver/engine.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/transport/io/recording_io.h"
#include "transport/api/context.h"
#include "transport/base/file_descriptor.h"
#include "transport/io/decorators/forwarding_io.h"

namespace clustar::mlt::driver {
namespace {

using io::ManualClock;
using io::RecordingIo;

// Sends messages, by default of 100 bytes.
class Client final : public Engine::Client {
 public:
  Client(Engine& engine, const io::Mr& mr) : engine_(engine), mr_(mr) {}
  void attach(std::uint64_t secret, bool sealed = true) {
    const Session session;
    const net::Endpoint host{false, 1, {std::byte{127}, {}, {}, std::byte{1}}};
    ASSERT_TRUE(engine_.attach(*this, Engine::End::kSends, {net::Address(host), {}}, secret, {},
                               sealed ? &session : nullptr, id));
  }
  void send(std::size_t offset, std::uint32_t length = 100) {
    const std::lock_guard lock(engine_.mutex());
    const transport::FlowTag flow;
    const OutboundMessage message{&mr_, offset, length, 0, &flow};
    ASSERT_TRUE(engine_.send(*id, message, SendTerms{}, nullptr, engine_.context().clock.now()));
  }

  void submit(std::uint32_t, TimePoint) override {}
  void on_event(const Endpoint::Event&, TimePoint) override {}
  void check(TimePoint) override {}
  void on_failure(const Error& error) override {
    failure = error.message;
    engine_.close(*id);
    id.reset();
  }

  std::optional<Engine::ConnectionId> id;
  std::string failure;

 private:
  Engine& engine_;
  const io::Mr& mr_;
};

// One connection that can no longer be sealed must not take the others' seals with it.
TEST(MltEngine, NothingLeavesInClearWhenASealFails) {
  auto crypto = crypto::Crypto::open({CLUSTAR_FAILING_CRYPTO});
  ASSERT_TRUE(crypto) << crypto.error().message;
  auto protection =
      Protection::create(std::move(*crypto), crypto::Secret(std::vector<std::byte>(32)), PskMode::kEncrypt);
  ASSERT_TRUE(protection);
  const ManualClock clock;
  const Context context{clock, Log(), EngineMode::kInline, Duration(0), std::move(*protection)};
  auto io = std::make_unique<RecordingIo>();
  RecordingIo& sent = *io;
  sent.can.max_packet = 1500;
  transport::TrafficBook traffic;
  const auto engine = std::move(Engine::open(std::move(io), "test", Options{}, "test", context, traffic).value());
  std::array<std::byte, 300> bytes;
  std::fill_n(bytes.begin(), 100, std::byte{'a'});
  std::fill_n(bytes.begin() + 100, 100, std::byte{'!'});
  std::fill_n(bytes.begin() + 200, 100, std::byte{'b'});
  const auto mr = engine->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
  Client fails(*engine, *mr), other(*engine, *mr);
  fails.attach(1);
  other.attach(2);
  for (const std::size_t offset : {0, 0, 100}) fails.send(offset);
  for (int i = 0; i < 6; ++i) other.send(200);
  const std::atomic<bool> done{false};
  engine->poke(done);
  EXPECT_NE(fails.failure, "");
  EXPECT_EQ(other.failure, "");
  EXPECT_EQ(sent.sent.size(), 6u);
  for (const RecordingIo::Sent& packet : sent.sent) {
    EXPECT_TRUE(std::ranges::all_of(packet.payload, [](std::byte byte) { return byte == ~std::byte{'b'}; }));
    EXPECT_EQ(parse(packet.header), std::nullopt) << "a header without a seal";
  }
  const std::lock_guard lock(engine->mutex());
  engine->close(*other.id);
}

// Stands, at a time at which nobody has called for long.
struct StandingClock final : Clock {
  TimePoint now() const override { return TimePoint(std::chrono::seconds(1)); }
};

// Keeps all that it takes until the test says that it has left, and never has anything to receive.
class SlowIo final : public io::ForwardingIo {
 public:
  SlowIo(std::unique_ptr<RecordingIo> inner, std::atomic<std::uint64_t>& unsent)
      : ForwardingIo(std::move(inner)), unsent_(unsent), silent_(::eventfd(0, EFD_CLOEXEC)), fd_(silent_.fd()) {}
  Result<std::size_t> send(std::span<const io::TxPacket> packets) override {
    for (const io::TxPacket& packet : packets) unsent_ += packet.payload.length;
    return ForwardingIo::send(packets);
  }
  std::uint64_t unsent_bytes() const override { return unsent_; }
  std::span<const int> ready_fds() const override { return {&fd_, 1}; }

 private:
  std::atomic<std::uint64_t>& unsent_;
  const FileDescriptor silent_;
  const int fd_;
};

class ByClass final : public transport::SendPolicies {
 public:
  std::unique_ptr<transport::SendPolicy> make(const Nic&) override {
    return std::make_unique<transport::ClassPolicy>();
  }
};

// The device is empty long before an acknowledgement or a timer comes, and tells nobody.
TEST(MltEngine, ItsThreadLooksAgainSoonWhenABurstHasUsedUpTheRoom) {
  const StandingClock clock;
  const Context context{clock, Log(), EngineMode::kAuto, Duration(0), {}, {}, std::make_shared<ByClass>(), Duration(1)};
  Options options;
  options.unscheduled_bytes = options.pace_bytes = 1 << 20;
  options.congestion = FixedRate();
  options.initial_rtt = options.probe_floor = options.probe_cap = std::chrono::milliseconds(100);
  auto io = std::make_unique<RecordingIo>();
  io->can.max_packet = 1500;
  std::atomic<std::uint64_t> unsent{0};
  transport::TrafficBook traffic;
  const auto engine = std::move(
      Engine::open(std::make_unique<SlowIo>(std::move(io), unsent), "test", options, "test", context, traffic).value());
  std::vector<std::byte> bytes(512 * 1024);
  const auto mr = engine->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
  Client client(*engine, *mr);
  client.attach(1, false);
  client.send(0, static_cast<std::uint32_t>(bytes.size()));
  const auto begun = std::chrono::steady_clock::now();
  std::uint64_t sent = 0;
  std::vector<Duration> took;
  for (auto before = begun; took.size() < 20 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20);) {
    while (unsent == 0 && std::chrono::steady_clock::now() - begun < std::chrono::seconds(20))
      std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sent += unsent.exchange(0);
    took.push_back(std::chrono::steady_clock::now() - before);
    before += took.back();
  }
  EXPECT_GE(sent, 20 * transport::kOrderedChunk);
  // Most of them: each would take 100 ms otherwise, and a busy machine keeps some waiting.
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[took.size() / 2], std::chrono::milliseconds(50));
  const std::lock_guard lock(engine->mutex());
  engine->close(*client.id);
}

// A clock that stands right after a call: by it no caller is ever silent.
struct CalledClock final : Clock {
  TimePoint now() const override { return TimePoint(at.load()); }
  std::atomic<Duration> at{std::chrono::seconds(1)};
};

// A program that looks once in a while is served between its looks too; one that looks all the time has no rival.
TEST(MltEngine, ItsThreadWorksBesideACallerThatComesSeldom) {
  for (const bool seldom : {true, false}) {
    CalledClock clock;
    const Context context{clock, Log(), EngineMode::kAuto,           Duration(0),
                          {},    {},    std::make_shared<ByClass>(), Duration(1)};
    auto io = std::make_unique<RecordingIo>();
    io->can.max_packet = 1500;
    std::atomic<std::uint64_t> sent{0};
    transport::TrafficBook traffic;
    const auto engine = std::move(
        Engine::open(std::make_unique<SlowIo>(std::move(io), sent), "test", Options{}, "test", context, traffic)
            .value());
    std::vector<std::byte> bytes(100);
    const auto mr = engine->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())).value();
    Client client(*engine, *mr);
    client.attach(1, false);
    const std::atomic<bool> done{false};
    for (int call = 0; call < 3; ++call) {
      clock.at = clock.at.load() + (seldom ? std::chrono::milliseconds(4) : std::chrono::microseconds(100));
      engine->poke(done);
      std::this_thread::sleep_for(std::chrono::milliseconds(3));  // the thread has looked whether anybody calls
    }
    client.send(0);
    const auto begun = std::chrono::steady_clock::now();
    const auto patience = seldom ? std::chrono::milliseconds(20'000) : std::chrono::milliseconds(30);
    while (sent == 0 && std::chrono::steady_clock::now() - begun < patience) std::this_thread::yield();
    EXPECT_EQ(sent > 0, seldom);
    const std::lock_guard lock(engine->mutex());
    engine->close(*client.id);
  }
}

}  // namespace
}  // namespace clustar::mlt::driver
