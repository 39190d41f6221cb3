// A libcuda.so.1 without a GPU: how tests tell it what to answer, and ask what it was asked. README.md: the fixtures.
#pragma once

#include <cstddef>
#include <string>

namespace clustar::tests {

struct FakeCuda {
  // Forgets everything and takes this fixture; empty, or what is wrong with it.
  std::string (*load)(const std::string& path);
  std::byte* (*memory)(const std::string& name);   // the fixture's; null: it has none of that name
  std::byte* (*allocate)(std::size_t bytes);       // more memory of device 0, until the next load
  void (*hold)(bool on);                           // while on, no copy ends
  void (*copies_fail)(const std::string& result);  // the next copy that would be done fails, and the context with it
  void (*answer)(const std::string& function, const std::string& results);  // as an `answer` line of a fixture
  std::size_t (*calls)(const std::string& function);
  std::size_t (*live)(const std::string& what);  // retained contexts, streams, events, pinned, device
  std::size_t (*depth)();                        // contexts pushed in this thread
  bool (*sync_memops)(const std::string& name);  // whether it was set on this memory
  // While on, somebody captures a graph in global mode: calls of threads that are not in relaxed mode are refused, and
  // are misuse, for they break the capture.
  void (*capture)(bool on);
  bool (*relaxed)();        // whether this thread is in relaxed mode
  std::string (*misuse)();  // the first thing that no driver would allow; empty: nothing
};

// Found in the library as the data object `fake_cuda`.
inline constexpr const char* kFakeCudaSymbol = "fake_cuda";

}  // namespace clustar::tests
