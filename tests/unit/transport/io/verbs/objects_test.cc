#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <type_traits>

#include "transport/base/file_descriptor.h"
#include "transport/io/verbs/queue_pair.h"

namespace clustar::transport::io::verbs {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

// An assignment would close what the children that live elsewhere, or further down in the same struct, are made of.
template <class... T>
constexpr bool kOnlyConstructed = ((std::is_move_constructible_v<T> && !std::is_move_assignable_v<T>)&&...);
static_assert(kOnlyConstructed<Device, ProtectionDomain, MemoryRegion, CompletionQueue, SharedReceiveQueue>);

gdr::MemoryRef dma_buf(std::uint64_t offset) { return {gdr::MemoryKind::kDmaBuf, nullptr, 4096, 3, offset}; }

TEST(VerbsMemory, ADmaBufIsAddressedFromItsOffsetWithinItsPage) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(first_address(dma_buf(0), IBV_ACCESS_LOCAL_WRITE).value(), 0u);
  EXPECT_EQ(first_address(dma_buf(5 * page), IBV_ACCESS_LOCAL_WRITE).value(), 0u);
  EXPECT_EQ(first_address(dma_buf(5 * page + 192), IBV_ACCESS_LOCAL_WRITE).value(), 192u);
  int here = 0;
  EXPECT_EQ(first_address(gdr::MemoryRef::host(&here, sizeof here), IBV_ACCESS_MW_BIND).value(),
            reinterpret_cast<std::uintptr_t>(&here));
}

TEST(VerbsMemory, WindowsInADmaBufAreRefusedByName) {
  const auto refused = first_address(dma_buf(0), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(refused.error().message, HasSubstr("IBV_ACCESS_MW_BIND"));
}

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read_end = FileDescriptor(ends[0]);
    write_end = FileDescriptor(ends[1]);
  }
  FileDescriptor read_end;
  FileDescriptor write_end;
};

TEST(VerbsWait, SaysWhetherSomethingCameOrNeverWill) {
  Pipe pipe;
  EXPECT_EQ(wait_readable(pipe.read_end.fd(), 0ns), ETIMEDOUT);
  EXPECT_EQ(wait_readable(pipe.read_end.fd(), -1s), ETIMEDOUT);
  EXPECT_EQ(write(pipe.write_end.fd(), "x", 1), 1);
  EXPECT_EQ(wait_readable(pipe.read_end.fd(), 10s), 0);
  // A pipe without a reader is what a removed device's channel looks like: POLLERR alone.
  pipe.read_end.close();
  EXPECT_EQ(wait_readable(pipe.write_end.fd(), 10s), EIO);
  EXPECT_EQ(wait_readable(1 << 20, 10s), EBADF);
}

TEST(VerbsWait, ASignalDoesNotShortenIt) {
  struct sigaction nothing {};
  nothing.sa_handler = [](int) {};
  struct sigaction before {};
  ASSERT_EQ(sigaction(SIGUSR1, &nothing, &before), 0);
  Pipe pipe;
  std::atomic<bool> done{false};
  const pthread_t waiter = pthread_self();
  std::thread sender([&] {
    while (!done) {
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(wait_readable(pipe.read_end.fd(), 50ms), ETIMEDOUT);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 50ms);
  done = true;
  sender.join();
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace clustar::transport::io::verbs
