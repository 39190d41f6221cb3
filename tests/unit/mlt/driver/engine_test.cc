#include "mlt/driver/engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "tests/unit/transport/io/recording_io.h"

namespace clustar::mlt::driver {
namespace {

using io::ManualClock;
using io::RecordingIo;

// Sends messages of 100 times the same byte.
class Client final : public Engine::Client {
 public:
  Client(Engine& engine, const io::Mr& mr) : engine_(engine), mr_(mr) {}
  void attach(std::uint64_t secret) {
    const Session session;
    const net::Endpoint host{false, 1, {std::byte{127}, {}, {}, std::byte{1}}};
    ASSERT_TRUE(engine_.attach(*this, Engine::End::kSends, {net::Address(host), {}}, secret, {}, &session, id));
  }
  void send(std::size_t offset) {
    const std::lock_guard lock(engine_.mutex());
    const transport::FlowTag flow;
    const OutboundMessage message{&mr_, offset, 100, 0, &flow};
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
  const auto engine = std::move(Engine::open(std::move(io), "test", Options{}, "test", context).value());
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

}  // namespace
}  // namespace clustar::mlt::driver
