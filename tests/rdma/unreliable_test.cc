// Unreliable connections and datagrams: what arrives, where, and what is lost in silence.
#include <arpa/inet.h>

#include <cstdint>
#include <cstring>
#include <set>

#include "tests/rdma/two_ends.h"
#include "transport/io/verbs/path.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kGrhBytes = 40;

class UnreliableConnection : public TwoEnds {};

class Datagrams : public TwoEnds {
 protected:
  void address_peer(std::uint8_t traffic_class = 0) {
    handle = must(verbs::AddressHandle::make(
        a->domain, {.peer = b->gid.gid, .gid_index = static_cast<int>(a->gid.index), .traffic_class = traffic_class}));
  }
  ibv_send_wr datagram(std::size_t offset, std::size_t length) {
    ibv_send_wr made = a->request(IBV_WR_SEND_WITH_IMM, offset, length);
    made.imm_data = htonl(7);
    made.wr.ud.ah = handle->get();
    made.wr.ud.remote_qpn = b->pair->number();
    made.wr.ud.remote_qkey = kQKey;
    return made;
  }
  std::optional<verbs::AddressHandle> handle;
};

TEST_F(UnreliableConnection, WriteWithImmediateLandsInPlace) {
  connect({.type = IBV_QPT_UC});
  a->fill(0, 1000, 1);
  b->receive(1, 0, 0);
  ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1000, 3000);
  write.imm_data = htonl(0x00010002);
  a->post(write);
  a->success();
  const ibv_wc received = b->success();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ntohl(received.imm_data), 0x00010002u);
  EXPECT_EQ(received.byte_len, 1000u);
  EXPECT_TRUE(b->filled(3000, 1000, 1));
}

// What single-packet writes are for: a loss costs that packet only, and what came is where it belongs.
TEST_F(UnreliableConnection, EveryWriteOfOnePacketStandsForItself) {
  connect({.type = IBV_QPT_UC});
  constexpr int kPackets = 200;
  constexpr std::size_t kBytes = 1024;
  a->fill(0, kPackets * kBytes, 2);
  std::set<std::uint32_t> arrived;
  {
    const Netem loss("loss 10%");
    for (int i = 0; i < kPackets; ++i) {
      b->receive(static_cast<std::uint64_t>(i), 0, 0);
      ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, i * kBytes, kBytes, i * kBytes);
      write.imm_data = htonl(static_cast<std::uint32_t>(i));
      a->post(write);
      a->success();
    }
  }
  // The link loses nothing any more and keeps the order: behind this one nothing comes.
  b->receive(kPackets, 0, 0);
  ibv_send_wr last = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0);
  last.imm_data = htonl(kPackets);
  a->post(last);
  a->success();
  for (std::uint32_t packet = 0; (packet = ntohl(b->success().imm_data)) != kPackets;) arrived.insert(packet);
  EXPECT_GT(arrived.size(), 140u);
  EXPECT_LT(arrived.size(), 200u);
  for (const std::uint32_t packet : arrived) {
    EXPECT_EQ(std::memcmp(b->bytes(packet * kBytes), a->bytes(packet * kBytes), kBytes), 0) << packet;
  }
}

// What a receiver must be ready for: a write comes twice, and after later ones.
TEST_F(UnreliableConnection, DuplicatesAndReorderedWritesAreDelivered) {
  connect({.type = IBV_QPT_UC});
  constexpr int kPackets = 100;
  std::multiset<std::uint32_t> arrived;
  bool in_order = true;
  {
    const Netem trouble("delay 2ms reorder 50% duplicate 20%");
    for (int i = 0; i < 2 * kPackets; ++i) b->receive(static_cast<std::uint64_t>(i), 0, 0);
    for (int i = 0; i < kPackets; ++i) {
      ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 512, i * 512);
      write.imm_data = htonl(static_cast<std::uint32_t>(i));
      a->post(write);
      a->success();
    }
    const auto seen_all = [&] {
      return arrived.size() > kPackets && !in_order && std::set(arrived.begin(), arrived.end()).size() == kPackets;
    };
    while (!seen_all()) {
      const auto taken = b->next(5s);
      if (!taken) break;
      const std::uint32_t packet = ntohl(taken->imm_data);
      in_order = in_order && (arrived.empty() || *arrived.rbegin() <= packet);
      arrived.insert(packet);
    }
  }
  EXPECT_EQ(std::set<std::uint32_t>(arrived.begin(), arrived.end()).size(), 100u) << "nothing was lost";
  EXPECT_GT(arrived.size(), 100u);
  EXPECT_FALSE(in_order);
}

