#include "tests/gdr/emulated_device/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <boost/context/detail/fcontext.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define CLUSTAR_ADDRESS_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CLUSTAR_ADDRESS_SANITIZER
#endif
#endif
#ifdef CLUSTAR_ADDRESS_SANITIZER
#include <sanitizer/common_interface_defs.h>
#endif

namespace clustar::emulated {
namespace {

using boost::context::detail::fcontext_t;
using boost::context::detail::transfer_t;

constexpr std::size_t kPage = 4096;
constexpr std::size_t kStack = 256 * 1024;  // mapped; used are some pages
constexpr unsigned kLanes = 32;

std::map<std::string, KernelEntry>& kernels() {
  static std::map<std::string, KernelEntry> all;
  return all;
}

// Of all threads of the largest block, each with a page before it that nobody may touch.
class Stacks {
 public:
  Stacks() {
    void* const mapped = mmap(nullptr, kMostThreads * kStack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(mapped);
    for (unsigned i = 0; i < kMostThreads; ++i) mprotect(base_ + i * kStack, kPage, PROT_NONE);
  }
  ~Stacks() { munmap(base_, kMostThreads * kStack); }
  Stacks(const Stacks&) = delete;
  Stacks& operator=(const Stacks&) = delete;

  std::byte* bottom(unsigned thread) const { return base_ + thread * kStack + kPage; }
  static constexpr std::size_t kUsable = kStack - kPage;

 private:
  std::byte* base_;
};

struct Fiber {
  enum class State { kReady, kBarrier, kExchange, kEnded };
  fcontext_t context = nullptr;
  State state = State::kReady;
  Place place;
  const char* file = "";
  int line = 0;
  unsigned mask = 0;  // kExchange: who comes, what this one brings and then has, and from which lane
  unsigned lane = 0;
  std::uint64_t value = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

std::string text(const Fiber& fiber) {
  const auto& [x, y, z] = fiber.place.thread;
  std::string said = "thread (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ") ";
  switch (fiber.state) {
    case Fiber::State::kReady: return said + "runs";
    case Fiber::State::kEnded: return said + "has ended";
    case Fiber::State::kBarrier: said += "is at the barrier "; break;
    case Fiber::State::kExchange: said += "is at the shuffle "; break;
  }
  return said + fiber.file + ":" + std::to_string(fiber.line);
}

// One grid on this thread.
class Runner {
 public:
  Runner(const KernelEntry& kernel, const void* argument, std::uint64_t order)
      : kernel_(kernel), argument_(argument), order_(order), random_(order) {}

  std::string run_block(const Dim3& block, const Dim3& block_size, const Dim3& grid_size);
  Fiber& running() { return fibers_[running_]; }
  // From a fiber back to this thread's own stack.
  void suspend();

 private:
  static void enter(transfer_t from);
  static Stacks& stacks() {
    thread_local Stacks all;
    return all;
  }
  void prepare(const Dim3& block, const Dim3& block_size, const Dim3& grid_size);
  void resume(unsigned fiber);
  bool release_exchanges();
  bool release_barrier();
  std::string stuck() const;

