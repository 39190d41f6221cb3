// Peers as processes: killed, stopped and continued, started again. What `clustar conform` checks through the plugin,
// here with what only the transport shows.
#include <gmock/gmock.h>
#include <signal.h>

#include <utility>

#include "tests/conformance/mlt_bed.h"
#include "tests/conformance/process_peer.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::size_t kSize = 1 << 20;

class MltProcesses : public MltBed {};

void receive(RecvChannel& channel, unsigned seed) {
  RecvBuffer to(channel, kSize);
  finish({must_recv(channel, {{to.mr.get(), 0, kSize, 0}})});
  EXPECT_TRUE(to.bytes == pattern(seed)) << "message " << seed;
}
void send(SendChannel& channel, unsigned seed) {
  SendBuffer from(channel, kSize, seed);
  finish({must_send(channel, *from.mr, 0, kSize)});
}

TEST_F(MltProcesses, AKilledPeerIsAnErrorAtBothKindsOfChannelWithinThreeSeconds) {
  Peer peer([&](Peer& parent) {  // receives one message, sends one, and is killed while more are under way
    const auto transport = create({});
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    receive(*recv, 1);
    send(*send_to, 1);
    RecvBuffer to(*recv, kSize);
    Request* open = must_recv(*recv, {{to.mr.get(), 0, kSize, 0}});
    parent.say(true);
    while (open->test()) continue;
  });
  const auto transport = create({});
  const auto send_to = dial(*transport, peer);
  const auto recv = accept(*transport, peer);
  send(*send_to, 1);
  receive(*recv, 1);
  SendBuffer from(*send_to, 16 << 20, 2);
  RecvBuffer to(*recv, kSize);
  Request* sends = must_send(*send_to, *from.mr, 0, 16 << 20);
  Request* receives = must_recv(*recv, {{to.mr.get(), 0, kSize, 0}});
  peer.hear<bool>();
  EXPECT_FALSE(sends->test().value().done);
  peer.signal(SIGKILL);
  for (Request* request : {sends, receives}) {
    const Error error = await_error(*request, seconds(3));
    EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
    EXPECT_THAT(error.message, HasSubstr("127.0.0.1:"));
  }
  EXPECT_EQ(peer.wait(), -1);
}

// A stopped process is a straggler (a debugger, a swapping host): everybody waits for it, and nothing is lost.
TEST_F(MltProcesses, APeerThatIsStoppedForThreeSecondsLosesNothing) {
  constexpr std::size_t kLong = 32 * kSize;
  Peer peer([&](Peer& parent) {
    const auto transport = create({.engine = "inline"});  // so that bytes move only where this says so
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    RecvBuffer to(*recv, kLong);
    SendBuffer from(*send_to, kLong, 3);
    Request* receives = must_recv(*recv, {{to.mr.get(), 0, kLong, 0}});
    Request* sends = must_send(*send_to, *from.mr, 0, kLong);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(receives->test().value().done || sends->test().value().done);
    raise(SIGSTOP);  // in the middle of both messages
    finish({receives, sends});
    EXPECT_TRUE(to.bytes == pattern(2, kLong));
    receive(*recv, 4);
  });
  const auto transport = create({});
  const auto send_to = dial(*transport, peer);
  const auto recv = accept(*transport, peer);
  RecvBuffer to(*recv, kLong);
  SendBuffer from(*send_to, kLong, 2);
  Request* receives = must_recv(*recv, {{to.mr.get(), 0, kLong, 0}});
  Request* sends = must_send(*send_to, *from.mr, 0, kLong);
  bool stopped = false;
  const auto quiet = [&] {
    stopped = stopped || peer.stopped();
    for (Request* request : {receives, sends}) {
      const auto progress = request->test();
      EXPECT_TRUE(progress && !progress->done) << (progress ? "done" : progress.error().message);
    }
  };
  ASSERT_TRUE(poll_until([&] { return quiet(), stopped || HasFailure(); }));
  EXPECT_FALSE(poll_until([&] { return quiet(), HasFailure(); }, seconds(3)));
  peer.signal(SIGCONT);
  finish({receives, sends});
  EXPECT_TRUE(to.bytes == pattern(3, kLong));
  // 3 s are less than the 10 s of a straggler's warning. Asked before the peer may end, which is one of its own.
  EXPECT_EQ(take_warnings(), "");
  send(*send_to, 4);
  EXPECT_EQ(peer.wait(), 0);
}

TEST_F(MltProcesses, AProcessStartedAnewIsReachedWhileTheOldConnectionFails) {
  const auto body = [&](Peer& parent) {
    parent.hear<bool>();
    const auto transport = create({});
    const auto recv = accept(*transport, parent);
    receive(*recv, 7);
    parent.say(true);
    RecvBuffer to(*recv, kSize);
    Request* open = must_recv(*recv, {{to.mr.get(), 0, kSize, 1}});
    while (open->test()) continue;  // until the parent closes, or this process is killed
  };
  Peer first(body);
  Peer second(body);  // forked now, for later there are threads here
  const auto transport = create({});
  first.say(true);
  const auto old = dial(*transport, first);
  send(*old, 7);
  first.hear<bool>();
  SendBuffer from(*old, kSize, 1);
  Request* waiting = must_send(*old, *from.mr, 0, kSize);
  first.signal(SIGKILL);
  second.say(true);
  auto again = dial(*transport, second);
  send(*again, 7);
  second.hear<bool>();
  const Error error = await_error(*waiting, seconds(3));
  EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
  again.reset();
  EXPECT_EQ(second.wait(), 0);
}

}  // namespace
}  // namespace clustar::transport::conformance
