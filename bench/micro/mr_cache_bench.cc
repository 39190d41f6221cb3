// The cache of registrations: what a registration costs beside the NIC's part, which is left out.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "gdr/core/mr_cache.h"
#include "transport/base/rng.h"

namespace clustar::bench::micro {
namespace {

using gdr::MemoryRef;
using gdr::MrCache;
using gdr::Registrar;
using gdr::Registration;

constexpr std::uint32_t kAccess = 1;
constexpr std::uint64_t kPage = 4096;

class NoRegistrar final : public Registrar {
 public:
  Result<std::unique_ptr<Registration>> register_pages(const MemoryRef&, std::uint32_t) override {
    return std::make_unique<Registration>();
  }
};

// 16 pages each, 8 pages between two; the last of every 8 contains those before it.
class Registered {
 public:
  explicit Registered(std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      const bool around = at % 8 == 7;
      leases_.push_back(*cache.acquire(memory(around ? at - 7 : at, around ? 8 * 24 : 16), kAccess));
    }
  }
  static MemoryRef memory(std::uint64_t index, std::uint64_t pages) {
    return MemoryRef::host(reinterpret_cast<void*>(kBase + index * 24 * kPage), pages * kPage);
  }

  static constexpr std::uint64_t kBase = std::uint64_t{1} << 40;
  NoRegistrar registrar;
  MrCache cache{registrar, {}};

 private:
  std::vector<MrCache::Lease> leases_;
};

// A lease of what is registered, at random, and its end.
void lookup(benchmark::State& state) {
  Registered registered(state.range(0));
  Rng random(1);
  std::vector<MemoryRef> wanted(1024);
  for (MemoryRef& memory : wanted) {
    memory = Registered::memory(random.below(static_cast<std::uint64_t>(state.range(0))), 2);
    memory.address += 100;
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const auto lease = registered.cache.acquire(wanted[next++ % wanted.size()], kAccess);
    benchmark::DoNotOptimize(lease->offset());
  }
  if (registered.cache.counts().misses != static_cast<std::uint64_t>(state.range(0))) {
    state.SkipWithError("what is registered was not found");
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(lookup)->Name("mr_cache/lookup")->ArgName("live")->Arg(1)->Arg(64)->Arg(4096);

// What is not registered, at random, and its end.
void acquire_new(benchmark::State& state) {
  Registered registered(state.range(0));
  Rng random(2);
  std::vector<MemoryRef> wanted(1024);
  for (MemoryRef& memory : wanted) {
    // Longer than any, so within none.
    memory = Registered::memory(random.below(static_cast<std::uint64_t>(state.range(0))), 8 * 24 + 1);
  }
  std::size_t next = 0;
  for (auto _ : state) {
    const auto lease = registered.cache.acquire(wanted[next++ % wanted.size()], kAccess);
    benchmark::DoNotOptimize(lease->offset());
  }
  if (registered.cache.counts().hits != 0) state.SkipWithError("something was registered already");
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(acquire_new)->Name("mr_cache/acquire_new")->ArgName("live")->Arg(1)->Arg(64)->Arg(4096);

}  // namespace
}  // namespace clustar::bench::micro
