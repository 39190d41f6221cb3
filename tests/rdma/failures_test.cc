// What goes wrong is said in words that help: which call or peer, and what to check.
#include <gmock/gmock.h>

#include "tests/rdma/two_ends.h"
#include "transport/io/verbs/dmabuf_probe.h"

namespace clustar::tests {
namespace {

using namespace std::chrono_literals;
using Now = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class VerbsFailures : public TwoEnds {
 protected:
  std::string explained() const { return a->pair->explain(failed).message; }
  ibv_wc failed{};
};

TEST_F(VerbsFailures, AWrongKeyIsRefusedByThePeerByName) {
  connect();
  ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE, 0, 100);
  write.wr.rdma.rkey ^= 0x100;
  a->post(write);
  failed = a->completion();
  EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR);
  EXPECT_THAT(explained(), AllOf(HasSubstr("wrong rkey"), HasSubstr("rxe_a port 1 GID index 1"), HasSubstr("10.9.0.2"),
                                 HasSubstr("queue pair " + std::to_string(b->pair->number()))));
  EXPECT_EQ(must(a->pair->state()), IBV_QPS_ERR);
}

TEST_F(VerbsFailures, BeyondTheRegionIsRefused) {
  connect();
  a->post(a->request(IBV_WR_RDMA_WRITE, 0, 100, b->memory.size() - 99));
  EXPECT_EQ(a->completion().status, IBV_WC_REM_ACCESS_ERR);
}

TEST_F(VerbsFailures, OnlyTheFirstFailureTellsTheCauseAndTheRestIsFlushed) {
  connect();
  ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE, 0, 100);
  write.wr.rdma.rkey ^= 0x100;
  a->post(write);
  EXPECT_EQ(a->completion().status, IBV_WC_REM_ACCESS_ERR);
  a->post(a->request(IBV_WR_SEND, 0, 100));
  failed = a->completion();
  EXPECT_EQ(failed.status, IBV_WC_WR_FLUSH_ERR);
  EXPECT_THAT(explained(), HasSubstr("first error"));
}

TEST_F(VerbsFailures, WithoutAReceiveTheSenderHearsItAfterItsRepetitions) {
  connect({.retry = {.timeout = 14, .retry_cnt = 7, .rnr_retry = 2}});
  a->post(a->request(IBV_WR_SEND, 0, 100));
  failed = a->completion();
  EXPECT_EQ(failed.status, IBV_WC_RNR_RETRY_EXC_ERR);
  EXPECT_THAT(explained(), HasSubstr("2 repetitions"));
}

TEST_F(VerbsFailures, AMessageLongerThanItsReceiveFailsBothEnds) {
  connect();
  b->receive(1, 0, 100);
  a->post(a->request(IBV_WR_SEND, 0, 101));
  // The specification's, and what rdma_rxe makes of them.
  EXPECT_THAT(a->completion().status, AnyOf(IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_OP_ERR));
  EXPECT_THAT(b->completion().status, AnyOf(IBV_WC_LOC_LEN_ERR, IBV_WC_LOC_QP_OP_ERR));
}

TEST_F(VerbsFailures, AForgottenRegistrationIsOurOwnMistake) {
  connect();
  ibv_send_wr send = a->request(IBV_WR_SEND, 0, 100);
  send.sg_list->lkey ^= 0x100;
  a->post(send);
  failed = a->completion();
  EXPECT_THAT(failed.status, AnyOf(IBV_WC_LOC_PROT_ERR, IBV_WC_LOC_QP_OP_ERR));
  EXPECT_EQ(a->pair->explain(failed).code, ErrorCode::kInternal);
}

// 67 ms per packet, of which it sends 1 + 3.
TEST_F(VerbsFailures, ALinkThatGoesDownIsAnErrorInBoundedTime) {
  const verbs::RetryOptions retry{.timeout = 14, .retry_cnt = 3, .rnr_retry = 7};
  connect({.retry = retry});
  const LinkDown down;
  const auto start = Now::now();
  a->post(a->request(IBV_WR_RDMA_WRITE, 0, 100));
  failed = a->completion(20s);
  const auto took = Now::now() - start;
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
  EXPECT_THAT(explained(), AllOf(HasSubstr("4 transmissions"), HasSubstr("10.9.0.2 queue pair")));
  EXPECT_GE(took, verbs::retry_horizon(retry) / 2);
  EXPECT_LE(took, verbs::retry_horizon(retry) * 10) << "a busy emulated processor";
  RecordProperty("milliseconds", static_cast<int>(took / 1ms));
}

