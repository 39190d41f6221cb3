#include "tests/unit/count_allocations.h"

#include <execinfo.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace {

bool counting = false;
std::uint64_t allocations = 0;

struct Place {
  std::array<void*, 8> frames{};
  int depth = 0;
  std::uint64_t count = 0;
};
std::array<Place, 6> places;

#if CLUSTAR_COUNT_ALLOCATIONS
void note_place() {
  Place here;
  here.depth = backtrace(here.frames.data(), static_cast<int>(here.frames.size()));
  for (Place& place : places) {
    if (place.count > 0 && place.frames != here.frames) continue;
    here.count = place.count + 1;
    place = here;
    return;
  }
}

void* allocate(std::size_t size, std::size_t alignment) {
  if (counting) {
    counting = false;
    ++allocations;
    note_place();
    counting = true;
  }
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size > 0 ? size : 1)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
#endif

}  // namespace

#if CLUSTAR_COUNT_ALLOCATIONS
// The library's other forms (arrays, nothrow) end in these. Not inlined: half a pair in sight looks like a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) { return allocate(size, 1); }
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<std::size_t>(alignment));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace clustar::tests {

Counting::Counting() {
  void* frame = nullptr;
  backtrace(&frame, 1);  // its first call loads a library
  allocations = 0;
  places = {};
  counting = true;
}
Counting::~Counting() { counting = false; }

std::uint64_t counted_allocations() { return allocations; }

void print_allocations() {
  for (const Place& place : places) {
    if (place.count == 0) return;
    std::fprintf(stderr, "%llu allocations:\n", static_cast<unsigned long long>(place.count));
    backtrace_symbols_fd(place.frames.data(), place.depth, STDERR_FILENO);
  }
}

}  // namespace clustar::tests
