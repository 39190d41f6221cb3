// A link that is down at the sender's end, where SoftRoCE fails the queue pairs: loss, and not the end.
#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <thread>

#include "tests/rdma/ud_pair.h"

namespace clustar::tests {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyClock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

class UdCut : public UdPair {
 protected:
  static constexpr std::uint32_t kSlots = 64;

  UdCut() { options.receive_slots = kSlots; }

  // Each end sends to the other on all paths, and takes what comes, until `duration` is over or b has heard `enough`
  // different ones. Returns an error of a's.
  std::optional<Error> talk(milliseconds duration, std::size_t enough = ~std::size_t{0}) {
    std::set<unsigned> heard;
    const auto limit = SteadyClock::now() + duration;
    while (SteadyClock::now() < limit && heard.size() < enough) {
      std::vector<io::TxPacket> there;
      std::vector<io::TxPacket> back;
      for (unsigned i = 0; i < 16; ++i) {
        there.push_back(packet(next_));
        back.push_back(packet(next_++));
        back.back().payload = {};
        back.back().peer = to_a;
      }
      if (const auto sent = a->send(there); !sent) return sent.error();
      must(b->send(back));
      for (Got& one : collect(kSlots, milliseconds(1))) {
        EXPECT_TRUE(whole(one)) << one.number;
        heard.insert(one.number);
      }
      io::RxPacket burst[kSlots];
      const auto count = a->receive(burst);
      if (!count) return count.error();
      a->release(std::span(burst).first(*count));
    }
    EXPECT_TRUE(enough == ~std::size_t{0} || heard.size() >= enough) << a->describe() << "; " << b->describe();
    return std::nullopt;
  }
  // That all slots of a still receive: with none released, as many packets come as there are slots.
  void expect_all_slots() {
    io::RxPacket held[kSlots];
    std::size_t count = 0;
    for (const auto limit = SteadyClock::now() + seconds(20); count < kSlots && SteadyClock::now() < limit;) {
      io::TxPacket one = packet(next_++);
      one.payload = {};
      one.peer = to_a;
      send({one}, *b);
      a->wait(milliseconds(20));
      count += must(a->receive(std::span(held).subspan(count)));
    }
    EXPECT_EQ(count, kSlots) << a->describe();
    a->release(std::span(held).first(count));
  }

  // Address handles are made when they are first used, which needs the link.
  void connect() {
    UdPair::connect();
    ASSERT_FALSE(talk(seconds(10), 100));
    ASSERT_EQ(a->counters().link_lost + b->counters().link_lost, 0u);
  }

