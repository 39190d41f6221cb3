// A host that vanishes says nothing: no reset, no close. A process that waits for it must learn of it within 30 s;
// nobody else may. (A process that is stopped on a live host is no error; `clustar conform` tests that.)
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/conformance/transport_under_test.h"
#include "tests/fabric/two_hosts.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::tests {
namespace {

using namespace transport;
using namespace transport::conformance;

std::unique_ptr<Transport> make_transport(const Clock& clock) {
  Config config;
  config.edit<NetworkSettings>()->interfaces = "=wire";
  return std::move(tcp::TcpTransport::create({config, clock}).value());
}

TEST(DeadHost, BothSurvivorsLearnOfItWithinThirtySeconds) {
  const TwoHosts hosts;
  if (!hosts.reason().empty()) GTEST_SKIP() << hosts.reason();
  const SystemClock clock;
  std::unique_ptr<Transport> left;
  std::unique_ptr<Transport> right;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<PendingConnect> pending;
  hosts.run_on(1, [&] {
    right = make_transport(clock);
    listener = std::move(right->listen(0, {}).value());
  });
  Connection connection;
  hosts.run_on(0, [&] {
    left = make_transport(clock);
    pending = std::move(left->connect(0, listener->handle(), {}).value());
    // Sockets belong to the namespace that made them, whichever thread uses them later.
    ASSERT_TRUE(poll_until([&] {
      if (!connection.send) connection.send = std::move(pending->poll().value());
      if (!connection.recv) connection.recv = std::move(listener->poll_accept().value());
      return connection.send && connection.recv;
    }));
  });
  ASSERT_TRUE(connection.send && connection.recv);
  // A second connection stays idle while the host dies, as between two collectives: its receive comes later.
  std::unique_ptr<PendingConnect> idle_pending;
  Connection idle;
  hosts.run_on(0, [&] {
    idle_pending = std::move(left->connect(0, listener->handle(), {}).value());
    ASSERT_TRUE(poll_until([&] {
      if (!idle.send) idle.send = std::move(idle_pending->poll().value());
      if (!idle.recv) idle.recv = std::move(listener->poll_accept().value());
      return idle.send && idle.recv;
    }));
  });
  ASSERT_TRUE(idle.send && idle.recv);
  SendBuffer from(*connection.send, 8 << 20, 1);
  RecvBuffer to(*connection.recv, 8 << 20);
  finish({must_recv(*connection.recv, {{to.mr.get(), 0, 1000, 0}}), must_send(*connection.send, *from.mr, 0, 1000)});

  ASSERT_TRUE(hosts.cut());
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  double sender_after = 0;
  double receiver_after = 0;
  std::thread sender([&] {
    Request* request = must_send(*connection.send, *from.mr, 0, 8 << 20);
    const Error error = await_error(*request, std::chrono::seconds(40));
    EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
    sender_after = seconds();
  });
  Request* request = must_recv(*connection.recv, {{to.mr.get(), 0, 8 << 20, 0}});
  const Error error = await_error(*request, std::chrono::seconds(40));
  receiver_after = seconds();
  sender.join();
  EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
  EXPECT_LT(sender_after, 30.0);
  EXPECT_LT(receiver_after, 30.0);
  EXPECT_GT(sender_after, 5.0) << "a host that is silent for a moment is not dead";
  std::this_thread::sleep_for(std::chrono::duration<double>(std::max(0.0, 32.0 - seconds())));
  RecvBuffer late(*idle.recv, 1 << 20);
  const auto posted = idle.recv->recv(std::vector<RecvPart>{{late.mr.get(), 0, 1 << 20, 0}});
  if (posted) {
    ASSERT_NE(*posted, nullptr);
    const Error late_error = await_error(**posted, std::chrono::seconds(5));
    EXPECT_EQ(late_error.code, ErrorCode::kRemote) << late_error.message;
  }
  std::printf("sender's error after %.1f s, receiver's after %.1f s: %s\n", sender_after, receiver_after,
              error.message.c_str());
}

}  // namespace
}  // namespace clustar::tests
