// The cache of registrations with real descriptors, and several threads.
#include "gdr/registration_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>
#include <vector>

#include "tests/own_process.h"
#include "tests/unit/gdr/fake_registrar.h"
#include "transport/base/file_descriptor.h"
#include "transport/base/rng.h"

namespace clustar::gdr {
namespace {

using ::testing::HasSubstr;
using tests::open_descriptors;

// A memfd has an inode of its own, as a dma-buf has.
FileDescriptor some_buffer() { return FileDescriptor(memfd_create("buffer", MFD_CLOEXEC)); }

TEST(GdrRegistrationCache, KeepsADuplicateOfTheDescriptor) {
  FakeRegistrar registrar;
  RegistrationCache cache(registrar);
  FileDescriptor given = some_buffer();
  const BufferId id = *buffer_id(given.fd());
  auto lease = cache.acquire(dma_buf(0, 0x1000, given.fd()), kWrite);
  ASSERT_TRUE(lease);
  const int kept = registration_of(*lease).pages.fd;
  EXPECT_NE(kept, given.fd());
  given.close();
  EXPECT_EQ(buffer_id(kept), id) << "open, and of the same buffer";
  EXPECT_NE(fcntl(kept, F_GETFD) & FD_CLOEXEC, 0);
  lease->end();
  EXPECT_EQ(fcntl(kept, F_GETFD), -1) << "closed with the registration";
}

TEST(GdrRegistrationCache, DescriptorsOfOneBufferShareAndOthersDoNot) {
  FakeRegistrar registrar;
  RegistrationCache cache(registrar);
  const FileDescriptor one = some_buffer();
  const FileDescriptor again(fcntl(one.fd(), F_DUPFD_CLOEXEC, 0));
  const FileDescriptor other = some_buffer();
  const auto first = cache.acquire(dma_buf(0, 0x4000, one.fd()), kWrite);
  const auto same = cache.acquire(dma_buf(0x1000, 0x1000, again.fd()), kWrite);
  EXPECT_EQ(registrar.made, 1);
  const auto second = cache.acquire(dma_buf(0, 0x4000, other.fd()), kWrite);
  EXPECT_EQ(registrar.made, 2);
  // An id of the caller's wins.
  const auto named = cache.acquire(dma_buf(0, 0x4000, one.fd()), kWrite, BufferId{~0ull, 1});
  const auto named_too = cache.acquire(dma_buf(0, 0x4000, other.fd()), kWrite, BufferId{~0ull, 1});
  EXPECT_EQ(registrar.made, 3);
  ASSERT_TRUE(named && named_too);
  EXPECT_EQ(&named->registration(), &named_too->registration());
}

TEST(GdrRegistrationCache, LeavesNoDescriptorBehind) {
  FakeRegistrar registrar;
  RegistrationCache cache(registrar);
  const std::size_t before = open_descriptors();
  for (int cycle = 0; cycle < 1000; ++cycle) {
    FileDescriptor given = some_buffer();
    registrar.refuse = cycle % 3 == 0;
    auto lease = cache.acquire(dma_buf(0, 0x1000, given.fd()), kWrite);
    EXPECT_EQ(lease.has_value(), !registrar.refuse);
    registrar.refuse = false;
    const auto all = cache.acquire(dma_buf(0, 0x8000, given.fd()), kWrite);
    ASSERT_TRUE(all);
    given.close();
  }
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(registrar.live, 0);
}

TEST(GdrRegistrationCache, SaysWhatIsWrongWithADescriptor) {
  FakeRegistrar registrar;
  RegistrationCache cache(registrar);
  FileDescriptor given = some_buffer();
  const int closed = given.fd();
  given.close();
  const auto lease = cache.acquire(dma_buf(0, 0x1000, closed), kWrite);
  ASSERT_FALSE(lease);
  EXPECT_EQ(lease.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(lease.error().message, HasSubstr("Bad file descriptor"));
  // With an id of the caller's only the duplicate fails.
  const auto named = cache.acquire(dma_buf(0, 0x1000, closed), kWrite, BufferId{1, 1});
  ASSERT_FALSE(named);
  EXPECT_EQ(named.error().code, ErrorCode::kSystem);
  EXPECT_THAT(cache.acquire(dma_buf(0, 0x1000, -1), kWrite).error().message, HasSubstr("descriptor -1"));
  EXPECT_TRUE(cache.acquire(dma_buf(0, 0, -1), kWrite)->empty());
}

TEST(GdrRegistrationCache, MayBeUsedByManyThreads) {
  FakeRegistrar registrar;
  RegistrationCache cache(registrar);
  std::vector<std::thread> threads;
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    threads.emplace_back([&cache, seed] {
      Rng random(seed);
      std::vector<RegistrationCache::Lease> held(8);
      for (int i = 0; i < 5000; ++i) {
        auto lease = cache.acquire(at(0x1000 * (1 + random.below(32)), 0x1000 * (1 + random.below(8))), kWrite);
        if (lease) held[random.below(held.size())] = std::move(*lease);
        (void)cache.counts();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registrar.live, 0);
  EXPECT_EQ(cache.counts().entries, 0u);
}

}  // namespace
}  // namespace clustar::gdr
