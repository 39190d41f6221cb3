// Type-2 memory windows: the way to take a peer's right to write back while its packets may still be on their way.
#include <set>

#include "tests/rdma/two_ends.h"

namespace clustar::tests {
namespace {

class MemoryWindows : public TwoEnds {
 protected:
  // Binds 4,096 bytes of b's memory from 8,192 on, and returns the write that uses them.
  ibv_send_wr bind() {
    window = must(verbs::MemoryWindow::make(b->domain));
    bind_again();
    ibv_send_wr write = a->request(IBV_WR_RDMA_WRITE, 0, 1024, 8192);
    write.wr.rdma.rkey = window->rkey();
    return write;
  }
  void bind_again() {
    const ibv_send_wr request = must(window->bind(b->region, 8192, 4096, IBV_ACCESS_REMOTE_WRITE));
    b->post(request);
    window->posted(request);
    EXPECT_EQ(b->success().opcode, IBV_WC_BIND_MW);
  }
  void expect_refused(const ibv_send_wr& write) {
    b->fill(8192, 1024, 50);
    a->post(write);
    const ibv_wc failed = a->completion();
    EXPECT_EQ(failed.status, IBV_WC_REM_ACCESS_ERR) << ibv_wc_status_str(failed.status);
    EXPECT_NE(a->pair->explain(failed).message.find("invalidated"), std::string::npos);
    EXPECT_TRUE(b->filled(8192, 1024, 50)) << "nothing was written";
  }
  std::optional<verbs::MemoryWindow> window;
};

TEST_F(MemoryWindows, GivesWhatItWasBoundToAndNothingAfterItsInvalidation) {
  connect();
  const ibv_send_wr write = bind();
  a->fill(0, 1024, 1);
  a->post(write);
  a->success();
  EXPECT_TRUE(b->filled(8192, 1024, 1));

  b->post(window->invalidate());
  EXPECT_EQ(b->success().opcode, IBV_WC_LOCAL_INV);
  expect_refused(write);
}

TEST_F(MemoryWindows, ThePeerGivesItBackByASend) {
  connect();
  const ibv_send_wr write = bind();
  b->receive(3, 0, 64);
  ibv_send_wr done = a->request(IBV_WR_SEND_WITH_INV, 0, 64);
  done.invalidate_rkey = window->rkey();
  a->post(done);
  a->success();
  const ibv_wc received = b->success();
  // rdma_rxe sets the kernel's flag of that name, which is another bit here.
  EXPECT_TRUE(received.wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK));
  EXPECT_EQ(received.invalidated_rkey, window->rkey());
  expect_refused(write);
}

TEST_F(MemoryWindows, CanBeBoundAgainWithAnotherKey) {
  connect();
  const ibv_send_wr old = bind();
  b->post(window->invalidate());
  b->success();
  bind_again();
  EXPECT_NE(window->rkey(), old.wr.rdma.rkey);
  ibv_send_wr write = old;
  write.wr.rdma.rkey = window->rkey();
  a->post(write);
  a->success();
  expect_refused(old);
}

TEST_F(MemoryWindows, ABindThatWasNotPostedTakesNoKey) {
  connect();
  window = must(verbs::MemoryWindow::make(b->domain));
  const std::uint32_t key = window->rkey();
  EXPECT_TRUE(window->bind(b->region, 0, 4096, IBV_ACCESS_REMOTE_WRITE));
  EXPECT_EQ(window->rkey(), key);
  EXPECT_EQ(window->binds_left(), verbs::MemoryWindow::kMostBinds);
}

// After 256 binds a key would come again, which a late packet may still have.
TEST_F(MemoryWindows, NoKeyComesTwice) {
  connect();
  window = must(verbs::MemoryWindow::make(b->domain));
  std::set<std::uint32_t> keys{window->rkey()};
  for (int bind = 0; bind < verbs::MemoryWindow::kMostBinds; ++bind) {
    bind_again();
    EXPECT_TRUE(keys.insert(window->rkey()).second) << bind;
    b->post(window->invalidate());
    b->success();
  }
  EXPECT_EQ(window->binds_left(), 0);
  const auto beyond = window->bind(b->region, 8192, 4096, IBV_ACCESS_REMOTE_WRITE);
  ASSERT_FALSE(beyond);
  EXPECT_NE(beyond.error().message.find("make another window"), std::string::npos);
}

// What UC needs of them: a late write is dropped in silence, and the connection lives on. rdma_rxe of Linux 6.1 cannot
// invalidate by a work request of a UC queue pair, so here the window is freed, which ends its access as well.
TEST_F(MemoryWindows, OverUcALateWriteIsDroppedInSilence) {
  connect({.type = IBV_QPT_UC});
  ibv_send_wr write = bind();
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  for (std::uint64_t id = 0; id < 3; ++id) b->receive(id, 0, 0);
  a->fill(0, 1024, 2);
  a->post(write);
  a->success();
  b->success();
  EXPECT_TRUE(b->filled(8192, 1024, 2));

  window.reset();
  b->fill(8192, 1024, 51);
  a->post(write);
  a->success();
  EXPECT_FALSE(b->next(std::chrono::milliseconds(200)));
  EXPECT_TRUE(b->filled(8192, 1024, 51)) << "nothing was written";

  a->post(a->request(IBV_WR_RDMA_WRITE_WITH_IMM, 0, 1024));
  a->success();
  b->success();
  EXPECT_TRUE(b->filled(0, 1024, 2)) << "what is allowed still works";
}

}  // namespace
}  // namespace clustar::tests