  unsigned next_ = 0;
};

TEST_F(UdCut, PacketsGoOnAndNoSlotIsLost) {
  connect();
  for (int round = 0; round < 3; ++round) {
    const auto lost = a->counters().link_lost;
    const auto restarts = a->counters().restarts;
    {
      const LinkDown down("va");
      const auto error = talk(seconds(1));
      ASSERT_FALSE(error) << error->message;
    }
    const auto error = talk(seconds(10), 200);
    ASSERT_FALSE(error) << error->message;
    EXPECT_GT(a->counters().link_lost, lost);
    EXPECT_GT(a->counters().restarts, restarts);
    EXPECT_LE(a->counters().restarts, restarts + 8 * 200) << "of 8 paths once per 10 ms";
    expect_all_slots();
  }
  EXPECT_THAT(a->describe(), AllOf(HasSubstr("lost with queue pairs that had failed"), HasSubstr("went on")));
  std::printf("%s\n", a->describe().c_str());
}

// What was handed over may be read until settle() returns, and no longer.
TEST_F(UdCut, SettlingReturnsAtOnceAndMemoryMayGo) {
  connect();
  {
    const LinkDown down("va");
    for (unsigned round = 0; round < 30; ++round) {
      std::vector<std::byte> bytes(16 * 500, static_cast<std::byte>(round));
      const auto begin = SteadyClock::now();
      {
        const auto own = must(a->reg_mr(gdr::MemoryRef::host(bytes.data(), bytes.size())));
        std::vector<io::TxPacket> packets;
        for (unsigned i = 0; i < 16; ++i) {
          packets.push_back(packet(i));
          packets.back().payload = {own.get(), i * 500, 500};
        }
        send(packets);
        std::thread([this] { a->quiesce(); }).join();
      }
      EXPECT_LT(SteadyClock::now() - begin, milliseconds(900));
      std::ranges::fill(bytes, std::byte{0xff});
      io::RxPacket none;
      must(a->receive(std::span(&none, 1)));
      std::this_thread::sleep_for(milliseconds(5));
    }
  }
  EXPECT_GT(a->counters().link_lost, 30u);
  const auto error = talk(seconds(10), 200);
  ASSERT_FALSE(error) << error->message;
  expect_all_slots();
}

// An end that has sent while its link was down and then only listens must be heard again by itself.
TEST_F(UdCut, WhoOnlyListensAfterwardsHearsAgain) {
  connect();
  {
    const LinkDown down("vb");
    io::TxPacket last = packet(0);
    last.payload = {};
    last.peer = to_a;
    for (unsigned path = 0; path < 8; ++path) {
      last.path = static_cast<std::uint8_t>(path);
      send({last}, *b);
    }
  }
  std::set<unsigned> paths;
  for (const auto limit = SteadyClock::now() + seconds(10); paths.size() < 8 && SteadyClock::now() < limit;) {
    for (unsigned i = 0; i < 8; ++i) send({packet(i)});
    for (const Got& one : collect(8, milliseconds(50))) paths.insert(one.info.path);
  }
  EXPECT_EQ(paths.size(), 8u) << b->describe();
  EXPECT_EQ(b->counters().link_lost, 8u);
  EXPECT_EQ(b->counters().restarts, 8u);
}

// The same where another path brings more than is taken, so that the receiver never finds nothing.
TEST_F(UdCut, WhoIsNeverIdleAfterwardsHearsAgain) {
  connect();
  {
    const LinkDown down("vb");
    io::TxPacket last = packet(0);
    last.payload = {};
    last.peer = to_a;
    send({last}, *b);
  }
  const io::TxPacket other = packet(1);
  for (unsigned i = 0; i < kSlots; ++i) send({other});
  std::this_thread::sleep_for(milliseconds(300));
  std::size_t idle = 0;
  const auto limit = SteadyClock::now() + seconds(10);
  while (b->counters().restarts == 0 && SteadyClock::now() < limit) {
    send({other, other, other});
    io::RxPacket one;
    const std::size_t count = must(b->receive(std::span(&one, 1)));
    b->release(std::span(&one, count));
    idle += count == 0 ? 1 : 0;
  }
  EXPECT_EQ(b->counters().restarts, 1u) << b->describe();
  EXPECT_EQ(idle, 0u) << "it says nothing where the receiver was idle";
}

TEST_F(UdCut, TheEndOfPatienceNamesDeviceAndPort) {
  options.link_patience = seconds(2);
  connect();
  const LinkDown down("va");
  const auto begin = SteadyClock::now();
  const auto error = talk(seconds(20));
  const auto took = SteadyClock::now() - begin;
  ASSERT_TRUE(error) << a->describe();
  EXPECT_GT(took, seconds(2));
  EXPECT_LT(took, seconds(6));
  EXPECT_THAT(error->message, AllOf(HasSubstr("the link of rxe_a port 1 is down for more than 2 s"),
                                    HasSubstr("IBV_WC_LOC_QP_OP_ERR"), HasSubstr("ip link")));
  io::RxPacket none;
  EXPECT_EQ(a->receive(std::span(&none, 1)).error().message, error->message);
  const auto settling = SteadyClock::now();
  a->quiesce();
  EXPECT_LT(SteadyClock::now() - settling, seconds(3));
}

}  // namespace
}  // namespace clustar::tests
