// What only the verbs transport promises: stripes, queue pairs that fail, links that go down, peers that die, and that
// nothing stays behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <regex>
#include <stdexcept>

#include "tests/conformance/transport_under_test.h"
#include "tests/rdma/cable.h"
#include "tests/rdma/link.h"
#include "tests/rdma/rc_peer.h"
#include "transport/io/verbs/handle.h"
#include "transport/verbs/send_channel.h"

namespace clustar::transport::conformance {
namespace {

using namespace std::chrono_literals;
using tests::Cable;
using tests::LinkDown;
using tests::Netem;
using verbs::Settings;
using verbs::VerbsSendChannel;
using SteadyClock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::uint64_t number_of(const Transport& transport, const std::string& device, const std::string& name) {
  for (const DeviceCounters& one : transport.counters().devices) {
    if (one.device == device) return one.number(name);
  }
  ADD_FAILURE() << "no device " << device;
  return 0;
}

class RcTransport : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(tests::why_no_devices(), ""); }
  void open(const Cable::Change& change = [](Settings&) {}) {
    both_ = {};  // before its transport
    auto made = Cable::make(change, Log([this](LogLevel, const std::string& text) { said_ += text + "\n"; }));
    // An assertion would end no more than this function.
    if (!made) throw std::runtime_error(made.error().message);
    cable_ = std::move(*made);
    both_ = connect(*cable_, *cable_);
    sender_ = &dynamic_cast<VerbsSendChannel&>(*both_.send);
  }
  // Messages of `size` bytes, up to 8 at a time; `then` is called before each.
  void stream(
      int count, std::size_t size, const std::function<void(int)>& then = [](int) {}) {
    SendBuffer from(*both_.send, size, 7);
    RecvBuffer to(*both_.recv, 8 * size);
    std::deque<Request*> sends;
    std::deque<Request*> receives;
    int sent = 0;
    int received = 0;
    ASSERT_TRUE(poll_until(
        [&] {
          if (sent < count && sends.size() < 8 && receives.size() < 8) {
            then(sent);
            const std::size_t at = static_cast<std::size_t>(sent) % 8 * size;
            std::fill_n(to.bytes.begin() + static_cast<long>(at), size, std::byte{0xee});
            receives.push_back(must_recv(*both_.recv, {{to.mr.get(), at, size, 0}}));
            sends.push_back(must_send(*both_.send, *from.mr, 0, size));
            ++sent;
          }
          if (!sends.empty() && done(*sends.front())) sends.pop_front();
          if (!receives.empty() && done(*receives.front())) {
            receives.pop_front();
            const std::size_t at = static_cast<std::size_t>(received++) % 8 * size;
            EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin() + static_cast<long>(at)))
                << "message " << received;
          }
          return (received == count && sends.empty()) || HasFailure();
        },
        60s));
  }
  static bool done(Request& request) {
    const auto progress = request.test();
    EXPECT_TRUE(progress) << progress.error().message;
    return !progress || progress->done;
  }
  // Until the first of both says why it cannot go on.
  Error first_error(Request& one, Request& other, std::chrono::milliseconds limit) {
    Error error{ErrorCode::kInternal, "nothing happened within the limit"};
    poll_until(
        [&] {
          for (Request* request : {&one, &other}) {
            const auto progress = request->test();
            if (!progress) error = progress.error();
            if (!progress) return true;
          }
          return false;
        },
        limit);
    return error;
  }

  std::string said_;
  std::unique_ptr<Cable> cable_;
  Connection both_;
  VerbsSendChannel* sender_ = nullptr;
};

// rdma_rxe may forget to repeat what a link lost until it has something else to send.
TEST_F(RcTransport, SilenceIsBrokenByOneMoreWrite) {
  open([](Settings& settings) { settings.retry.timeout = 18; });  // 1 s, seven times
  constexpr std::size_t kSize = 1 << 20;
  SendBuffer from(*both_.send, kSize, 7);
  RecvBuffer to(*both_.recv, kSize);
  Request* const received = must_recv(*both_.recv, {{to.mr.get(), 0, kSize, 0}});
  Request* sent = nullptr;
  bool sent_done = false, received_done = false;
  const auto poll = [&] {
    received_done = received_done || done(*received);
    sent_done = sent_done || done(*sent);
    return sent_done && received_done;
  };
  {
    const Netem nothing_arrives("loss 100%");
    sent = must_send(*both_.send, *from.mr, 0, kSize);
    poll_until(poll, 500ms);
    const std::uint64_t before = number_of(*cable_, "rxe_a", "writes");
    EXPECT_FALSE(poll_until(poll, 2500ms));
    EXPECT_GT(number_of(*cable_, "rxe_a", "writes"), before);
  }
  EXPECT_TRUE(poll_until(poll, 10s)) << said_;
  EXPECT_EQ(number_of(*cable_, "rxe_a", "failed_queue_pairs"), 0u) << said_;
}

