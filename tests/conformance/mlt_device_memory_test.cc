// MLT with memory that the processor must not touch: every access of it by MLT itself would end this program.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "tests/conformance/device_memory.h"
#include "tests/conformance/mlt_loss_bed.h"
#include "transport/crypto/crypto.h"

namespace clustar::transport::conformance {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct DeviceBuffer {
  template <class Channel>
  DeviceBuffer(Channel& channel, std::size_t size, unsigned seed = 0) : memory(std::max<std::size_t>(size, 1)) {
    if (seed == 0) {
      std::ranges::fill(memory.bytes(), std::byte{0xee});
    } else {
      Rng rng(seed);
      for (std::byte& byte : memory.bytes()) byte = static_cast<std::byte>(rng.next());
    }
    auto made = channel.reg_mr(memory.ref());
    EXPECT_TRUE(made) << made.error().message;
    if (made) mr = std::move(*made);
  }
  std::span<std::byte> bytes() const { return memory.bytes(); }

  DeviceMemory memory;
  std::unique_ptr<Mr> mr;
};

bool all(std::span<const std::byte> bytes, std::byte value) {
  return std::ranges::all_of(bytes, [value](std::byte one) { return one == value; });
}

class MltDeviceMemory : public MltLossBed {
 protected:
  std::unique_ptr<Transport> with_devices(const std::string& engine, DeviceKnobs& knobs, const std::string& loss = "") {
    const Wrap lossy = loss.empty() ? Wrap() : faults(loss);
    const Wrap wrap = [lossy, &knobs](std::unique_ptr<io::PacketIo> inner) -> std::unique_ptr<io::PacketIo> {
      if (lossy) inner = lossy(std::move(inner));
      return std::make_unique<DeviceIo>(std::move(inner), knobs);
    };
    return create({.engine = engine, .wrap = wrap, .reach = io::Reach{gdr::kAnyKind, "a test's", true}});
  }
  // One of each side, and a connection.
  void open(const std::string& engine = "auto", const ChannelOptions& options = {}, const std::string& loss = "") {
    connection = {};
    from = with_devices(engine, sender, loss);
    to = with_devices(engine, receiver);
    ASSERT_TRUE(from && to);
    connection = connect(*from, *to, options);
    ASSERT_TRUE(connection.send && connection.recv);
  }
  void hold(bool on) {
    const std::lock_guard lock(receiver.mutex);
    receiver.hold = on;
  }
  void lie(const DeviceBuffer* where) {
    const std::lock_guard lock(receiver.mutex);
    receiver.lie = where == nullptr ? nullptr : where->memory.ref().address;
  }
  std::uint64_t looked(std::uint64_t DeviceKnobs::*what) {
    const std::lock_guard lock(receiver.mutex);
    return receiver.*what;
  }
  // Tests them so long; true: none is done.
  static bool none_ends(const std::vector<Request*>& requests, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      for (Request* request : requests) {
        const auto progress = request->test();
        EXPECT_TRUE(progress) << progress.error().message;
        if (!progress || progress->done) return false;
      }
    }
    return true;
  }

  DeviceKnobs sender;
  DeviceKnobs receiver;
  std::unique_ptr<Transport> from;
  std::unique_ptr<Transport> to;
  Connection connection;
};

TEST_F(MltDeviceMemory, IsOfferedWithAReasonAndAFlush) {
  open();
  const DeviceProperties& properties = to->devices()[0];
  EXPECT_EQ(properties.memory_kinds, gdr::kAnyKind);
  EXPECT_EQ(properties.gdr, "a test's");
  EXPECT_TRUE(properties.force_flush);
}