  const KernelEntry& kernel_;
  const void* argument_;
  std::uint64_t order_;
  std::mt19937_64 random_;
  std::vector<Fiber> fibers_;
  unsigned running_ = 0;
  fcontext_t outside_ = nullptr;
  void* outside_fake_stack_ = nullptr;
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

thread_local Runner* current = nullptr;

void Runner::enter(transfer_t from) {
  Runner& runner = *static_cast<Runner*>(from.data);
  runner.outside_ = from.fctx;
#ifdef CLUSTAR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(nullptr, &runner.outside_bottom_, &runner.outside_size_);
#endif
  runner.kernel_.call(runner.argument_);
  runner.running().state = Fiber::State::kEnded;
  runner.suspend();
  std::abort();  // one that has ended is never resumed
}

void Runner::suspend() {
#ifdef CLUSTAR_ADDRESS_SANITIZER
  Fiber& fiber = running();
  void** const keep = fiber.state == Fiber::State::kEnded ? nullptr : &fiber.fake_stack;
  __sanitizer_start_switch_fiber(keep, outside_bottom_, outside_size_);
#endif
  outside_ = boost::context::detail::jump_fcontext(outside_, this).fctx;
#ifdef CLUSTAR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(running().fake_stack, &outside_bottom_, &outside_size_);
#endif
}

void Runner::resume(unsigned fiber) {
  running_ = fiber;
#ifdef CLUSTAR_ADDRESS_SANITIZER
  __sanitizer_start_switch_fiber(&outside_fake_stack_, stacks().bottom(fiber), Stacks::kUsable);
#endif
  fibers_[fiber].context = boost::context::detail::jump_fcontext(fibers_[fiber].context, this).fctx;
#ifdef CLUSTAR_ADDRESS_SANITIZER
  __sanitizer_finish_switch_fiber(outside_fake_stack_, nullptr, nullptr);
#endif
}

void Runner::prepare(const Dim3& block, const Dim3& block_size, const Dim3& grid_size) {
  const auto count = static_cast<unsigned>(block_size.count());
  fibers_.assign(count, {});
  for (unsigned i = 0; i < count; ++i) {
    Fiber& fiber = fibers_[i];
    const Dim3 thread{i % block_size.x, i / block_size.x % block_size.y, i / block_size.x / block_size.y};
    fiber.place = {thread, block, block_size, grid_size};
    fiber.context =
        boost::context::detail::make_fcontext(stacks().bottom(i) + Stacks::kUsable, Stacks::kUsable, &Runner::enter);
  }
}

std::string Runner::run_block(const Dim3& block, const Dim3& block_size, const Dim3& grid_size) {
  prepare(block, block_size, grid_size);
  std::vector<unsigned> order(fibers_.size());
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  if (order_ == 1) std::reverse(order.begin(), order.end());
  for (;;) {
    if (order_ > 1) std::shuffle(order.begin(), order.end(), random_);
    for (const unsigned fiber : order) {
      if (fibers_[fiber].state == Fiber::State::kReady) resume(fiber);
    }
    if (release_exchanges()) continue;
    const bool ended =
        std::all_of(fibers_.begin(), fibers_.end(), [](const Fiber& one) { return one.state == Fiber::State::kEnded; });
    if (ended) return {};
    if (!release_barrier()) return stuck();
  }
}

bool Runner::release_barrier() {
  const Fiber& first = fibers_.front();
  for (const Fiber& one : fibers_) {
    if (one.state != Fiber::State::kBarrier || one.line != first.line || one.file != first.file) return false;
  }
  for (Fiber& one : fibers_) one.state = Fiber::State::kReady;
  return true;
}

// Of each warp whose lanes are all where they wait for each other.
bool Runner::release_exchanges() {
  bool any = false;
  for (std::size_t warp = 0; warp < fibers_.size(); warp += kLanes) {
    const std::size_t lanes = std::min<std::size_t>(kLanes, fibers_.size() - warp);
    std::array<std::uint64_t, kLanes> brought{};
    for (std::size_t i = 0; i < lanes; ++i) brought[i] = fibers_[warp + i].value;
    const auto complete = [&](const Fiber& one) {
      for (std::size_t i = 0; i < kLanes; ++i) {
        if ((one.mask >> i & 1) == 0) continue;
        if (i >= lanes) return false;
        const Fiber& other = fibers_[warp + i];
        const bool same = other.file == one.file && other.line == one.line && other.mask == one.mask;
        if (other.state != Fiber::State::kExchange || !same) return false;
      }
      return true;
    };
    // Where one is complete, all that its mask names are: they are not asked again.
    std::uint64_t go = 0;
    for (std::size_t i = 0; i < lanes; ++i) {
      const Fiber& one = fibers_[warp + i];
      if (one.state != Fiber::State::kExchange || (go >> i & 1) != 0 || !complete(one)) continue;
      go |= one.mask | std::uint64_t{1} << i;
    }
    for (std::size_t i = 0; i < lanes; ++i) {
      if ((go >> i & 1) == 0) continue;
      Fiber& one = fibers_[warp + i];
      if (one.lane < lanes && (one.mask >> one.lane & 1) != 0) one.value = brought[one.lane];
      one.state = Fiber::State::kReady;
      any = true;
    }
  }
  return any;
}

std::string Runner::stuck() const {
  const Fiber* waiting = nullptr;
  for (const Fiber& one : fibers_) {
    if (one.state != Fiber::State::kEnded && waiting == nullptr) waiting = &one;
  }
  const auto differs = std::find_if(fibers_.begin(), fibers_.end(), [&](const Fiber& one) {
    return one.state != waiting->state || one.line != waiting->line || one.file != waiting->file;
  });
  const Dim3& block = waiting->place.block;
  std::string said = std::string(kernel_.name) + ", block (" + std::to_string(block.x) + ", " +
                     std::to_string(block.y) + ", " + std::to_string(block.z) +
                     "): divergent barrier: " + text(*waiting);
  if (differs != fibers_.end()) return said + ", " + text(*differs);
  return said + ", whose mask names lanes that are not in the block";
}

}  // namespace

bool finds_bad_accesses() {
#ifdef CLUSTAR_ADDRESS_SANITIZER
  return true;
#else
  return false;
#endif
}

bool add_kernel(const KernelEntry& kernel) {
  kernels()[kernel.name] = kernel;
  return true;
}

const KernelEntry* find_kernel(const std::string& name) {
  const auto found = kernels().find(name);
  return found == kernels().end() ? nullptr : &found->second;
}

std::string run(const KernelEntry& kernel, const Dim3& grid, const Dim3& block, const void* argument,
                std::uint64_t order) {
  if (grid.count() == 0 || block.count() == 0 || block.count() > kMostThreads) {
    return std::string(kernel.name) + ": a grid has at least one block, and a block 1 to 1024 threads";
  }
  const auto runner = std::make_unique<Runner>(kernel, argument, order);
  Runner* const before = current;
  current = runner.get();
  std::string problem;
  for (unsigned long long i = 0; i < grid.count() && problem.empty(); ++i) {
    const unsigned long long rest = i / grid.x;
    problem = runner->run_block(
        {static_cast<unsigned>(i % grid.x), static_cast<unsigned>(rest % grid.y), static_cast<unsigned>(rest / grid.y)},
        block, grid);
  }
  current = before;
  return problem;
}

const Place& here() { return current->running().place; }

void barrier(const char* file, int line) {
  Fiber& fiber = current->running();
  fiber.state = Fiber::State::kBarrier;
  fiber.file = file;
  fiber.line = line;
  current->suspend();
}

std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned lane, const char* file, int line) {
  Fiber& fiber = current->running();
  fiber.state = Fiber::State::kExchange;
  fiber.file = file;
  fiber.line = line;
  fiber.mask = mask;
  fiber.value = value;
  fiber.lane = lane;
  current->suspend();
  return fiber.value;
}

}  // namespace clustar::emulated