TEST_F(UnreliableConnection, AWriteWithoutAPostedReceiveIsNotWritten) {
  connect({.type = IBV_QPT_UC});
  a->fill(0, 1024, 4);
  b->fill(0, 1024, 5);
  a->post(a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1024));
  a->success();
  EXPECT_FALSE(b->next(100ms));
  EXPECT_TRUE(b->filled(0, 1024, 5));
  b->receive(1, 0, 0);
  a->post(a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0));
  EXPECT_EQ(b->success().byte_len, 0u) << "a fence, and the connection lives";
}

TEST_F(UnreliableConnection, CannotRead) {
  connect({.type = IBV_QPT_UC});
  a->post(a->request(IBV_WR_RDMA_READ, 0, 100));
  const ibv_wc failed = a->completion();
  EXPECT_EQ(failed.status, IBV_WC_LOC_QP_OP_ERR);
  EXPECT_NE(a->pair->explain(failed).message.find("cannot do"), std::string::npos);
}

TEST_F(Datagrams, ArriveBehind40BytesWithTheTrafficClassOfTheirPacket) {
  connect({.type = IBV_QPT_UD});
  address_peer(26 << 2);
  a->fill(0, 60, 3);
  a->fill(4096, 900, 4);
  b->receive(1, 0, kGrhBytes + 4096);
  ibv_sge pieces[] = {a->region.slice(0, 60), a->region.slice(4096, 900)};
  ibv_send_wr send = datagram(0, 1);
  send.sg_list = pieces;
  send.num_sge = 2;
  a->post(send);
  a->success();
  const ibv_wc received = b->success();
  EXPECT_EQ(received.byte_len, kGrhBytes + 960);
  EXPECT_TRUE(received.wc_flags & IBV_WC_GRH);
  EXPECT_EQ(received.src_qp, a->pair->number());
  EXPECT_EQ(ntohl(received.imm_data), 7u);
  EXPECT_TRUE(b->filled(kGrhBytes, 60, 3));
  EXPECT_TRUE(b->filled(kGrhBytes + 60, 900, 4));
  // Of IPv4, whose header is half as long as IPv6's, the last 20 of the 40 bytes are it.
  EXPECT_EQ(std::to_integer<int>(*b->bytes(20)), 0x45);
  EXPECT_EQ(std::to_integer<int>(*b->bytes(21)) & 0xfc, 26 << 2) << "DSCP 26 on the wire";
  EXPECT_EQ(std::memcmp(b->bytes(32), a->gid.gid.bytes.data() + 12, 4), 0) << "the sender's address";
}

TEST_F(Datagrams, WithoutAPostedReceiveTheyAreGone) {
  connect({.type = IBV_QPT_UD});
  address_peer();
  a->post(datagram(0, 100));
  a->success();
  EXPECT_FALSE(b->next(100ms));
  b->receive(1, 0, 4096);
  EXPECT_FALSE(b->next(100ms));
  a->post(datagram(0, 200));
  EXPECT_EQ(b->success().byte_len, kGrhBytes + 200);
}

TEST_F(Datagrams, NeedTheKeyOfTheReceiver) {
  connect({.type = IBV_QPT_UD});
  address_peer();
  b->receive(1, 0, 4096);
  ibv_send_wr send = datagram(0, 100);
  send.wr.ud.remote_qkey = kQKey + 1;
  a->post(send);
  a->success();
  EXPECT_FALSE(b->next(100ms));
}

}  // namespace
}  // namespace clustar::tests
