// A net plugin with a data race, which tsan_run.py must find: it forwards everything to the plugin of RACE_PLUGIN, and
// counts sends without a lock on the progress thread of every communicator.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "nccl_plugin/abi/tables.h"

using clustar::nccl_abi::TableV11;

extern "C" __attribute__((visibility("default"))) TableV11 ncclNetPlugin_v11;
TableV11 ncclNetPlugin_v11;

namespace {

const TableV11* g_net = nullptr;
long g_sends = 0;

int Send(void* comm, void* data, std::size_t size, int tag, void* memory, void* phandle, void** request) {
  ++g_sends;
  return g_net->isend(comm, data, size, tag, memory, phandle, request);
}

// The table must be complete when dlopen returns.
[[gnu::constructor]] void Load() {
  const char* const plugin = std::getenv("RACE_PLUGIN");
  void* const library = plugin != nullptr ? dlopen(plugin, RTLD_NOW | RTLD_LOCAL) : nullptr;
  g_net = library != nullptr ? static_cast<const TableV11*>(dlsym(library, "ncclNetPlugin_v11")) : nullptr;
  if (g_net == nullptr) {
    std::fprintf(stderr, "planted race: RACE_PLUGIN must name a plugin with ncclNetPlugin_v11\n");
    std::exit(1);
  }
  ncclNetPlugin_v11 = *g_net;
  ncclNetPlugin_v11.isend = Send;
}

}  // namespace