TEST_F(MltDeviceMemory, MessagesOfAllSizesArriveThroughLoss) {
  constexpr std::array<std::size_t, 9> kSizes{0, 1, 100, 4096, 4097, 16'000, 40'000, 70'001, 300'003};
  for (const char* engine : {"auto", "inline", "thread"}) {
    SCOPED_TRACE(engine);
    open(engine, {}, "loss=0.03");
    Waiting waiting(*from, *to);
    constexpr std::size_t kAtATime = 24;
    unsigned seed = 0;
    for (int round = 0; round < 15; ++round) {
      std::vector<std::unique_ptr<DeviceBuffer>> sources, targets;
      std::vector<Request*> requests;
      const bool early = round % 3 == 0;  // receives come after what they receive
      const auto receive = [&](std::size_t i) {
        requests.push_back(must_recv(*connection.recv,
                                     {{targets[i]->mr.get(), 0, targets[i]->bytes().size(), static_cast<int>(i % 7)}}));
      };
      for (std::size_t i = 0; i < kAtATime; ++i) {
        const std::size_t size = kSizes[(i + static_cast<std::size_t>(round)) % kSizes.size()];
        sources.push_back(std::make_unique<DeviceBuffer>(*connection.send, size, ++seed));
        targets.push_back(std::make_unique<DeviceBuffer>(*connection.recv, size));
        if (!early) receive(i);
      }
      for (std::size_t i = 0; i < kAtATime; ++i) {
        const std::size_t size = kSizes[(i + static_cast<std::size_t>(round)) % kSizes.size()];
        requests.push_back(must_send(*connection.send, *sources[i]->mr, 0, size, static_cast<int>(i % 7)));
      }
      if (early) {
        none_ends({requests.back()}, 2ms);
        for (std::size_t i = 0; i < kAtATime; ++i) receive(i);
      }
      finish(requests, [&] { waiting.test(); });
      for (std::size_t i = 0; i < kAtATime; ++i) {
        const std::size_t size = kSizes[(i + static_cast<std::size_t>(round)) % kSizes.size()];
        ASSERT_TRUE(std::ranges::equal(sources[i]->bytes().first(size), targets[i]->bytes().first(size)))
            << round << " " << i << " " << size;
      }
    }
  }
  EXPECT_GT(receiver.writes, 3000u);
  EXPECT_GT(receiver.no_room, 0u) << "the writer was never full";
  EXPECT_EQ(sender.writes, 0u);
}

TEST_F(MltDeviceMemory, PartsOfBothKindsEndTogether) {
  open();
  constexpr std::size_t kBytes = 50'000;
  SendBuffer host_from(*connection.send, kBytes, 1);
  DeviceBuffer device_from(*connection.send, kBytes, 2);
  RecvBuffer host_to(*connection.recv, kBytes);
  DeviceBuffer device_to(*connection.recv, kBytes);
  for (int i = 0; i < 50; ++i) {
    finish({must_recv(*connection.recv, {{host_to.mr.get(), 0, kBytes, 1}, {device_to.mr.get(), 0, kBytes, 2}}),
            must_send(*connection.send, *device_from.mr, 0, kBytes, 1),
            must_send(*connection.send, *host_from.mr, 0, kBytes, 2)});
    ASSERT_TRUE(std::ranges::equal(host_to.bytes, device_from.bytes()));
    ASSERT_TRUE(std::ranges::equal(device_to.bytes(), host_from.bytes));
    std::ranges::fill(host_to.bytes, std::byte{1});
    std::ranges::fill(device_to.bytes(), std::byte{1});
  }
}

TEST_F(MltDeviceMemory, HolesAreZeroWhereTheLedgerSays) {
  for (const char* engine : {"auto", "thread"}) {
    SCOPED_TRACE(engine);
    open(engine, kOptedIn, "loss=0.02");
    constexpr std::size_t kMessages = 32;
    DeviceBuffer source(*connection.send, kMiB, 1);
    DeviceBuffer target(*connection.recv, kMiB);
    const FlowTag flow{.loss = one_percent_of(kMessages * kMiB)};
    std::uint64_t missing = 0;
    for (std::size_t message = 0; message < kMessages; ++message) {
      std::ranges::fill(target.bytes(), std::byte{0xee});
      Request* receive = must_recv(*connection.recv, {{target.mr.get(), 0, kMiB, 0}});
      Request* send = must_send(*connection.send, *source.mr, 0, kMiB, 0, flow);
      std::vector<std::byte> expected(source.bytes().begin(), source.bytes().end());
      bool received = false;
      bool sent = false;
      ASSERT_TRUE(poll_until([&] {
        if (!received) {
          const auto progress = receive->test();
          EXPECT_TRUE(progress);
          if (!progress) return true;
          received = progress->done;
          for (const MissingRange& range : progress->missing) {
            missing += range.length;
            std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(range.offset), range.length, std::byte{0});
          }
          // At once: nothing of it may come later.
          EXPECT_TRUE(!received || std::ranges::equal(target.bytes(), expected)) << message;
        }
        if (!sent) {
          const auto progress = send->test();
          EXPECT_TRUE(progress);
          if (!progress) return true;
          sent = progress->done;
        }
        return received && sent;
      }));
      ASSERT_FALSE(HasFailure());
    }
    EXPECT_GT(missing, 0u);
    EXPECT_LE(missing, kMessages * kMiB / 100);
    EXPECT_EQ(count(to->summary(), " bytes missing"), missing);
  }
  EXPECT_GT(receiver.zeroes, 0u);
}

