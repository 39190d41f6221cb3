#include "tests/gpu/gdr_check_driver.h"

#include <dlfcn.h>

namespace clustar::gdr_check {

std::string Driver::open() {
  // Stays open: the driver's threads may run until the process ends.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
#define CLUSTAR_TEXT(name) #name
#define CLUSTAR_SYMBOL(name) CLUSTAR_TEXT(name)
#define CLUSTAR_FIND(call)                                                       \
  call = reinterpret_cast<decltype(call)>(dlsym(library, CLUSTAR_SYMBOL(call))); \
  if (call == nullptr) return "libcuda.so.1 has no " CLUSTAR_SYMBOL(call)
  CLUSTAR_GDR_CHECK_CALLS(CLUSTAR_FIND);
#undef CLUSTAR_FIND
#undef CLUSTAR_SYMBOL
#undef CLUSTAR_TEXT
  return {};
}

std::string Driver::name_of(CUresult result) const {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return "CUresult " + std::to_string(static_cast<int>(result));
}

}  // namespace clustar::gdr_check
