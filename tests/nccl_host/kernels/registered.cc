#include "tests/nccl_host/kernels/registered.h"

#include "tests/nccl_host/kernels/simple.h"

namespace nccl_host {
namespace {

constexpr int64_t kTaken = -1;  // by the proxy thread, which has sent it

int64_t& SizeAt(const Connection& connection, uint64_t step) {
  return static_cast<FifoEntry*>(connection.fifo)[step % kSlots].size;
}

}  // namespace

Registered::Registered(Connection* receive, Connection* send, Poll poll) : receive_(receive), send_(send), poll_(poll) {
  if (!receive) return;
  Release(SizeAt(*receive, receive->step), int64_t{0});  // the memory may be written to from now on
  Release(*receive->head, receive->step);
}

void Registered::Do(const Step& step) {
  if (step.receive) {
    poll_.Until([&] { return Acquire(*receive_->tail) > receive_->step; });
    Release(*receive_->head, ++receive_->step);
  }
  if (step.send) {
    poll_.Until([&] { return Acquire(*send_->head) + kSlots > send_->step; });
    Release(SizeAt(*send_, send_->step), static_cast<int64_t>(step.count));
    Release(*send_->tail, ++send_->step);
  }
}

void Registered::Finish() {
  if (!send_) return;
  poll_.Until([&] { return Acquire(SizeAt(*send_, send_->step - 1)) == kTaken; });
}

}  // namespace nccl_host