TEST_F(MltDeviceMemory, AReceiveEndsOnlyAfterItsWrites) {
  for (const char* engine : {"auto", "inline", "thread"}) {
    SCOPED_TRACE(engine);
    open(engine);
    hold(true);
    DeviceBuffer source(*connection.send, 20'000, 1);
    DeviceBuffer target(*connection.recv, 20'000);
    Request* receive = must_recv(*connection.recv, {{target.mr.get(), 0, 20'000, 0}});
    Request* send = must_send(*connection.send, *source.mr, 0, 20'000);
    EXPECT_TRUE(poll_until([&] {
      EXPECT_FALSE(receive->test()->done);
      return send->test()->done;
    })) << "the receiver's memory is nothing to the sender";
    EXPECT_TRUE(none_ends({receive}, 30ms));
    EXPECT_TRUE(all(target.bytes(), std::byte{0xee}));
    hold(false);
    finish({receive});
    EXPECT_TRUE(std::ranges::equal(source.bytes(), target.bytes()));
  }
}

// What waits for the writer is bounded, packets wait in the network, and nobody spins.
TEST_F(MltDeviceMemory, AWriterWithoutRoomHoldsThePacketsBack) {
  for (const char* engine : {"auto", "thread"}) {
    SCOPED_TRACE(engine);
    open(engine);
    const std::uint64_t before = looked(&DeviceKnobs::packets);
    hold(true);
    constexpr std::size_t kBytes = 4 * kMiB;
    DeviceBuffer source(*connection.send, kBytes, 1);
    DeviceBuffer target(*connection.recv, kBytes);
    Request* receive = must_recv(*connection.recv, {{target.mr.get(), 0, kBytes, 0}});
    Request* send = must_send(*connection.send, *source.mr, 0, kBytes);
    // Until all that has room was taken.
    std::uint64_t packets = before;
    for (int looks = 0; looks < 200; ++looks) {
      EXPECT_TRUE(none_ends({receive, send}, 50ms));
      if (looked(&DeviceKnobs::packets) == packets && packets > before) break;
      packets = looked(&DeviceKnobs::packets);
    }
    const std::uint64_t looks = looked(&DeviceKnobs::looks);
    std::this_thread::sleep_for(100ms);
    EXPECT_EQ(looked(&DeviceKnobs::packets), packets) << "packets are taken though nothing has room for them";
    EXPECT_LT(packets - before, 150u) << "two bursts, of a message of more than 400 packets";
    EXPECT_LT(looked(&DeviceKnobs::looks) - looks, 2500u) << "a thread spins";
    hold(false);
    finish({receive, send});
    EXPECT_TRUE(std::ranges::equal(source.bytes(), target.bytes()));
  }
}

TEST_F(MltDeviceMemory, FlushesEndAfterWhatWasWritten) {
  open();
  DeviceBuffer target(*connection.recv, 1000);
  RecvBuffer host(*connection.recv, 1000);
  const RecvPart part{target.mr.get(), 0, 1000, 0};
  EXPECT_EQ(connection.recv->flush(std::array{RecvPart{host.mr.get(), 0, 1000, 0}}).value(), nullptr);
  EXPECT_EQ(connection.recv->flush(std::array{RecvPart{target.mr.get(), 0, 0, 0}}).value(), nullptr);
  hold(true);
  std::vector<Request*> flushes;
  for (int i = 0; i < 32; ++i) flushes.push_back(connection.recv->flush(std::array{part}).value());
  EXPECT_TRUE(std::ranges::none_of(flushes, [](const Request* one) { return one == nullptr; }));
  const auto more = connection.recv->flush(std::array{part});
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, AllOf(HasSubstr("33 flushes"), HasSubstr("32")));
  EXPECT_TRUE(none_ends(flushes, 10ms));
  hold(false);
  finish(flushes);
  EXPECT_EQ(looked(&DeviceKnobs::flushes), 32u);
  finish({connection.recv->flush(std::array{part, part}).value()});
  EXPECT_EQ(looked(&DeviceKnobs::flushes), 34u);
}

// Memory that is taken back is as it was left.
TEST_F(MltDeviceMemory, NothingIsWrittenAfterAChannelHasGone) {
  for (const char* engine : {"auto", "thread"}) {
    for (const bool by_deregistering : {false, true}) {
      SCOPED_TRACE(engine);
      open(engine);
      DeviceBuffer source(*connection.send, kMiB, 1);
      auto target = std::make_unique<DeviceBuffer>(*connection.recv, kMiB);
      hold(true);
      Request* receive = must_recv(*connection.recv, {{target->mr.get(), 0, kMiB, 0}});
      Request* send = must_send(*connection.send, *source.mr, 0, kMiB);
      EXPECT_TRUE(poll_until([&] { return !send->test()->done && looked(&DeviceKnobs::writes) >= 8; }));
      EXPECT_FALSE(receive->test()->done);
      if (by_deregistering) {
        target->mr.reset();
        EXPECT_THAT(await_error(*receive).message, HasSubstr("deregistered"));
      } else {
        connection.recv.reset();
        target->mr.reset();
      }
      std::ranges::fill(target->bytes(), std::byte{0x33});
      hold(false);
      connection.recv.reset();
      EXPECT_THAT(await_error(*send).message, HasSubstr("the peer closed"));
      Connection other = connect(*from, *to);
      DeviceBuffer again(*other.send, 100'000, 5);
      DeviceBuffer there(*other.recv, 100'000);
      finish(
          {must_recv(*other.recv, {{there.mr.get(), 0, 100'000, 0}}), must_send(*other.send, *again.mr, 0, 100'000)});
      EXPECT_TRUE(std::ranges::equal(again.bytes(), there.bytes()));
      EXPECT_TRUE(all(target->bytes(), std::byte{0x33}));
      target.reset();
      connection = {};
    }
  }
}

TEST_F(MltDeviceMemory, AWriterThatFailsIsAnErrorThatIsTold) {
  open();
  DeviceBuffer source(*connection.send, 20'000, 1);
  DeviceBuffer target(*connection.recv, 20'000);
  {
    const std::lock_guard lock(receiver.mutex);
    receiver.fails = true;
  }
  Request* receive = must_recv(*connection.recv, {{target.mr.get(), 0, 20'000, 0}});
  must_send(*connection.send, *source.mr, 0, 20'000);
  EXPECT_THAT(await_error(*receive).message, HasSubstr("this test broke the writer"));
}

// A device says that it placed a packet, in pages that end who reads them; the header names another place.
TEST_F(MltDeviceMemory, APacketThatIsElsewhereThanItSaysEndsTheConnectionUnread) {
  open();
  DeviceBuffer source(*connection.send, 20'000, 1);
  DeviceBuffer target(*connection.recv, 20'000);
  DeviceBuffer elsewhere(*connection.recv, 100'000);
  lie(&elsewhere);
  Request* receive = must_recv(*connection.recv, {{target.mr.get(), 0, 20'000, 0}});
  must_send(*connection.send, *source.mr, 0, 20'000);
  EXPECT_THAT(await_error(*receive).message, HasSubstr("to another place than its header says"));
  lie(nullptr);
}

// The packet that told of its message was lost, or comes later: nobody is to blame, and it is sent again.
TEST_F(MltDeviceMemory, APacketThatIsThereBeforeItsReceiveIsKnownComesAgain) {
  open();
  DeviceBuffer source(*connection.send, 20'000, 1);
  DeviceBuffer target(*connection.recv, 20'000);
  DeviceBuffer elsewhere(*connection.recv, 100'000);
  lie(&elsewhere);
  const std::uint64_t before = looked(&DeviceKnobs::packets);
  Request* send = must_send(*connection.send, *source.mr, 0, 20'000);
  EXPECT_TRUE(poll_until([&] {
    EXPECT_FALSE(send->test().value().done);
    return looked(&DeviceKnobs::packets) > before;
  }));
  lie(nullptr);
  finish({must_recv(*connection.recv, {{target.mr.get(), 0, 20'000, 0}}), send});
  EXPECT_TRUE(std::ranges::equal(source.bytes(), target.bytes()));
}

TEST_F(MltDeviceMemory, APartOutsideOfItsMemoryIsRefusedAndNothingElse) {
  open();
  DeviceBuffer source(*connection.send, 20'000, 1);
  DeviceBuffer target(*connection.recv, 20'000);
  for (const RecvPart part : {RecvPart{target.mr.get(), 1, 20'000, 0}, RecvPart{target.mr.get(), 20'001, 0, 0},
                              RecvPart{target.mr.get(), 8, ~std::size_t{0}, 0}}) {
    const auto receive = connection.recv->recv(std::array{part});
    ASSERT_FALSE(receive);
    EXPECT_THAT(receive.error().message, HasSubstr("of 20000 registered bytes of GPU memory"));
    if (part.length == 0) continue;
    EXPECT_FALSE(connection.recv->flush(std::array{part}));
  }
  finish({must_recv(*connection.recv, {{target.mr.get(), 0, 20'000, 0}}),
          must_send(*connection.send, *source.mr, 0, 20'000)});
  EXPECT_TRUE(std::ranges::equal(source.bytes(), target.bytes()));
}

// What is in memory of a device is not copied, so a short send ends when its bytes have arrived.
TEST_F(MltDeviceMemory, AShortSendIsDoneWhenItArrived) {
  open("inline");
  DeviceBuffer source(*connection.send, 100, 1);
  Request* send = must_send(*connection.send, *source.mr, 0, 100);
  EXPECT_TRUE(none_ends({send}, 20ms));
  DeviceBuffer target(*connection.recv, 100);
  finish({must_recv(*connection.recv, {{target.mr.get(), 0, 100, 0}}), send});
  EXPECT_TRUE(std::ranges::equal(source.bytes(), target.bytes()));
}

TEST_F(MltDeviceMemory, WithoutAWriterOrWithAKeyItIsRefusedWithTheReason) {
  const auto refused = [&](const Setup& setup) {
    const auto one = create(setup);
    const auto other = create(setup);
    Connection both = connect(*one, *other);
    const DeviceMemory memory(100);
    const auto sends = both.send->reg_mr(memory.ref());
    const auto receives = both.recv->reg_mr(memory.ref());
    EXPECT_FALSE(sends);
    EXPECT_FALSE(receives);
    if (sends || receives) return std::string();
    EXPECT_EQ(sends.error().message, receives.error().message);
    EXPECT_EQ(one->devices()[0].memory_kinds, gdr::kHostOnly);
    return sends.error().message;
  };
  EXPECT_THAT(refused({}), AllOf(HasSubstr("no cuda memory on lo"), HasSubstr("CLUSTAR_IO=verbs_ud")));
  if (const auto opened = crypto::Crypto::open(); !opened) GTEST_SKIP() << opened.error().message;
  EXPECT_THAT(refused({.psk_mode = "authenticate",
                       .secret = "the secret of the tests of device memory",
                       .reach = io::Reach{gdr::kAnyKind, "a test's", true}}),
              AllOf(HasSubstr("host memory only, not cuda"), HasSubstr("CLUSTAR_PSK_FILE")));
}

}  // namespace
}  // namespace clustar::transport::conformance