TEST_F(RcTransport, ALongMessageTravelsOverFourQueuePairs) {
  open([](Settings& settings) {
    settings.queue_pairs = 4;
    settings.min_stripe_bytes = 4096;
  });
  const std::uint64_t before = number_of(*cable_, "rxe_a", "writes");
  stream(1, 4 * 4096 * 3);
  EXPECT_EQ(number_of(*cable_, "rxe_a", "writes") - before, 4u) << cable_->summary();
  stream(6, 1'000'003);
}

TEST_F(RcTransport, AQueuePairThatFailsIsReplacedByTheOthers) {
  open([](Settings& settings) {
    settings.queue_pairs = 4;
    settings.min_stripe_bytes = 4096;
  });
  stream(40, 300'000, [&](int message) {
    if (message == 5) sender_->break_pair(2);
    if (message == 15) sender_->break_pair(0, true);
    if (message == 25) sender_->break_pair(3);
  });
  EXPECT_EQ(number_of(*cable_, "rxe_a", "failed_queue_pairs"), 3u) << cable_->summary();
  EXPECT_EQ(number_of(*cable_, "rxe_b", "failed_queue_pairs"), 3u);
  EXPECT_GT(number_of(*cable_, "rxe_a", "failovers"), 0u) << cable_->summary();
  EXPECT_THAT(said_, HasSubstr("1 of 4 queue pairs"));
  // Small ones, too, whose descriptors came over a line that is no more.
  stream(40, 100);
}

TEST_F(RcTransport, AFailedPortIsReplacedByTheOther) {
  open([](Settings& settings) { settings.queue_pairs = 2; });
  both_ = {};
  ASSERT_TRUE(cable_->fuse_both());
  both_ = connect(*cable_, *cable_);
  sender_ = dynamic_cast<VerbsSendChannel*>(both_.send.get());
  stream(30, 200'000, [&](int message) {
    if (message == 8) sender_->break_pair(0);
    if (message == 9) sender_->break_pair(2, true);
  });
  EXPECT_THAT(said_, HasSubstr("2 of 4 queue pairs"));
}

TEST_F(RcTransport, ForbiddenFusionIsRefusedAndNothingElse) {
  open([](Settings& settings) { settings.may_fuse = false; });
  const auto fused = cable_->fuse_both();
  ASSERT_FALSE(fused);
  EXPECT_THAT(fused.error().message, HasSubstr("NCCL_IB_MERGE_NICS is 0"));
  stream(10, 1000);
}

// Silently: rdma_rxe gives back what is posted on a stopped queue pair, but not always.
TEST_F(RcTransport, TheLastQueuePairThatFailsIsAnErrorThatNamesTheLink) {
  for (const bool silently : {false, true}) {
    open([](Settings& settings) { settings.queue_pairs = 2; });
    SendBuffer from(*both_.send, 100, 1);
    RecvBuffer to(*both_.recv, 1000);
    Request* const received = must_recv(*both_.recv, {{to.mr.get(), 0, 100, 9}});
    stream(1, 5000);
    sender_->break_pair(0, silently);
    sender_->break_pair(1, silently);
    const auto start = SteadyClock::now();
    Request* const sent = must_send(*both_.send, *from.mr, 0, 100, 1);
    const Error here = first_error(*sent, *sent, 10s);
    EXPECT_THAT(here.message, HasSubstr("rxe_a port 1 GID index 1 queue pair"));
    EXPECT_TRUE(silently || here.message.find("10.9.0.2 queue pair") != std::string::npos) << here.message;
    EXPECT_LT(SteadyClock::now() - start, 3s);
    const Error there = first_error(*received, *received, 10s);
    EXPECT_THAT(there.message, HasSubstr("rxe_b"));
    EXPECT_LT(SteadyClock::now() - start, 6s);
  }
}

