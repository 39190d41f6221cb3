// Connections without a coordinator behind them.
#include "coflow/control/daemon/connections.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>

#include "coflow/control/daemon/listener.h"
#include "tests/coordinator/test_agent.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;

TEST(Connections, OneThatDoesNotReadIsDroppedWithWhatItWasToBeTold) {
  const DaemonLog log(Verbosity::kError);
  boost::asio::io_context io;
  std::optional<Connections::Link> known, closed;
  Connections connections(
      io, {}, log,
      {[&](Connections::Link link, const Message&) { known = link; }, [&](Connections::Link link) { closed = link; }});
  auto door = Listener::open(io, Tcp::endpoint(boost::asio::ip::address_v4::loopback(), 0), "--listen",
                             [&](int fd, const Tcp::endpoint& peer) { return connections.take(fd, peer); });
  ASSERT_TRUE(door) << door.error().message;
  TestAgent agent((*door)->local().port());
  agent.send(hello_of(1, 1));
  for (int i = 0; i < 1000 && !known; ++i) {
    io.run_one_for(std::chrono::milliseconds(20));
    connections.flush();
    agent.next(std::chrono::milliseconds(0));  // the hello goes behind the other side's opening
  }
  ASSERT_TRUE(known);
  EXPECT_EQ(connections.strangers(), 0u);
  Order order;
  order.all = true;
  order.classes.resize(kMostClasses);
  int told = 0;
  // The kernel takes some megabytes; this is ten times as much.
  for (; told < 10'000 && !closed; ++told) {
    connections.send({*known, order, false});
    connections.flush();
    io.poll();
  }
  EXPECT_EQ(closed, known) << told;
  EXPECT_EQ(connections.count(), 0u);
  EXPECT_EQ(connections.counters().too_slow, 1u);
}

}  // namespace
}  // namespace clustar::tests
