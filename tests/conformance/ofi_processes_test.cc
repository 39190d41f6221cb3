// The transport over libfabric with a peer that is killed, or stopped; and what many connections leave behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <signal.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "libfabric_shim/rdm/ofi_transport.h"
#include "tests/conformance/process_peer.h"
#include "tests/conformance/transport_under_test.h"
#include "tests/own_process.h"
#include "tests/sanitized.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using tests::open_descriptors;
using tests::running_threads;
using tests::threads_left;

constexpr std::size_t kSize = 1 << 20;
constexpr std::size_t kLong = 32 * kSize;

class OfiProcesses : public ::testing::Test {
 protected:
  // Null: libfabric is not here.
  std::unique_ptr<Transport> create() {
    static const SystemClock clock;
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<OfiSettings>()->provider = "tcp;ofi_rxm";
    auto made = ofi::OfiTransport::create({config, clock, Log{}});
    return made ? std::move(*made) : nullptr;
  }
  // The peer leaves at once where it has no libfabric either.
  static void skip_here() { GTEST_SKIP() << "no libfabric with tcp;ofi_rxm here"; }
};

TEST_F(OfiProcesses, AKilledPeerIsAnErrorAtBothKindsOfChannelWithinThreeSeconds) {
  Peer peer([&](Peer& parent) {  // takes one message, sends one, and is killed while more are under way
    const auto transport = create();
    if (!transport) return;
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    RecvBuffer to(*recv, kSize);
    SendBuffer from(*send_to, kSize, 1);
    finish({must_recv(*recv, {{to.mr.get(), 0, kSize, 0}}), must_send(*send_to, *from.mr, 0, kSize)});
    finish({must_recv(*recv, {{to.mr.get(), 0, kSize, 0}})});
    Request* nothing_comes = must_recv(*recv, {{to.mr.get(), 0, kSize, 1}});
    parent.say(true);
    while (nothing_comes->test()) continue;
  });
  const auto transport = create();
  if (!transport) return skip_here();
  const auto send_to = dial(*transport, peer);
  const auto recv = accept(*transport, peer);
  SendBuffer from(*send_to, kLong, 2);
  RecvBuffer to(*recv, kSize);
  finish({must_send(*send_to, *from.mr, 0, kSize), must_recv(*recv, {{to.mr.get(), 0, kSize, 0}})});
  // The second has no receive, so nothing but the peer's death ends it.
  Request* first = must_send(*send_to, *from.mr, 0, kSize);
  Request* second = must_send(*send_to, *from.mr, 0, kLong);
  Request* receives = must_recv(*recv, {{to.mr.get(), 0, kSize, 0}});
  finish({first});  // first, since nothing moves while this waits for words
  peer.hear<bool>();
  peer.signal(SIGKILL);
  for (Request* request : {second, receives}) {
    const Error error = await_error(*request, seconds(3));
    EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
    EXPECT_THAT(error.message, HasSubstr("127.0.0.1:"));
  }
  EXPECT_EQ(peer.wait(), -1);
}

// A stopped process is a straggler (a debugger, a swapping host): everybody waits for it, and nothing is lost.
TEST_F(OfiProcesses, APeerThatIsStoppedForThreeSecondsLosesNothing) {
  Peer peer([&](Peer& parent) {
    const auto transport = create();
    if (!transport) return;
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    RecvBuffer to(*recv, kLong);
    SendBuffer from(*send_to, kLong, 3);
    Request* receives = must_recv(*recv, {{to.mr.get(), 0, kLong, 0}});
    Request* sends = must_send(*send_to, *from.mr, 0, kLong);
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(receives->test().value().done || sends->test().value().done);
    raise(SIGSTOP);  // in the middle of both messages
    finish({receives, sends});
    EXPECT_TRUE(to.bytes == SendBuffer(*send_to, kLong, 2).bytes);
  });
  const auto transport = create();
  if (!transport) return skip_here();
  const auto send_to = dial(*transport, peer);
  const auto recv = accept(*transport, peer);
  RecvBuffer to(*recv, kLong);
  SendBuffer from(*send_to, kLong, 2);
  Request* receives = must_recv(*recv, {{to.mr.get(), 0, kLong, 0}});
  Request* sends = must_send(*send_to, *from.mr, 0, kLong);
  EXPECT_TRUE(poll_until([&] { return peer.stopped(); }));
  const auto until = std::chrono::steady_clock::now() + seconds(3);
  while (std::chrono::steady_clock::now() < until) {
    ASSERT_FALSE(receives->test().value().done);
    ASSERT_FALSE(sends->test().value().done);
  }
  peer.signal(SIGCONT);
  finish({receives, sends});
  EXPECT_TRUE(to.bytes == SendBuffer(*send_to, kLong, 3).bytes);
  EXPECT_EQ(peer.wait(), 0);
}