// Neither queue pair of the other end fails by itself, since nothing is written to it any more.
TEST_F(RcTransport, AnEndThatFailsTellsTheOther) {
  for (const bool receiver_fails : {false, true}) {
    open([](Settings& settings) { settings.stall_timeout = 2s; });
    SendBuffer from(*both_.send, 1 << 20, 1);
    RecvBuffer to(*both_.recv, 1000);
    Request* const received = must_recv(*both_.recv, {{to.mr.get(), 0, 100, 9}});
    Request* const sent = must_send(*both_.send, *from.mr, 0, 1 << 20, 1);
    Request& fails = receiver_fails ? *received : *sent;
    Request& hears = receiver_fails ? *sent : *received;
    EXPECT_THAT(first_error(fails, fails, 10s).message, HasSubstr("CLUSTAR_STALL_TIMEOUT"));
    const auto start = SteadyClock::now();
    const Error heard = first_error(hears, hears, 10s);
    EXPECT_THAT(heard.message, HasSubstr("its end of the channel failed, see its log for the cause"));
    EXPECT_EQ(heard.code, ErrorCode::kRemote);
    EXPECT_LT(SteadyClock::now() - start, 1s);
  }
}

// What rdma_rxe is asked to send meanwhile fails at once, so nothing is sent.
TEST_F(RcTransport, ALinkThatIsDownForAMomentDoesNoHarm) {
  open();
  stream(3, 100'000);
  SendBuffer from(*both_.send, 100, 1);
  Request* const waits = must_send(*both_.send, *from.mr, 0, 100, 5);
  ASSERT_TRUE(poll_until([&] { return done(*waits); })) << "it went ahead";
  RecvBuffer to(*both_.recv, 100'000);
  Request* const receive = must_recv(*both_.recv, {{to.mr.get(), 0, 100'000, 6}});
  EXPECT_FALSE(done(*receive));
  {
    const LinkDown down;
    const auto until = SteadyClock::now() + 300ms;
    ASSERT_TRUE(poll_until([&] { return done(*receive) || SteadyClock::now() > until; }));
  }
  EXPECT_THAT(said_, HasSubstr("the link is down"));
  stream(3, 100'000);
}

TEST_F(RcTransport, ALinkThatStaysDownIsAnErrorThatNamesItWithinThreeSeconds) {
  open();
  stream(3, 100'000);
  const LinkDown down;
  const auto start = SteadyClock::now();
  SendBuffer from(*both_.send, 100'000, 1);
  RecvBuffer to(*both_.recv, 100'000);
  Request* const received = must_recv(*both_.recv, {{to.mr.get(), 0, 100'000, 0}});
  Request* const sent = must_send(*both_.send, *from.mr, 0, 100'000);
  const Error error = first_error(*sent, *received, 10s);
  EXPECT_LT(SteadyClock::now() - start, 3s);
  EXPECT_THAT(error.message, AllOf(HasSubstr("rxe_"), HasSubstr("link"))) << error.message;
}

TEST_F(RcTransport, AKilledPeerIsAnErrorAtOnce) {
  for (const bool receives : {false, true}) {
    tests::RcPeer peer;
    auto made = Cable::make([](Settings&) {}, Log());
    ASSERT_TRUE(made) << made.error().message;
    const auto pending = std::move((*made)->connect(0, peer.handle(), {}).value());
    std::unique_ptr<SendChannel> channel;
    ASSERT_TRUE(poll_until([&] {
      auto polled = pending->poll();
      EXPECT_TRUE(polled) << polled.error().message;
      if (polled) channel = std::move(*polled);
      return channel || !polled;
    }));
    peer.await_ready();
    SendBuffer from(*channel, 1 << 20, 1);
    // The peer posts receives of tag 1 only.
    Request* const sent = must_send(*channel, *from.mr, 0, 1 << 20, receives ? 1 : 2);
    peer.kill();
    const auto start = SteadyClock::now();
    Error error{ErrorCode::kInternal, "nothing happened within the limit"};
    poll_until([&] {
      const auto progress = sent->test();
      if (!progress) error = progress.error();
      return !progress || progress->done;
    });
    EXPECT_LT(SteadyClock::now() - start, 3s);
    // A peer that died with the message whole in its memory has received it.
    if (receives) continue;
    EXPECT_EQ(error.code, ErrorCode::kRemote);
    EXPECT_THAT(error.message, HasSubstr("process ended"));
  }
}

TEST_F(RcTransport, AFlushReadsWhatWasReceived) {
  open([](Settings& settings) { settings.force_flush = true; });
  SendBuffer from(*both_.send, 100'000, 1);
  RecvBuffer to(*both_.recv, 100'000);
  const std::vector<RecvPart> parts{{to.mr.get(), 0, 50'000, 1}, {to.mr.get(), 50'000, 50'000, 2}};
  finish({must_recv(*both_.recv, parts), must_send(*both_.send, *from.mr, 0, 50'000, 2),
          must_send(*both_.send, *from.mr, 0, 10, 1)});
  const auto flush = both_.recv->flush(parts);
  ASSERT_TRUE(flush && *flush != nullptr) << "it was forced";
  finish({*flush});
  EXPECT_EQ(number_of(*cable_, "rxe_b", "flushes"), 1u) << cable_->summary();
}

TEST_F(RcTransport, HostMemoryNeedsNoFlush) {
  open();
  RecvBuffer to(*both_.recv, 100);
  const std::vector<RecvPart> parts{{to.mr.get(), 0, 100, 1}};
  const auto flush = both_.recv->flush(parts);
  ASSERT_TRUE(flush);
  EXPECT_EQ(*flush, nullptr);
}

TEST_F(RcTransport, ALossyNetworkIsRepaired) {
  open([](Settings& settings) {
    settings.queue_pairs = 2;
    settings.min_stripe_bytes = 4096;
    settings.retry.timeout = 12;
  });
  const Netem trouble("delay 1ms reorder 90% loss 1% duplicate 1%");
  stream(60, 20'000);
  stream(60, 100);
}

TEST_F(RcTransport, ManySmallMessagesInOrder) {
  open();
  const char* const wanted = std::getenv("CLUSTAR_TEST_SMALL_MESSAGES");
  const int count = wanted == nullptr ? 10'000 : std::atoi(wanted);
  std::vector<std::uint32_t> numbers(64);
  const auto sends_from =
      std::move(both_.send->reg_mr(gdr::MemoryRef::host(numbers.data(), numbers.size() * 4)).value());
  RecvBuffer to(*both_.recv, 32 * 4);
  std::deque<Request*> sends;
  std::deque<Request*> receives;
  int sent = 0;
  int posted = 0;
  int received = 0;
  const bool over = poll_until(
      [&] {
        while (posted < count && receives.size() < 32) {
          const std::size_t at = static_cast<std::size_t>(posted++) % 32 * 4;
          receives.push_back(must_recv(*both_.recv, {{to.mr.get(), at, 4, 0}}));
        }
        while (sent < count && sends.size() < 64) {
          const auto at = static_cast<std::size_t>(sent) % 64;
          numbers[at] = static_cast<std::uint32_t>(sent++);
          sends.push_back(must_send(*both_.send, *sends_from, at * 4, 4));
        }
        while (!sends.empty() && done(*sends.front())) sends.pop_front();
        while (!receives.empty() && done(*receives.front())) {
          receives.pop_front();
          std::uint32_t number = 0;
          std::memcpy(&number, to.bytes.data() + static_cast<std::size_t>(received) % 32 * 4, 4);
          EXPECT_EQ(number, static_cast<std::uint32_t>(received));
          ++received;
        }
        return (received == count && sends.empty()) || HasFailure();
      },
      200s);
  EXPECT_TRUE(over) << received << " of " << count;
  EXPECT_FALSE(HasFailure());
}

TEST_F(RcTransport, ConnectingLeavesNothingBehind) {
  const char* const wanted = std::getenv("CLUSTAR_TEST_CYCLES");
  const int cycles = wanted == nullptr ? 50 : std::atoi(wanted);
  const auto resources = [] { return tests::output_of("rdma resource; ls /proc/self/task | wc -l"); };
  const std::string nothing = resources();
  {
    auto made = Cable::make([](Settings&) {}, Log());
    ASSERT_TRUE(made);
    std::string before;
    for (int cycle = 0; cycle < cycles; ++cycle) {
      Connection connection = connect(**made, **made);
      SendBuffer from(*connection.send, 5000, 1);
      RecvBuffer to(*connection.recv, 5000);
      finish(
          {must_recv(*connection.recv, {{to.mr.get(), 0, 5000, 0}}), must_send(*connection.send, *from.mr, 0, 5000)});
      connection = {};
      from.mr.reset();
      to.mr.reset();
      if (cycle == 0) before = resources();
    }
    EXPECT_EQ(resources(), before);
  }
  EXPECT_EQ(resources(), nothing);
  EXPECT_EQ(io::verbs::refused_destructions(), 0u);
}

}  // namespace
}  // namespace clustar::transport::conformance
