// Random operations on the cache of registrations beside a list that knows the same rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <list>
#include <map>
#include <vector>

#include "tests/unit/gdr/fake_registrar.h"
#include "transport/base/rng.h"

namespace clustar::gdr {
namespace {

// The same rules, found by looking at everything.
class Model {
 public:
  struct Entry {
    std::array<std::uint64_t, 3> space;
    std::uint64_t begin;
    std::uint64_t end;
    std::size_t leases;
    std::size_t covering;
  };
  struct Lease {
    std::list<Entry>::iterator entry;
    bool covers;
  };

  // Nothing: a registration has to be made.
  std::optional<Lease> find(const std::array<std::uint64_t, 3>& space, std::uint64_t begin, std::uint64_t end) {
    auto best = entries.end();
    for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
      if (entry->covering == 0 || entry->space != space || entry->begin > begin || entry->end < end) continue;
      if (best == entries.end() || entry->end > best->end || (entry->end == best->end && entry->begin < best->begin)) {
        best = entry;
      }
    }
    if (best == entries.end()) return std::nullopt;
    return lease(best, begin, end);
  }
  Lease add(const std::array<std::uint64_t, 3>& space, std::uint64_t begin, std::uint64_t end) {
    entries.push_back({space, begin, end, 0, 0});
    return lease(std::prev(entries.end()), begin, end);
  }
  void end(const Lease& lease) {
    if (lease.covers) --lease.entry->covering;
    if (--lease.entry->leases == 0) entries.erase(lease.entry);
  }

  std::list<Entry> entries;

 private:
  static Lease lease(std::list<Entry>::iterator entry, std::uint64_t begin, std::uint64_t end) {
    const bool covers = entry->begin == begin && entry->end == end;
    ++entry->leases;
    if (covers) ++entry->covering;
    return {entry, covers};
  }
};

// One seed's operations. Memory is within 64 pages, so that it overlaps, contains and lies within at every turn.
class RandomOperations {
 public:
  explicit RandomOperations(std::uint64_t seed) : random_(seed) {}
  void run(int operations) {
    for (int i = 0; i < operations && !::testing::Test::HasFailure(); ++i) {
      step();
      check();
    }
    held_.clear();
    EXPECT_EQ(registrar_.live, 0);
    EXPECT_EQ(cache_.counts().entries, 0u);
    EXPECT_EQ(cache_.counts().retired, 0u);
    EXPECT_EQ(cache_.counts().leases, 0u);
    EXPECT_GT(cache_.counts().hits, 0u);
    EXPECT_GT(cache_.counts().refused, 0u);
  }

 private:
  struct Held {
    MrCache::Lease lease;
    Model::Lease model;
    MemoryRef memory;
    std::uint32_t access;
  };

  void step() {
    // Between few and many, by turns.
    const std::uint64_t wanted = (steps_++ / 500) % 2 == 0 ? 40 : 4;
    if (held_.empty() || (held_.size() < 2 * wanted && random_.below(2 * wanted) >= held_.size())) return acquire();
    std::swap(held_[random_.below(held_.size())], held_.back());
    model_.end(held_.back().model);
    held_.pop_back();
  }

  void acquire() {
    static constexpr std::array<MemoryKind, 5> kinds{MemoryKind::kHost, MemoryKind::kHost, MemoryKind::kHost,
                                                     MemoryKind::kCuda, MemoryKind::kDmaBuf};
    MemoryRef memory;
    memory.kind = kinds[random_.below(kinds.size())];
    const std::uint64_t page = memory.kind == MemoryKind::kCuda ? 65536 : 4096;
    std::uint64_t first = page * (1 + random_.below(64));
    memory.length = page * (1 + random_.below(random_.below(4) == 0 ? 40 : 6));
    if (random_.below(2) == 0) first += random_.below(page);
    if (random_.below(2) == 0) memory.length -= random_.below(page);
    const std::uint32_t access = random_.below(3) == 0 ? kRead : kWrite;
    const BufferId buffer{3, random_.below(3)};
    if (memory.kind == MemoryKind::kDmaBuf) {
      memory.offset = first;
      memory.fd = 5;
    } else {
      memory.address = reinterpret_cast<std::byte*>(first);
    }
    registrar_.refuse = random_.below(16) == 0;
    const std::uint64_t begin = first / page * page;
    const std::uint64_t end = (first + memory.length + page - 1) / page * page;
    const std::array<std::uint64_t, 3> space{static_cast<std::uint64_t>(memory.kind), access,
                                             memory.kind == MemoryKind::kDmaBuf ? buffer.inode : 0};
    auto expected = model_.find(space, begin, end);
    const bool possible = expected || !registrar_.refuse;
    if (!expected && possible) expected = model_.add(space, begin, end);
    auto made = cache_.acquire(memory, access, buffer);
    ASSERT_EQ(made.has_value(), possible);
    if (made) held_.push_back({std::move(*made), *expected, memory, access});
  }

  void check() {
    ASSERT_EQ(static_cast<std::size_t>(registrar_.live), model_.entries.size());
    ASSERT_EQ(cache_.counts().entries, model_.entries.size());
    ASSERT_EQ(cache_.counts().leases, held_.size());
    for (const Held& held : held_) {
      const FakeRegistration& registered = registration_of(held.lease);
      const std::uint64_t first = held.memory.kind == MemoryKind::kDmaBuf
                                      ? held.memory.offset
                                      : reinterpret_cast<std::uintptr_t>(held.memory.address);
      ASSERT_EQ(registered.first() + held.lease.offset(), first);
      ASSERT_LE(held.lease.offset() + held.memory.length, registered.pages.length);
      ASSERT_EQ(registered.first(), held.model.entry->begin);
      ASSERT_EQ(registered.first() + registered.pages.length, held.model.entry->end);
      ASSERT_EQ(registered.access, held.access);
      ASSERT_EQ(registered.pages.kind, held.memory.kind);
    }
  }

  Rng random_;
  FakeRegistrar registrar_;
  MrCache cache_{registrar_, PageSizes{}};
  Model model_;
  std::vector<Held> held_;
  std::uint64_t steps_ = 0;
};

TEST(GdrMrCacheRandom, HundredThousandOperationsAreAsAListHasThem) {
  for (std::uint64_t seed = 1; seed <= 50 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    RandomOperations(seed).run(2000);
  }
}

TEST(GdrMrCacheRandom, ALongHistoryOfOneCache) { RandomOperations(51).run(100'000); }

}  // namespace
}  // namespace clustar::gdr