// The message is under way to a receive that was posted ahead: it is thrown away, since no provider takes it back.
TEST_F(OfiProcesses, AReceiverThatClosesUnderAMessageEndsNobodyElse) {
  const auto transport = create();
  if (!transport) return skip_here();
  Connection other = connect(*transport, *transport);
  Connection connection = connect(*transport, *transport);
  SendBuffer from(*connection.send, kSize, 1);
  {
    RecvBuffer to(*connection.recv, kSize);
    must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}});
    must_send(*connection.send, *from.mr, 0, kSize);
  }
  connection.recv.reset();
  from.mr.reset();
  connection.send.reset();
  SendBuffer more(*other.send, kSize, 2);
  RecvBuffer to(*other.recv, kSize);
  finish({must_recv(*other.recv, {{to.mr.get(), 0, kSize, 0}}), must_send(*other.send, *more.mr, 0, kSize)});
  EXPECT_TRUE(to.bytes == more.bytes);
}

// It comes in a frame, and the receive that was posted ahead of it is still being cancelled when the sender is gone.
// The receiver looks at every 64th poll whether it is, so all are tried.
TEST_F(OfiProcesses, AShortLastMessageInALongReceiveArrivesThoughItsSenderCloses) {
  const auto sending = create(), receiving = create();
  if (!sending || !receiving) return skip_here();
  for (int polls = 0; polls < 70; ++polls) {
    Connection connection = connect(*sending, *receiving);
    SendBuffer from(*connection.send, 100, 1);
    RecvBuffer to(*connection.recv, 2 * kSize);
    Request* const never = must_recv(*connection.recv, {{to.mr.get(), kSize, kSize, 1}});
    for (int i = 0; i < polls; ++i) ASSERT_FALSE(never->test()->done);
    finish({must_send(*connection.send, *from.mr, 0, 100, 0)});  // before it can know of the receive
    Request* const receives = must_recv(*connection.recv, {{to.mr.get(), 0, kSize, 0}});
    from.mr.reset();
    connection.send.reset();
    ASSERT_EQ(finish({receives})[0][0], 100u) << "after " << polls << " polls";
  }
}

// Their caller looks at another channel only, whose message comes when these have arrived.
TEST_F(OfiProcesses, LongReceivesAreToldWhileTheirCallerLooksElsewhere) {
  const auto sending = create(), receiving = create();
  if (!sending || !receiving) return skip_here();
  constexpr std::size_t kMany = 11, kEach = 64 * 1024;  // not so many that the last are told for want of room
  Connection first = connect(*sending, *receiving);
  Connection other = connect(*sending, *receiving);
  SendBuffer from(*first.send, kMany * kEach, 1), last(*other.send, 8, 2);
  RecvBuffer to(*first.recv, kMany * kEach), end(*other.recv, 8);
  std::vector<Request*> receives, sends;
  for (std::size_t i = 0; i < kMany; ++i) {
    receives.push_back(must_recv(*first.recv, {{to.mr.get(), i * kEach, kEach, 0}}));
  }
  Request* const waits = must_recv(*other.recv, {{end.mr.get(), 0, 8, 0}});
  const auto begun = std::chrono::steady_clock::now();
  const auto looks = [&] { ASSERT_FALSE(waits->test()->done); };
  for (std::size_t i = 0; i < kMany; ++i) {
    bool done = false;
    Request* send = nullptr;
    while (!done && std::chrono::steady_clock::now() - begun < std::chrono::seconds(10)) {
      looks();
      if (send == nullptr) send = *first.send->send(*from.mr, i * kEach, kEach, 0, {});
      done = send != nullptr && send->test()->done;
    }
    ASSERT_TRUE(done) << "message " << i << " has no receive that its sender knows of";
  }
  finish(receives);
  finish({must_send(*other.send, *last.mr, 0, 8), waits});
  EXPECT_TRUE(to.bytes == from.bytes);
}

// Without the memory that malloc keeps.
std::size_t resident_pages() {
  malloc_trim(0);
  std::ifstream statm("/proc/self/statm");
  std::size_t all = 0;
  std::size_t resident = 0;
  statm >> all >> resident;
  return resident;
}

// Each with a message by each way, and receives for which nothing comes: of a frame's size, and one that is posted
// ahead.
TEST_F(OfiProcesses, AThousandConnectionsLeaveNothingBehind) {
  const auto transport = create();
  if (!transport) return skip_here();
  const auto cycle = [&] {
    Connection connection = connect(*transport, *transport);
    SendBuffer from(*connection.send, 64 << 10, 1);
    RecvBuffer to(*connection.recv, 64 << 10);
    for (const std::size_t bytes : {std::size_t{1000}, from.bytes.size()}) {
      finish(
          {must_recv(*connection.recv, {{to.mr.get(), 0, bytes, 0}}), must_send(*connection.send, *from.mr, 0, bytes)});
    }
    must_recv(*connection.recv, {{to.mr.get(), 0, 1000, 0}});
    must_recv(*connection.recv, {{to.mr.get(), 0, from.bytes.size(), 0}});
  };
  for (int i = 0; i < 100; ++i) cycle();
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  const std::size_t before = resident_pages();
  for (int i = 0; i < 1000; ++i) cycle();
  EXPECT_EQ(open_descriptors(), descriptors);
  EXPECT_LE(threads_left(threads), threads);
  // A sanitizer keeps what is freed.
  if (!tests::kSanitized) {
    EXPECT_LE(resident_pages(), before + 256) << "a page for every fourth connection";
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
