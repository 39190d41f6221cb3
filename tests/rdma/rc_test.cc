// Reliable connections: sends, writes with immediate data, reads, atomics, and repair of what the network loses.
#include <arpa/inet.h>

#include <cstring>

#include "tests/rdma/two_ends.h"

namespace clustar::tests {
namespace {

class ReliableVerbs : public TwoEnds {};

TEST_F(ReliableVerbs, SendArrivesInThePostedReceive) {
  connect();
  a->fill(0, 70'000, 1);
  b->receive(9, 4096, 100'000);
  a->post(a->request(IBV_WR_SEND, 0, 70'000));
  EXPECT_EQ(a->success().opcode, IBV_WC_SEND);
  const ibv_wc received = b->success();
  EXPECT_EQ(received.opcode, IBV_WC_RECV);
  EXPECT_EQ(received.wr_id, 9u);
  EXPECT_EQ(received.byte_len, 70'000u);
  EXPECT_TRUE(b->filled(4096, 70'000, 1));
}

TEST_F(ReliableVerbs, WriteWithImmediateLandsInPlaceAndTakesAReceive) {
  connect({.mtu = IBV_MTU_4096});
  a->fill(100, 300'000, 2);
  b->receive(5, 0, 0);
  ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 100, 300'000, 50'000);
  write.imm_data = htonl(0xfeedbeef);
  a->post(write);
  a->success();
  const ibv_wc received = b->success();
  EXPECT_EQ(received.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(ntohl(received.imm_data), 0xfeedbeefu);
  EXPECT_EQ(received.byte_len, 300'000u);
  EXPECT_TRUE(b->filled(50'000, 300'000, 2));
}

TEST_F(ReliableVerbs, AWriteOfNothingCarriesItsImmediate) {
  connect();
  b->receive(6, 0, 0);
  ibv_send_wr fence = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 0);
  fence.imm_data = htonl(42);
  a->post(fence);
  a->success();
  const ibv_wc received = b->success();
  EXPECT_EQ(ntohl(received.imm_data), 42u);
  EXPECT_EQ(received.byte_len, 0u);
}

TEST_F(ReliableVerbs, ReadFetchesThePeersBytes) {
  connect();
  b->fill(0, 200'000, 3);
  a->post(a->request(IBV_WR_RDMA_READ, 10, 200'000));
  EXPECT_EQ(a->success().opcode, IBV_WC_RDMA_READ);
  EXPECT_TRUE(a->filled(10, 200'000, 3));
}

TEST_F(ReliableVerbs, AQueuePairConnectedToItselfReadsItsOwnMemory) {
  End self("rxe_a", {});
  self.connect(self.contact());
  self.fill(0, 4, 4);
  self.post(self.request(IBV_WR_RDMA_READ, 64, 4));
  self.success();
  EXPECT_TRUE(self.filled(64, 4, 4));
}

TEST_F(ReliableVerbs, FetchAndAddIsAtomic) {
  connect();
  std::uint64_t value = 40;
  std::memcpy(b->bytes(), &value, sizeof value);
  ibv_send_wr add = a->request(IBV_WR_ATOMIC_FETCH_AND_ADD, 8, 8);
  add.wr.atomic.remote_addr = b->region.address(0);
  add.wr.atomic.rkey = b->region.rkey();
  add.wr.atomic.compare_add = 2;
  a->post(add);
  a->success();
  std::memcpy(&value, a->bytes(8), sizeof value);
  EXPECT_EQ(value, 40u) << "what was there before, in the host's byte order";
  std::memcpy(&value, b->bytes(), sizeof value);
  EXPECT_EQ(value, 42u);
}

TEST_F(ReliableVerbs, InlineDataIsFreeWhenThePostReturns) {
  connect({.inline_bytes = 200});
  ASSERT_GE(a->pair->capacity().max_inline_data, 200u);
  a->fill(0, 200, 5);
  b->receive(1, 0, 200);
  ibv_send_wr send = a->request(IBV_WR_SEND, 0, 200);
  send.send_flags |= IBV_SEND_INLINE;
  a->post(send);
  a->fill(0, 200, 77);
  a->success();
  b->success();
  EXPECT_TRUE(b->filled(0, 200, 5));
}

TEST_F(ReliableVerbs, TwoPiecesOfMemoryAreOneMessage) {
  connect();
  a->fill(0, 96, 6);
  a->fill(5000, 1300, 7);
  b->receive(1, 0, 4096);
  ibv_sge pieces[] = {a->region.slice(0, 96), a->region.slice(5000, 1300)};
  ibv_send_wr send = a->request(IBV_WR_SEND, 0, 1);
  send.sg_list = pieces;
  send.num_sge = 2;
  a->post(send);
  a->success();
  EXPECT_EQ(b->success().byte_len, 1396u);
  EXPECT_TRUE(b->filled(0, 96, 6));
  EXPECT_TRUE(b->filled(96, 1300, 7));
}

TEST_F(ReliableVerbs, ASharedReceiveQueueServesSendsAndImmediates) {
  connect({.shared_receives = true});
  a->fill(0, 500, 8);
  b->receive(1, 0, 500);
  b->receive(2, 500, 500);
  a->post(a->request(IBV_WR_SEND, 0, 500));
  a->post(a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 100, 2000));
  a->success();
  a->success();
  EXPECT_EQ(b->success().wr_id, 1u);
  EXPECT_EQ(b->success().opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_TRUE(b->filled(0, 500, 8));
}

TEST_F(ReliableVerbs, SleepsOnAChannelUntilSomethingComes) {
  connect({.channel = true});
  using namespace std::chrono_literals;
  must(b->queue.arm());
  EXPECT_FALSE(must(b->queue.wait(20ms))) << "nothing was sent";
  b->receive(1, 0, 64);
  a->post(a->request(IBV_WR_SEND, 0, 64));
  EXPECT_TRUE(must(b->queue.wait(10s)));
  EXPECT_EQ(b->success().byte_len, 64u);
}

TEST_F(ReliableVerbs, LossReorderingAndDuplicationAreRepaired) {
  connect({.retry = {.timeout = 12, .retry_cnt = 7, .rnr_retry = 7}});
  const Netem trouble("delay 1ms reorder 90% loss 2% duplicate 2%");
  constexpr int kMessages = 60;
  constexpr std::size_t kBytes = 8192;
  a->fill(0, kBytes * 8, 9);
  for (int i = 0; i < kMessages; ++i) {
    b->receive(static_cast<std::uint64_t>(i), 0, 0);
    ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE_WITH_IMM, i % 8 * kBytes, kBytes, i % 8 * kBytes);
    write.imm_data = htonl(static_cast<std::uint32_t>(i));
    a->post(write);
  }
  for (int i = 0; i < kMessages; ++i) {
    EXPECT_EQ(ntohl(b->success().imm_data), static_cast<std::uint32_t>(i)) << "in order, each once";
    a->success();
  }
  EXPECT_TRUE(b->filled(0, kBytes * 8, 9));
}

}  // namespace
}  // namespace clustar::tests
