// MLT over DPDK between processes, each with a port of its own: killed, stopped and continued, the link down and up.
// The bounds are those of mlt_processes_test.cc, which has the same over kernel UDP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rte_ethdev.h>
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "tests/conformance/dpdk_peers.h"
#include "tests/conformance/own_network.h"
#include "tests/conformance/process_peer.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/eal.h"
#include "transport/io/dpdk/ethernet_device.h"

namespace clustar::transport::conformance {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::HasSubstr;

constexpr std::size_t kSize = 1 << 20;

void receive(RecvChannel& channel, unsigned seed, std::size_t size = kSize) {
  RecvBuffer to(channel, size);
  finish({must_recv(channel, {{to.mr.get(), 0, size, 0}})});
  EXPECT_TRUE(to.bytes == pattern(seed, size)) << "message " << seed;
}
void send(SendChannel& channel, unsigned seed, std::size_t size = kSize) {
  SendBuffer from(channel, size, seed);
  finish({must_send(channel, *from.mr, 0, size)});
}

class DpdkProcesses : public DpdkPeers {};

TEST_F(DpdkProcesses, AKilledPeerIsAnErrorWithinThreeSecondsAndAnotherProcessTakesItsPort) {
  Peer survivor([&](Peer& parent) {
    const auto transport = create(over_veth().first);
    const auto send_to = dial(*transport, parent);
    const auto recv = accept(*transport, parent);
    send(*send_to, 1);
    receive(*recv, 1);
    SendBuffer from(*send_to, 16 * kSize, 2);
    RecvBuffer to(*recv, kSize);
    Request* const sends = must_send(*send_to, *from.mr, 0, 16 * kSize);
    Request* const receives = must_recv(*recv, {{to.mr.get(), 0, kSize, 0}});
    EXPECT_FALSE(sends->test().value().done);
    parent.say(true);
    for (Request* request : {sends, receives}) {
      const Error error = await_error(*request, seconds(3));
      EXPECT_EQ(error.code, ErrorCode::kRemote) << error.message;
      EXPECT_THAT(error.message, HasSubstr("127.0.0.1:"));
    }
    parent.say(true);
    const auto again = dial(*transport, parent);
    for (unsigned i = 0; i < 5; ++i) send(*again, 10 + i);
  });
  Peer killed([&](Peer& parent) {
    const auto transport = create(over_veth().second);
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    receive(*recv, 1);
    send(*send_to, 1);
    RecvBuffer to(*recv, kSize);
    Request* const open = must_recv(*recv, {{to.mr.get(), 0, kSize, 0}});
    while (open->test()) continue;
  });
  join(killed, survivor);
  join(survivor, killed);
  survivor.hear<bool>();
  killed.signal(SIGKILL);
  EXPECT_EQ(killed.wait(), -1);
  survivor.hear<bool>();
  Peer another([&](Peer& parent) {
    const auto transport = create(over_veth().second);
    const auto recv = accept(*transport, parent);
    for (unsigned i = 0; i < 5; ++i) receive(*recv, 10 + i);
  });
  join(another, survivor);
  EXPECT_EQ(another.wait(), 0);
  EXPECT_EQ(survivor.wait(), 0);
}

// A stopped process is a straggler: everybody waits for it, and nothing is lost.
TEST_F(DpdkProcesses, APeerThatIsStoppedForTwoSecondsLosesNothing) {
  constexpr std::size_t kLong = 16 * kSize;
  const auto exchange = [](RecvChannel& recv, SendChannel& send_to, unsigned mine, unsigned other, bool stops) {
    RecvBuffer to(recv, kLong);
    SendBuffer from(send_to, kLong, mine);
    Request* const receives = must_recv(recv, {{to.mr.get(), 0, kLong, 0}});
    Request* const sends = must_send(send_to, *from.mr, 0, kLong);
    for (int i = 0; stops && i < 3; ++i) EXPECT_FALSE(receives->test().value().done || sends->test().value().done);
    if (stops) raise(SIGSTOP);  // in the middle of both messages
    finish({receives, sends});
    EXPECT_TRUE(to.bytes == pattern(other, kLong));
  };
  Peer stops([&](Peer& parent) {
    const auto transport = create(over_veth().second, "inline");  // so that bytes move only where this says so
    const auto recv = accept(*transport, parent);
    const auto send_to = dial(*transport, parent);
    exchange(*recv, *send_to, 3, 2, true);
    receive(*recv, 4);
  });
  Peer waits([&](Peer& parent) {
    const auto transport = create(over_veth().first);
    const auto send_to = dial(*transport, parent);
    const auto recv = accept(*transport, parent);
    exchange(*recv, *send_to, 2, 3, false);
    parent.say(steady_clock::now());  // of all processes
    send(*send_to, 4);
  });
  join(stops, waits);
  join(waits, stops);
  ASSERT_TRUE(happens([&] { return stops.stopped(); }));
  std::this_thread::sleep_for(seconds(2));
  const auto continued = steady_clock::now();
  stops.signal(SIGCONT);
  EXPECT_GE(waits.hear<steady_clock::time_point>(), continued) << "done while the other end stood still";
  EXPECT_EQ(stops.wait(), 0);
  EXPECT_EQ(waits.wait(), 0);
}

// What two processes and this one have in common.
struct Board {
  std::atomic<int> arrived{0};  // messages at the receiver
  std::atomic<bool> enough{false};
};

class DpdkLink : public DpdkPeers {
 protected:
  void SetUp() override {
    DpdkPeers::SetUp();
    void* const shared = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    board_ = new (shared) Board;
  }
  void TearDown() override {
    if (board_ != nullptr) munmap(board_, sizeof(Board));
    DpdkPeers::TearDown();
  }
  Board* board_ = nullptr;
};

// Messages of a stream are long but for the last one.
TEST_F(DpdkLink, ThatIsDownForAWhileIsNoErrorAndLosesNothing) {
  const auto send_all = [&](SendChannel& channel) {
    SendBuffer from(channel, kSize, 5);
    while (!board_->enough && !HasFailure()) finish({must_send(channel, *from.mr, 0, kSize)});
    finish({must_send(channel, *from.mr, 0, 1)});
  };
  const auto receive_all = [&](RecvChannel& channel) {
    const auto expected = pattern(5);
    for (std::size_t size = kSize; size == kSize && !HasFailure(); ++board_->arrived) {
      RecvBuffer to(channel, kSize);
      size = finish({must_recv(channel, {{to.mr.get(), 0, kSize, 0}})})[0][0];
      EXPECT_TRUE(size == 1 || to.bytes == expected) << "message " << board_->arrived;
    }
  };
  Peer receiver([&](Peer& parent) {
    const auto transport = create(over_veth().second);
    receive_all(*accept(*transport, parent));
  });
  Peer sender([&](Peer& parent) {
    const auto transport = create(over_veth().first);
    send_all(*dial(*transport, parent));
  });
  join(receiver, sender);
  const auto wait_for = [&](int messages) { return happens([&] { return board_->arrived >= messages; }); };
  int before = 0;
  for (const char* end : {"f0", "f1"}) {  // the sender's, then the receiver's
    ASSERT_TRUE(wait_for(before + 3)) << board_->arrived;
    ASSERT_TRUE(shell(std::string("ip link set down ") + end));
    std::this_thread::sleep_for(milliseconds(100));  // what has arrived is read
    before = board_->arrived;
    std::this_thread::sleep_for(milliseconds(700));
    EXPECT_LE(board_->arrived, before + 1) << end << " is down";
    ASSERT_TRUE(shell(std::string("ip link set up ") + end));
    before = board_->arrived;
  }
  EXPECT_TRUE(wait_for(before + 3)) << board_->arrived;
  board_->enough = true;
  EXPECT_EQ(sender.wait(), 0);
  EXPECT_EQ(receiver.wait(), 0);
}

bool has_link(const char* device) {
  std::uint16_t port = 0;
  rte_eth_link link{};
  return rte_eth_dev_get_port_by_name(device, &port) == 0 && rte_eth_link_get_nowait(port, &link) == 0 &&
         link.link_status != RTE_ETH_LINK_DOWN;
}

// DPDK's thread hears of the end that closes first, and frees what the other's closing frees, too.
TEST_F(DpdkPeers, TwoPortsOfMemifCloseAgainAndAgain) {
  const auto open = [](const std::string& device) {
    const auto specs = io::dpdk::parse_devices(device);
    auto opened = io::dpdk::EthernetDevice::open(specs->front(), {.descriptors = 64, .held = 64});
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  };
  Wire wire = over_memif();
  wire.second.replace(wire.second.find("net_memif0"), 10, "net_memif1");
  Peer process([&](Peer&) {
    ASSERT_TRUE(io::dpdk::start_eal({}));
    for (int round = 0; round < 100 && !HasFailure(); ++round) {
      auto server = open(wire.first);
      auto client = open(wire.second);
      EXPECT_TRUE(poll_until([&] { return has_link("net_memif0") && has_link("net_memif1"); }));
      (round % 2 == 0 ? server : client).reset();
    }
  });
  EXPECT_EQ(process.wait(), 0) << "-1: a signal ended it";
}

// Bytes move only where an end tests its requests: net_memif unmaps the memory that the two share as soon as one of
// them closes, even while the other reads it.
TEST_F(DpdkProcesses, MessagesOverMemoryThatTwoProcessesShare) {
  const auto exchange = [](Transport& transport, Peer& parent, bool accepts, unsigned mine, unsigned other) {
    constexpr std::size_t kLong = 8 * kSize;
    std::unique_ptr<RecvChannel> recv;
    if (accepts) recv = accept(transport, parent);
    const auto send_to = dial(transport, parent);
    if (!accepts) recv = accept(transport, parent);
    for (unsigned round = 0; round < 3; ++round) {
      SendBuffer from(*send_to, kLong, mine + round);
      RecvBuffer to(*recv, kLong);
      finish({must_recv(*recv, {{to.mr.get(), 0, kLong, 0}}), must_send(*send_to, *from.mr, 0, kLong)});
      EXPECT_TRUE(to.bytes == pattern(other + round, kLong)) << "round " << round;
    }
    // Its acknowledgements were its last packets: what the other end still asks is answered here.
    const auto end = steady_clock::now() + milliseconds(100);
    RecvBuffer nothing(*recv, 1);
    Request* const waits = must_recv(*recv, {{nothing.mr.get(), 0, 1, 0}});
    while (steady_clock::now() < end) EXPECT_FALSE(waits->test().value().done);
    parent.say(true);
    parent.hear<bool>();
  };
  const Wire wire = over_memif();
  Peer server([&](Peer& parent) {
    const auto transport = create(wire.first, "inline");
    EXPECT_THAT(std::string(transport->devices()[0].name), HasSubstr("net_memif0"));
    exchange(*transport, parent, true, 20, 30);
  });
  Peer client([&](Peer& parent) { exchange(*create(wire.second, "inline"), parent, false, 30, 20); });
  join(server, client);
  join(client, server);
  server.hear<bool>();
  client.hear<bool>();
  client.say(true);
  EXPECT_EQ(client.wait(), 0);
  server.say(true);
  EXPECT_EQ(server.wait(), 0);
}

}  // namespace
}  // namespace clustar::transport::conformance
