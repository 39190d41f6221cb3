// The cache of registrations, rule by rule.
#include "gdr/core/mr_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "tests/unit/gdr/fake_registrar.h"

namespace clustar::gdr {
namespace {

using ::testing::HasSubstr;

class GdrMrCache : public ::testing::Test {
 protected:
  MrCache::Lease take(const MemoryRef& memory, std::uint32_t access = kWrite, std::optional<BufferId> buffer = {}) {
    auto lease = cache.acquire(memory, access, buffer);
    EXPECT_TRUE(lease) << (lease ? "" : lease.error().message);
    return lease ? std::move(*lease) : MrCache::Lease();
  }
  std::string refusal(const MemoryRef& memory, std::optional<BufferId> buffer = {}) {
    const auto lease = cache.acquire(memory, kWrite, buffer);
    EXPECT_FALSE(lease);
    if (lease) return "";
    EXPECT_EQ(lease.error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(registrar.made, 0);
    return lease.error().message;
  }

  FakeRegistrar registrar;
  MrCache cache{registrar, PageSizes{}};
};

TEST_F(GdrMrCache, WhatLiesWithinALiveRegistrationSharesIt) {
  const auto whole = take(at(0x10000, 0x4000));
  const auto part = take(at(0x11000, 0x1000));
  const auto same = take(at(0x10000, 0x4000));
  EXPECT_EQ(registrar.made, 1);
  EXPECT_EQ(&part.registration(), &whole.registration());
  EXPECT_EQ(&same.registration(), &whole.registration());
  EXPECT_EQ(part.offset(), 0x1000u);
  EXPECT_EQ(cache.counts().hits, 2u);
  EXPECT_EQ(cache.counts().misses, 1u);
  EXPECT_EQ(cache.counts().leases, 3u);
}

TEST_F(GdrMrCache, TheLastLeaseDeregisters) {
  auto first = take(at(0x10000, 0x1000));
  auto second = take(at(0x10000, 0x1000));
  first.end();
  EXPECT_EQ(registrar.live, 1);
  second.end();
  second.end();
  EXPECT_EQ(registrar.live, 0);
  EXPECT_EQ(cache.counts().entries, 0u);
  EXPECT_EQ(cache.counts().leases, 0u);
  const auto again = take(at(0x10000, 0x1000));
  EXPECT_EQ(registrar.made, 2) << "nothing is kept for later";
}

TEST_F(GdrMrCache, LeasesMove) {
  auto first = take(at(0x10000, 0x1000));
  auto moved = std::move(first);
  EXPECT_TRUE(first.empty());
  moved = take(at(0x20000, 0x1000));
  EXPECT_EQ(registrar.live, 1) << "what it was of before has ended";
  moved = MrCache::Lease();
  EXPECT_EQ(registrar.live, 0);
}

TEST_F(GdrMrCache, UnalignedMemoryIsWidenedToPages) {
  const auto host = take(at(0x10ffe, 4));
  EXPECT_EQ(registration_of(host).first(), 0x10000u);
  EXPECT_EQ(registration_of(host).pages.length, 0x2000u);
  EXPECT_EQ(host.offset(), 0xffeu);
  const auto device = take(at(0x123456, 0x10, MemoryKind::kCuda));
  EXPECT_EQ(registration_of(device).first(), 0x120000u);
  EXPECT_EQ(registration_of(device).pages.length, 0x10000u);
  EXPECT_EQ(device.offset(), 0x3456u);
  MemoryRef named = dma_buf(0x1800, 0x1000);
  named.address = reinterpret_cast<std::byte*>(0x7001800);
  const auto exported = take(named, kWrite, BufferId{1, 2});
  EXPECT_EQ(registration_of(exported).pages.offset, 0x1000u);
  EXPECT_EQ(registration_of(exported).pages.length, 0x2000u);
  EXPECT_EQ(registration_of(exported).pages.address, reinterpret_cast<std::byte*>(0x7001000));
  EXPECT_EQ(exported.offset(), 0x800u);
}

TEST_F(GdrMrCache, NeighboursOnAPageShareIt) {
  const auto one = take(at(0x10010, 0x20));
  const auto other = take(at(0x10800, 0x20));
  EXPECT_EQ(registrar.made, 1);
  EXPECT_EQ(other.offset(), 0x800u);
}

TEST_F(GdrMrCache, OverlappingWithoutLyingWithinIsRegisteredByItself) {
  const auto low = take(at(0x10000, 0x3000));
  const auto high = take(at(0x12000, 0x3000));
  const auto around = take(at(0xf000, 0x9000));
  EXPECT_EQ(registrar.live, 3);
  EXPECT_EQ(&take(at(0x12000, 0x1000)).registration(), &around.registration()) << "of several the one that ends last";
}

// What contains the range begins before others, which end before it.
TEST_F(GdrMrCache, ShortOnesBetweenHideNothing) {
  std::vector<MrCache::Lease> leases;
  for (std::uint64_t i = 0; i < 20; ++i) leases.push_back(take(at(0x20000 + i * 0x2000, 0x1000)));
  const auto around = take(at(0x10000, 0x100000));
  const int made = registrar.made;
  const auto within = take(at(0x20000 + 15 * 0x2000, 0x1800));
  EXPECT_EQ(registrar.made, made);
  EXPECT_EQ(&within.registration(), &around.registration());
  // Each is found without the other.
  leases.clear();
  EXPECT_EQ(&take(at(0x50000, 0x1000)).registration(), &around.registration());
  EXPECT_EQ(registrar.live, 1);
}

TEST_F(GdrMrCache, OnlyEqualAccessAndKindAndBufferShare) {
  const auto reading = take(at(0x10000, 0x1000), kRead);
  const auto writing = take(at(0x10000, 0x1000), kWrite);
  const auto device = take(at(0x10000, 0x10000, MemoryKind::kCuda));
  const auto one = take(dma_buf(0x10000, 0x1000), kWrite, BufferId{1, 7});
  const auto other = take(dma_buf(0x10000, 0x1000), kWrite, BufferId{1, 8});
  EXPECT_EQ(registrar.live, 5);
  const auto same = take(dma_buf(0x10000, 0x1000, 12), kWrite, BufferId{1, 7});
  EXPECT_EQ(registrar.live, 5) << "another descriptor of the same buffer";
  // A host lease with an id that means nothing to it.
  const auto host = take(at(0x10000, 0x1000), kWrite, BufferId{1, 7});
  EXPECT_EQ(&host.registration(), &writing.registration());
}

// The pages outside the lease that lives may have gone with the lease that covered them.
TEST_F(GdrMrCache, WhatNoLeaseCoversAnyMoreIsNotShared) {
  auto whole = take(at(0x10000, 0x4000));
  auto part = take(at(0x11000, 0x1000));
  whole.end();
  EXPECT_EQ(registrar.live, 1) << "the part's";
  EXPECT_EQ(cache.counts().retired, 1u);
  const auto elsewhere = take(at(0x12000, 0x1000));
  EXPECT_NE(&elsewhere.registration(), &part.registration());
  const auto all = take(at(0x10000, 0x4000));
  EXPECT_NE(&all.registration(), &part.registration());
  EXPECT_EQ(registrar.live, 3);
  part.end();
  EXPECT_EQ(registrar.live, 2);
  EXPECT_EQ(cache.counts().retired, 0u);
}

TEST_F(GdrMrCache, ARefusalLeavesNothing) {
  registrar.refuse = true;
  const auto refused = cache.acquire(at(0x10000, 0x1000), kWrite);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "the NIC refuses");
  EXPECT_EQ(cache.counts().refused, 1u);
  EXPECT_EQ(cache.counts().entries, 0u);
  registrar.refuse = false;
  EXPECT_FALSE(take(at(0x10000, 0x1000)).empty());
}

TEST_F(GdrMrCache, NoBytesNeedNoRegistration) {
  EXPECT_TRUE(take(at(0, 0)).empty());
  EXPECT_TRUE(take(dma_buf(0, 0, -1)).empty());
  EXPECT_EQ(registrar.made, 0);
  EXPECT_EQ(cache.counts().leases, 0u);
}

TEST_F(GdrMrCache, ImpossibleMemoryIsRefused) {
  constexpr std::uint64_t top = std::numeric_limits<std::uint64_t>::max();
  EXPECT_THAT(refusal(at(0x1000, top)), HasSubstr("end behind 0xfffffffffffff000, the last that is allowed"));
  EXPECT_THAT(refusal(at(top, 1)), HasSubstr("end behind"));
  EXPECT_THAT(refusal(at(top - 0x1000, 0x1001)), HasSubstr("end behind")) << "its last page would wrap";
  EXPECT_THAT(refusal(at(top - 0xffff, 1, MemoryKind::kCuda)), HasSubstr("end behind 0xffffffffffff0000"));
  EXPECT_THAT(refusal(dma_buf(top - 0xfff, 0x1000), BufferId{}), HasSubstr("end behind"));
  EXPECT_THAT(refusal(at(0, 0x1000)), HasSubstr("at address 0"));
  EXPECT_THAT(refusal(dma_buf(0, 0x1000, -1), BufferId{}), HasSubstr("descriptor -1 of a dma-buf; an open one"));
  EXPECT_THAT(refusal(dma_buf(0, 0x1000)), HasSubstr("without an id"));
  EXPECT_THAT(refusal(at(0x1000, 1, static_cast<MemoryKind>(0x7f))), HasSubstr("unknown kind 127"));
  // The last page that there can be.
  EXPECT_FALSE(take(at(top - 0x1fff, 0x1000)).empty());
}

TEST_F(GdrMrCache, WithinALeaseOfAllNothingIsRegistered) {
  auto all = take(at(0x100000, 0x100000));
  for (std::uint64_t i = 0; i < 100; ++i) {
    const auto lease = take(at(0x100000 + i * 0x1100, 0x1000));
    EXPECT_EQ(lease.offset(), i * 0x1100);
  }
  EXPECT_EQ(registrar.made, 1);
  EXPECT_EQ(registrar.live, 1);
  all.end();
  EXPECT_EQ(registrar.live, 0);
}

}  // namespace
}  // namespace clustar::gdr