TEST_F(VerbsFailures, APeersClosedQueuePairIsAnErrorInBoundedTime) {
  connect({.retry = {.timeout = 14, .retry_cnt = 2, .rnr_retry = 7}});
  b->pair.reset();
  a->post(a->request(IBV_WR_RDMA_WRITE, 0, 100));
  failed = a->completion(5s);
  EXPECT_EQ(failed.status, IBV_WC_RETRY_EXC_ERR);
}

TEST_F(VerbsFailures, PortEventsNameThePort) {
  connect();
  while (must(a->device.poll_event())) {
  }
  std::string seen;
  const auto gather = [&] {
    const auto deadline = Now::now() + 5s;
    while (Now::now() < deadline) {
      if (const auto event = must(a->device.poll_event())) {
        seen += event->text + "\n";
        if (event->type == IBV_EVENT_PORT_ERR || event->type == IBV_EVENT_PORT_ACTIVE) return event->type;
      }
    }
    return IBV_EVENT_DEVICE_FATAL;
  };
  {
    const LinkDown down;
    EXPECT_EQ(gather(), IBV_EVENT_PORT_ERR) << seen;
  }
  EXPECT_EQ(gather(), IBV_EVENT_PORT_ACTIVE) << seen;
  EXPECT_THAT(seen, HasSubstr("rxe_a port 1"));
}

TEST_F(VerbsFailures, AnEmptyGidIndexIsNamed) {
  connect();
  End other("rxe_a", {});
  const auto refused =
      other.pair->to_rtr({.path = {.peer = b->gid.gid, .gid_index = 3}, .peer_queue_pair = b->pair->number()});
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, AllOf(HasSubstr("to RTR"), HasSubstr("GID index 3"), HasSubstr("mlx5 habit")));
}

TEST_F(VerbsFailures, WhatCannotBeMadeIsExplained) {
  connect();
  EXPECT_THAT(verbs::Device::open("mlx5_9").error().message, AllOf(HasSubstr("rxe_a"), HasSubstr("rxe_b")));
  const auto huge = verbs::CompletionQueue::make(a->device, 1 << 20);
  ASSERT_FALSE(huge);
  EXPECT_THAT(huge.error().message, AllOf(HasSubstr("ibv_create_cq on rxe_a"), HasSubstr("max_cqe")));
  const auto unmapped =
      verbs::MemoryRegion::make(a->domain, gdr::MemoryRef::host(reinterpret_cast<void*>(4096), 4096), kAllAccess);
  ASSERT_FALSE(unmapped);
  EXPECT_THAT(unmapped.error().message, AllOf(HasSubstr("4096 bytes of host memory"), HasSubstr("not mapped")));
  const auto queueless = verbs::QueuePair::make(a->domain, {.send_queue = &a->queue});
  ASSERT_FALSE(queueless);
  EXPECT_EQ(queueless.error().code, ErrorCode::kInvalidArgument);
  const auto sleepless = a->queue.wait(1ms);
  ASSERT_FALSE(sleepless);
  EXPECT_THAT(sleepless.error().message, HasSubstr("without a channel"));
  const gdr::MemoryRef exported{gdr::MemoryKind::kDmaBuf, nullptr, 4096, 0, 0};
  const auto dma_buf = verbs::MemoryRegion::make(a->domain, exported, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_FALSE(dma_buf);
  EXPECT_THAT(dma_buf.error().message, HasSubstr("ibv_reg_dmabuf_mr"));
}

TEST_F(VerbsFailures, WhetherADeviceTakesDmaBufsIsFoundOutWithoutOne) {
  const auto probe = verbs::probe_dma_buf("rxe_a");
  ASSERT_TRUE(probe) << probe.error().message;
  EXPECT_FALSE(probe->supported) << probe->text;
  EXPECT_THAT(probe->text, HasSubstr("on rxe_a: errno 95 (EOPNOTSUPP)"));
  EXPECT_FALSE(verbs::probe_dma_buf("mlx5_9"));
}

}  // namespace
}  // namespace clustar::tests
