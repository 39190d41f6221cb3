// The sample plugin with the manners of other plugins. PERF_ODD chooses: "no_sizes": test never writes a size.
// "wrong_go": test says 0 bytes for a message of 8, and a peer that is gone is ncclSystemError.
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "nccl_plugin/abi/tables.h"

namespace {

namespace abi = clustar::nccl_abi;

abi::TableV11 g_sample;

bool odd(const char* name) {
  const char* const chosen = std::getenv("PERF_ODD");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}

int blur(int result) { return result == abi::kRemoteError && odd("wrong_go") ? abi::kSystemError : result; }

int isend(void* comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
  return blur(g_sample.isend(comm, data, size, tag, mhandle, phandle, request));
}

int irecv(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
          void** request) {
  return blur(g_sample.irecv(comm, n, data, sizes, tags, mhandles, phandles, request));
}

int test(void* request, int* done, int* sizes) {
  std::array<int, 64> unseen{};
  const int result = g_sample.test(request, done, odd("no_sizes") ? unseen.data() : sizes);
  if (odd("wrong_go") && *done != 0 && sizes != nullptr && sizes[0] == 8) sizes[0] = 0;
  return blur(result);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) abi::TableV11 ncclNetPlugin_v11;
abi::TableV11 ncclNetPlugin_v11;

namespace {

__attribute__((constructor)) void on_load() {
  void* library = dlopen(SAMPLE_PLUGIN, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  g_sample = *static_cast<const abi::TableV11*>(dlsym(library, "ncclNetPlugin_v11"));
  ncclNetPlugin_v11 = g_sample;
  ncclNetPlugin_v11.name = "Odd";
  ncclNetPlugin_v11.isend = isend;
  ncclNetPlugin_v11.irecv = irecv;
  ncclNetPlugin_v11.test = test;
}

}  // namespace
