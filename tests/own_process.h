// What this process has at the moment: what a test wants to be as before when something has ended.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace clustar::tests {

inline std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

inline std::size_t open_descriptors() { return entries_of("/proc/self/fd"); }
inline std::size_t running_threads() { return entries_of("/proc/self/task"); }
// A thread that was joined is in the list for a moment more, so `expected` may be too many by it: compare by LE.
inline std::size_t threads_left(std::size_t expected) {
  for (int i = 0; i < 5000 && running_threads() > expected; ++i) ::usleep(1000);
  return running_threads();
}

inline std::size_t resident_kib() {
  std::ifstream in("/proc/self/statm");
  std::size_t all = 0, resident = 0;  // pages
  in >> all >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) / 1024;
}

// Whether resident_kib() falls where memory was freed: sanitizers keep it, to find who still uses it.
#ifdef __has_feature
inline constexpr bool kGivesMemoryBack = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
inline constexpr bool kGivesMemoryBack = true;
#endif

}  // namespace clustar::tests
