// What a collective of NCCL's leaves behind when it fails: over an NCCL and a CUDA that are counters in this file.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "bench/proxy/bootstrap.h"
#include "bench/trainer/nccl/collective.h"

namespace clustar::bench::trainer {
namespace {

using std::chrono::milliseconds;

// A device whose work ends only after an abort, and some looks later: its copies are behind a kernel.
struct FakeDevice {
  int looks_after_abort = 0;  // until the stream is empty; below 0: it never is
  bool aborted = false;
  bool empty = true;
  int freed = 0;
  int freed_while_busy = 0;
  int type = -1;           // of the latest all-reduce
  std::size_t copied = 0;  // bytes of the latest copy
};
FakeDevice fake_device;

int free_on_fake_device() {
  ++fake_device.freed;
  if (!fake_device.empty) ++fake_device.freed_while_busy;
  return kCudaSuccess;
}

int query_fake_device() {
  if (fake_device.empty) return kCudaSuccess;
  if (fake_device.aborted && fake_device.looks_after_abort-- == 0) fake_device.empty = true;
  return fake_device.empty ? kCudaSuccess : kCudaNotReady;
}

NcclLibrary fake_library() {
  static int somewhere = 0;
  NcclLibrary library;
  library.nccl.get_unique_id = [](NcclUniqueId*) { return kNcclSuccess; };
  library.nccl.comm_init_rank_config = [](void** comm, int, NcclUniqueId, int, NcclConfig*) {
    *comm = &somewhere;
    return kNcclSuccess;
  };
  library.nccl.comm_get_async_error = [](void*, int* error) { return *error = kNcclSuccess; };
  library.nccl.comm_finalize = library.nccl.comm_destroy = [](void*) { return kNcclSuccess; };
  library.nccl.comm_abort = [](void*) {
    fake_device.aborted = true;
    return kNcclSuccess;
  };
  library.nccl.all_reduce = [](const void*, void*, std::size_t, int type, int, void*, void*) {
    fake_device.empty = false;
    fake_device.type = type;
    return kNcclSuccess;
  };
  library.nccl.get_error_string = [](int) { return "an error"; };
  library.nccl.get_last_error = [](void*) { return ""; };
  library.cuda.get_device_count = [](int* count) {
    *count = 1;
    return kCudaSuccess;
  };
  library.cuda.set_device = [](int) { return kCudaSuccess; };
  library.cuda.malloc = [](void** memory, std::size_t) {
    *memory = &somewhere;
    return kCudaSuccess;
  };
  library.cuda.free = library.cuda.host_unregister = [](void*) { return free_on_fake_device(); };
  library.cuda.stream_destroy = [](void*) { return free_on_fake_device(); };
  library.cuda.host_register = [](void*, std::size_t, unsigned) { return kCudaSuccess; };
  library.cuda.memcpy_async = [](void*, const void*, std::size_t bytes, int, void*) {
    fake_device.copied = bytes;
    return kCudaSuccess;
  };
  library.cuda.stream_create = library.cuda.event_create = [](void** made, unsigned) {
    *made = &somewhere;
    return kCudaSuccess;
  };
  library.cuda.event_destroy = [](void*) { return kCudaSuccess; };
  library.cuda.event_record = [](void*, void*) { return kCudaSuccess; };
  library.cuda.event_query = [](void*) { return query_fake_device(); };
  library.cuda.launch_host_function = [](void*, void (*call)(void*), void* argument) {
    call(argument);
    return kCudaSuccess;
  };
  library.cuda.get_last_error = [] { return kCudaSuccess; };
  library.cuda.get_error_string = [](int) { return "an error"; };
  return library;
}

class FailedNcclCollective : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_device = {};
    bootstrap_ = *proxy::Bootstrap::join({.rank = 0,
                                          .size = 1,
                                          .root = "127.0.0.1:1",
                                          .join_timeout = milliseconds(1000),
                                          .call_timeout = milliseconds(1000)});
    collective_ = *create_nccl_collective(fake_library(), *bootstrap_,
                                          {.stall_timeout = milliseconds(50), .close_timeout = milliseconds(200)});
    pending_ = collective_->all_reduce(collective_->map(gradients_.data(), gradients_.size() * sizeof(float)),
                                       gradients_.size(), Precision::kFloat32, {}, nullptr);
  }

  std::vector<float> gradients_ = std::vector<float>(16);
  std::unique_ptr<proxy::Bootstrap> bootstrap_;
  std::unique_ptr<Collective> collective_;
  std::unique_ptr<Pending> pending_;
};

TEST_F(FailedNcclCollective, HasEndedItsCopiesWhenWaitReturns) {
  fake_device.looks_after_abort = 20;
  EXPECT_FALSE(pending_->wait());  // the stall timeout
  EXPECT_TRUE(fake_device.empty);
  EXPECT_TRUE(collective_->close());
  EXPECT_EQ(fake_device.freed, 3);
  EXPECT_EQ(fake_device.freed_while_busy, 0);
}

// The numbers of ncclDataType_t: ncclFloat16, ncclFloat32, ncclBfloat16.
TEST_F(FailedNcclCollective, IsAskedForTheTypeAndItsBytes) {
  for (const auto& [precision, type] :
       {std::pair(Precision::kFloat16, 6), std::pair(Precision::kFloat32, 7), std::pair(Precision::kBfloat16, 9)}) {
    const auto mapped = collective_->map(gradients_.data(), gradients_.size() * sizeof(float));
    const auto pending = collective_->all_reduce(mapped, gradients_.size(), precision, {}, nullptr);
    EXPECT_EQ(fake_device.type, type);
    EXPECT_EQ(fake_device.copied, gradients_.size() * element_bytes(precision));
  }
  fake_device.looks_after_abort = 0;
}

TEST_F(FailedNcclCollective, AfterAnAbortIsNoSuccessThoughItsStreamIsEmpty) {
  fake_device.looks_after_abort = 20;
  collective_->abort();
  EXPECT_TRUE(fake_device.empty);
  EXPECT_FALSE(pending_->wait());
}

TEST_F(FailedNcclCollective, LeavesItsMemoryToADeviceThatNeverEnds) {
  fake_device.looks_after_abort = -1;
  const auto begin = std::chrono::steady_clock::now();
  const auto outcome = pending_->wait();
  ASSERT_FALSE(outcome);
  EXPECT_FALSE(collective_->close());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(5000));
  EXPECT_EQ(fake_device.freed, 0);
}

}  // namespace
}  // namespace clustar::bench::trainer
