// Runs a kernel's thread blocks without a GPU: each of a block's threads is a fiber, and all fibers of a block are on
// the calling thread. So a barrier is a switch, and what the fibers wait for is known: barriers that only some threads
// reach are found, not waited for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace clustar::emulated {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
  unsigned long long count() const { return static_cast<unsigned long long>(x) * y * z; }
};

// Where the running thread is in its grid.
struct Place {
  Dim3 thread, block, block_size, grid_size;
};

// A kernel takes one argument, a struct by value.
struct KernelEntry {
  const char* name;
  std::size_t argument_bytes;
  void (*call)(const void* argument);
};
// Of those that are linked into this program; null: there is no such.
const KernelEntry* find_kernel(const std::string& name);
bool add_kernel(const KernelEntry& kernel);  // always true; before main

inline constexpr unsigned kMostThreads = 1024;  // of a block, as CUDA's limit

// The whole grid, block after block. `order` says in which order threads run between two barriers: 0 from the first
// to the last, 1 the other way, otherwise shuffled by it: a kernel without races gives the same bits by all. Empty, or
// what is wrong with the kernel: a divergent barrier with its places. Then the rest of the grid is not run.
std::string run(const KernelEntry& kernel, const Dim3& grid, const Dim3& block, const void* argument,
                std::uint64_t order = 0);

// Built with AddressSanitizer, which looks at every access of a kernel.
bool finds_bad_accesses();

// For language.h, within a kernel.
const Place& here();
void barrier(const char* file, int line);
// All lanes of `mask` come here together; gives what `lane` of them brought. Of its own value where that is not in it.
std::uint64_t exchange(unsigned mask, std::uint64_t value, unsigned lane, const char* file, int line);

}  // namespace clustar::emulated
