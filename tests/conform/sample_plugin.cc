// A small, correct NCCL net plugin (v8 and v11) on one non-blocking TCP socket per connection. Memory of a GPU is
// emulated: a CUDA pointer is a host pointer, a dma-buf any descriptor that can be mapped.
// SAMPLE_DEFECT=<name> in the environment switches on exactly one defect, so that each conformance check can be shown
// to fail. SAMPLE_IFADDR is the IPv4 address to listen on (default 127.0.0.1).
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "nccl_plugin/abi/tables.h"
#include "tests/conform/sample_state.h"

namespace clustar::sample {

bool defect(const char* name) {
  static const char* const chosen = std::getenv("SAMPLE_DEFECT");
  return chosen != nullptr && std::strcmp(chosen, name) == 0;
}
void block_for_a_while() {
  const char* const seconds = std::getenv("SAMPLE_BLOCKS_SECONDS");
  sleep(seconds != nullptr ? static_cast<unsigned>(std::atoi(seconds)) : 3);
}

namespace {

std::atomic<int> g_fused{0};

bool may_fuse() {
  static const char* const chosen = std::getenv("SAMPLE_DEFECT");
  return chosen != nullptr && std::strncmp(chosen, "fuse_", 5) == 0;
}

int make_v_device(int* dev, abi::VDeviceV9* members) {
  if (members->ndevs != 2 || defect("fuse_refused")) return abi::kInvalidUsage;
  if (!defect("fuse_uncounted")) g_fused = 1;
  *dev = 2;
  return defect("fuse_half") ? abi::kInvalidUsage : abi::kSuccess;
}

const char* name_of(int dev) {
  if (dev < plain_devices()) return dev == 1 ? "sample1" : "sample0";
  return defect("fuse_nameless") ? "" : defect("fuse_same_name") ? "sample0" : "sample0+sample1";
}

template <class Properties>
int get_properties(int dev, Properties* out) {
  const bool there = dev >= 0 && dev < plain_devices() + g_fused;
  if (!there && !defect("describes_any_device")) return abi::kInvalidArgument;
  *out = {};
  out->name = name_of(dev);
  out->pci_path = defect("bad_pci_path") ? const_cast<char*>("/sys/no/such/device") : nullptr;
  out->guid = 1;
  out->ptr_support = ptr_support();
  out->speed = defect("no_speed") ? 0 : 10000;
  out->max_comms = 65536;
  out->max_recvs = defect("no_recvs") ? 0 : kMaxRecvs;
  out->net_device_type = abi::kDeviceTypeHost;
  if constexpr (requires { out->max_p2p_bytes; }) {
    out->max_p2p_bytes = defect("max_bytes_zero") ? 0 : abi::kMaxBytesV9;
    out->max_coll_bytes = abi::kMaxBytesV9;
    const bool fused = dev >= plain_devices() && !defect("fuse_members");
    out->v_props = fused ? abi::VDeviceV9{2, {0, 1}} : abi::VDeviceV9{1, {dev}};
  }
  return abi::kSuccess;
}

}  // namespace

int ptr_support() {
  if (defect("no_host_pointers")) return abi::kPtrCuda;
  if (defect("host_only") || defect("takes_anything")) return abi::kPtrHost;
  return abi::kPtrHost | abi::kPtrCuda | abi::kPtrDmaBuf;
}

int plain_devices() { return may_fuse() ? 2 : 1; }
int virtual_devices() { return g_fused; }

namespace {

int set_net_attr(void*, abi::NetAttr* attr) {
  if (defect("attr_undef_error") && attr->op == abi::kNetAttrUndefined) return abi::kInvalidArgument;
  return attr == nullptr ? abi::kInvalidArgument : abi::kSuccess;
}

}  // namespace

#define SAMPLE_EXPORT extern "C" __attribute__((visibility("default")))

SAMPLE_EXPORT abi::TableV8 ncclNetPlugin_v8;
SAMPLE_EXPORT abi::TableV11 ncclNetPlugin_v11;

abi::TableV8 ncclNetPlugin_v8 = {
    "Sample",
    [](abi::DebugLogger) { return init(0, nullptr, nullptr); },
    devices,
    get_properties<abi::PropertiesV8>,
    listen_on,
    [](int dev, void* handle, void** comm, abi::DeviceHandle**) { return connect_to(dev, handle, comm); },
    [](void* listener, void** comm, abi::DeviceHandle**) { return accept_from(listener, comm); },
    reg_mr,
    reg_mr_dma_buf,
    dereg_mr,
    [](void* comm, void* data, int size, int tag, void* mhandle, void** request) {
      return isend(comm, data, static_cast<std::size_t>(size), tag, mhandle, request);
    },
    [](void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) -> int {
      std::size_t wide[kMaxRecvs] = {};
      for (int i = 0; i < std::min(n, kMaxRecvs); ++i) wide[i] = static_cast<std::size_t>(sizes[i]);
      return irecv(comm, n, data, wide, tags, mhandles, request);
    },
    iflush,
    test,
    close_comm,
    close_comm,
    close_listen,
    nullptr,
    nullptr,
};

abi::TableV11 ncclNetPlugin_v11 = {
    "Sample",
    [](void** ctx, std::uint64_t comm_id, abi::CommConfig* config, abi::DebugLogger, abi::ProfilerCallback) {
      return init(comm_id, config, ctx);
    },
    devices,
    get_properties<abi::PropertiesV11>,
    [](void*, int dev, void* handle, void** comm) { return listen_on(dev, handle, comm); },
    [](void*, int dev, void* handle, void** comm, abi::DeviceHandle**) { return connect_to(dev, handle, comm); },
    [](void* listener, void** comm, abi::DeviceHandle**) { return accept_from(listener, comm); },
    reg_mr,
    reg_mr_dma_buf,
    dereg_mr,
    [](void* comm, void* data, std::size_t size, int tag, void* mhandle, void*, void** request) {
      return isend(comm, data, size, tag, mhandle, request);
    },
    [](void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void**, void** request) {
      return irecv(comm, n, data, sizes, tags, mhandles, request);
    },
    iflush,
    test,
    close_comm,
    close_comm,
    close_listen,
    nullptr,
    nullptr,
    nullptr,
    finalize,
    set_net_attr,
};

namespace {

void* volatile g_leaked;

// Defects of the loaded library itself.
__attribute__((constructor)) void on_load() {
  if (defect("empty_name")) ncclNetPlugin_v8.name = ncclNetPlugin_v11.name = "";
  if (may_fuse()) ncclNetPlugin_v11.makeVDevice = make_v_device;
  if (defect("missing_call")) ncclNetPlugin_v11.irecv = nullptr;
  if (defect("no_dma_buf_call")) ncclNetPlugin_v11.regMrDmaBuf = nullptr;
  if (defect("reload_leak")) g_leaked = std::memset(std::malloc(2u << 20), 1, 2u << 20);  // never freed, by intent
}

}  // namespace
}  // namespace clustar::sample
