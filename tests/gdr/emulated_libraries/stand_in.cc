#include "tests/gdr/emulated_libraries/stand_in.h"

#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "tests/nccl_host/runtime/device.h"

namespace clustar::emulated {

bool has_context() {
  // By its soname the emulated driver, which this process has open.
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  if (driver == nullptr) return false;
  auto* const current = reinterpret_cast<int (*)(void**)>(dlsym(driver, "cuCtxGetCurrent"));
  void* context = nullptr;
  return current != nullptr && current(&context) == 0 && context != nullptr;
}

bool on_device(const void* at, std::size_t bytes) {
  const auto range = nccl_host::TheDevice().memory().Find(at);
  return range && range->kind == nccl_host::MemoryKind::kDevice &&
         reinterpret_cast<std::uintptr_t>(at) - range->begin + bytes <= range->size;
}

void enqueue(void* stream, std::function<void()> work) {
  nccl_host::TheDevice().StreamOf(stream)->Add(std::move(work));
}

int planted_fault(const char* function) {
  static std::string known;
  static int calls = 0;
  const char* const set = std::getenv("EMULATED_LIBRARY_FAULT");
  const std::string fault = set == nullptr ? "" : set;
  if (fault != known) {
    known = fault;
    calls = 0;
  }
  const std::string prefix = std::string(function) + ":";
  if (!fault.starts_with(prefix)) return 0;
  const std::size_t colon = fault.find(':', prefix.size());
  const int call = std::stoi(fault.substr(prefix.size(), colon - prefix.size()));
  return ++calls == call ? std::stoi(fault.substr(colon + 1)) : 0;
}

}  // namespace clustar::emulated
