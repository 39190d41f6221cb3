// What the TCP transport promises under an order, with a clock that the test turns.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "tests/conformance/transport_under_test.h"
#include "tests/conformance/turned_clock.h"
#include "transport/api/settings.h"
#include "transport/message/ahead_meter.h"
#include "transport/net/settings.h"
#include "transport/tcp/tcp_transport.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;

;

// As poll_until(), but that it does not become so is no failure.
template <class Step>
bool comes_true(const Step& step, milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!step()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

class TcpOrder : public ::testing::Test {
 protected:
  std::unique_ptr<Transport> create(const std::string& order, int line_mbps = 0) {
    Config config;
    config.edit<NetworkSettings>()->interfaces = "=lo";
    config.edit<NetworkSettings>()->line_mbps = line_mbps;
    config.edit<SendOrderSettings>()->order = order;
    return std::move(tcp::TcpTransport::create({config, clock_}).value());
  }

  TurnedClock clock_;
};

TEST_F(TcpOrder, APeerThatTakesNothingHoldsUpTheOthersForOnePatienceInTotal) {
  constexpr std::size_t kLong = 64 << 20, kShort = 1 << 20;
  const auto transport = create("class");
  Connection stopped = connect(*transport, *transport), other = connect(*transport, *transport);
  SendBuffer from(*stopped.send, kLong, 1), from_other(*other.send, kShort, 2);
  RecvBuffer to(*stopped.recv, kLong), to_other(*other.recv, kShort);
  must_recv(*stopped.recv, {{to.mr.get(), 0, kLong, 0}});  // and reads no more
  Request* const first = must_send(*stopped.send, *from.mr, 0, kLong);
  Request* const received = must_recv(*other.recv, {{to_other.mr.get(), 0, kShort, 0}});
  Request* const sent = must_send(*other.send, *from_other.mr, 0, kShort);
  bool sending = true, receiving = true;
  const auto done = [&] {
    EXPECT_FALSE(first->test().value().done);
    if (sending) sending = !sent->test().value().done;
    if (receiving) receiving = !received->test().value().done;
    return !sending && !receiving;
  };
  // The kernel takes a while to find that the window is shut.
  int patience = 0;
  while (!comes_true(done, milliseconds(300)) && patience < 100) {
    ++patience;
    clock_.advance(AheadMeter::kPatience + milliseconds(1));
  }
  EXPECT_LE(patience, 4);
  EXPECT_FALSE(sending || receiving);
}

// Only a sender keeps what goes ahead of its receive short; on a slow line its chunks are shorter than that.
TEST_F(TcpOrder, EndsWithDifferentOrdersUnderstandEachOther) {
  const auto ordered = create("class"), by_arrival = create("fifo");
  const auto slow = create("class", 200);
  for (const auto& [from, to] :
       {std::pair(&ordered, &by_arrival), std::pair(&by_arrival, &ordered), std::pair(&slow, &by_arrival)}) {
    Connection connection = connect(**from, **to);
    ASSERT_TRUE(connection.send && connection.recv);
    for (const std::size_t size : {1'000, 16 * 1024, 20'000, 60'000, 3'000'000}) {
      for (const bool ahead : {false, true}) {
        SendBuffer source(*connection.send, size, 1);
        RecvBuffer target(*connection.recv, size);
        Request* sent = nullptr;
        if (ahead) sent = must_send(*connection.send, *source.mr, 0, size);
        Request* const received = must_recv(*connection.recv, {{target.mr.get(), 0, size, 0}});
        if (!ahead) sent = must_send(*connection.send, *source.mr, 0, size);
        bool sending = true, receiving = true;
        ASSERT_TRUE(poll_until([&] {
          if (sending) sending = !sent->test().value().done;
          if (receiving) receiving = !received->test().value().done;
          clock_.advance(std::chrono::microseconds(1));  // receives that wait for company are announced in time
          return !sending && !receiving;
        }));
        EXPECT_TRUE(source.bytes == target.bytes) << size;
      }
    }
  }
}

}  // namespace
}  // namespace clustar::transport::conformance
