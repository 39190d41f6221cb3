// MLT over UC end to end: messages land in their receives' memory by writes, with and without loss.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "mlt/driver/mlt_transport.h"
#include "mlt/driver/settings.h"
#include "tests/conformance/test_backends.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/link.h"
#include "transport/base/system_clock.h"
#include "transport/io/verbs/uc/uc_io.h"
#include "transport/io/verbs/verbs_backend.h"
#include "transport/net/settings.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;
using namespace transport::conformance;
using transport::io::verbs::uc::UcIo;

constexpr std::size_t kBytes = 512 * 1024;

class MltOverUc : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string reason = why_no_devices(); !reason.empty()) GTEST_SKIP() << reason;
    from = make("=va", from_io);
    to = make("=vb", to_io);
    ASSERT_TRUE(from && to);
    connection = connect(*from, *to);
    ASSERT_TRUE(connection.send && connection.recv);
  }
  static std::unique_ptr<transport::Transport> make(const std::string& interface, UcIo*& io) {
    static const SystemClock clock;
    Config config;
    config.edit<NetworkSettings>()->interfaces = interface;
    config.edit<NetworkSettings>()->family_name = "ipv4";
    config.edit<MltSettings>()->engine = "auto";
    using transport::io::verbs::VerbsBackend;
    auto uc = VerbsBackend::create(VerbsBackend::Kind::kUc, config, Log());
    EXPECT_TRUE(uc) << uc.error().message;
    if (!uc) return nullptr;
    auto seen = std::make_unique<WrappedBackend>(std::move(*uc),
                                                 [&io](std::unique_ptr<transport::io::PacketIo> opened) -> OpenedIo {
                                                   io = static_cast<UcIo*>(opened.get());
                                                   return opened;
                                                 });
    auto made = mlt::driver::MltTransport::create({config, clock}, std::move(seen));
    EXPECT_TRUE(made) << made.error().message;
    return made ? std::move(*made) : nullptr;
  }
  // So many messages, each into memory that is its owner's again as soon as its request is done: what is written there
  // then stays.
  void exchange(int messages, std::size_t at_a_time) {
    std::vector<std::unique_ptr<SendBuffer>> sources;
    std::vector<std::unique_ptr<RecvBuffer>> targets;
    for (std::size_t i = 0; i < at_a_time; ++i) {
      sources.push_back(std::make_unique<SendBuffer>(*connection.send, kBytes, static_cast<unsigned>(i)));
      targets.push_back(std::make_unique<RecvBuffer>(*connection.recv, kBytes));
    }
    for (int round = 0; round < messages; round += static_cast<int>(at_a_time)) {
      std::vector<transport::Request*> requests;
      for (std::size_t i = 0; i < at_a_time; ++i) {
        requests.push_back(must_recv(*connection.recv, {{targets[i]->mr.get(), 0, kBytes, static_cast<int>(i)}}));
      }
      for (std::size_t i = 0; i < at_a_time; ++i) {
        requests.push_back(must_send(*connection.send, *sources[i]->mr, 0, kBytes, static_cast<int>(i)));
      }
      finish(requests);
      for (std::size_t i = 0; i < at_a_time; ++i) {
        ASSERT_EQ(targets[i]->bytes, sources[i]->bytes) << round << " " << i;
        std::ranges::fill(targets[i]->bytes, std::byte{0x5c});
      }
      // Something else keeps both ends going, while what is late may come.
      SendBuffer small(*connection.send, 8, 1);
      RecvBuffer taken(*connection.recv, 8);
      for (int i = 0; i < 20; ++i) {
        finish({must_recv(*connection.recv, {{taken.mr.get(), 0, 8, 1000}}),
                must_send(*connection.send, *small.mr, 0, 8, 1000)});
      }
      for (const auto& target : targets) {
        ASSERT_TRUE(std::ranges::all_of(target->bytes, [](std::byte one) { return one == std::byte{0x5c}; }))
            << "written after the request was done";
      }
    }
  }

  UcIo* from_io = nullptr;
  UcIo* to_io = nullptr;
  std::unique_ptr<transport::Transport> from;
  std::unique_ptr<transport::Transport> to;
  Connection connection;
};

TEST_F(MltOverUc, LongMessagesAreWrittenIntoPlace) {
  exchange(4, 2);  // until the pairs are up
  const std::uint64_t placed = to_io->counters().packets_placed;
  const std::uint64_t datagrams = to_io->counters().datagrams_received;
  exchange(12, 4);
  const std::uint64_t by_writes = to_io->counters().packets_placed - placed;
  const std::uint64_t by_datagrams = to_io->counters().datagrams_received - datagrams;
  EXPECT_GT(by_writes, by_datagrams) << to_io->describe() << "\n" << from_io->describe();
  std::printf("placed %lu, by datagrams %lu\n%s\n%s\n", by_writes, by_datagrams, from_io->describe().c_str(),
              to_io->describe().c_str());
  EXPECT_EQ(to_io->counters().unsure, 0u);
}

TEST_F(MltOverUc, LossDuplicatesAndReorderingChangeNoByte) {
  exchange(4, 2);
  const std::uint64_t placed = to_io->counters().packets_placed;
  {
    const Netem trouble("delay 1ms 500us loss 1% duplicate 5% reorder 10%");
    exchange(8, 2);
  }
  EXPECT_GT(to_io->counters().packets_placed, placed) << to_io->describe();
  std::printf("%s\n%s\n", from_io->describe().c_str(), to_io->describe().c_str());
}

TEST_F(MltOverUc, AReceiverThatClosesInTheMiddleTakesItsMemoryBack) {
  exchange(4, 2);
  SendBuffer source(*connection.send, kBytes, 1);
  auto target = std::make_unique<RecvBuffer>(*connection.recv, kBytes);
  auto* receive = must_recv(*connection.recv, {{target->mr.get(), 0, kBytes, 1}});
  auto* send = must_send(*connection.send, *source.mr, 0, kBytes, 1);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(receive->test());
    ASSERT_TRUE(send->test());
  }
  connection.recv.reset();
  target->mr.reset();
  std::ranges::fill(target->bytes, std::byte{0x33});
  EXPECT_FALSE(await_error(*send).message.empty());
  EXPECT_TRUE(std::ranges::all_of(target->bytes, [](std::byte one) { return one == std::byte{0x33}; }));
}

}  // namespace
}  // namespace clustar::tests
