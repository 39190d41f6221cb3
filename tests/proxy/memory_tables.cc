// The memory plugin's tables, v6 to v12.
#include <cstdint>
#include <vector>

#include "tests/proxy/memory_calls.h"

namespace clustar::tests::memory {
namespace {

int init_v10(DebugLogger logger, ProfilerCallback callback) {
  if (hooks().given != nullptr) hooks().given(callback);
  return init(logger);
}

int init_v11(void** ctx, std::uint64_t, CommConfig* config, DebugLogger logger, ProfilerCallback callback) {
  if (hooks().given != nullptr) hooks().given(callback);
  note_traffic_class(config->traffic_class);
  return init_context(ctx, logger);
}

template <class P>
int properties(int dev, P* p) {
  *p = P{};
  p->name = "memory0";
  p->guid = static_cast<std::uint64_t>(dev) + 1;
  p->ptr_support = kPtrHost;
  p->speed = 40000;
  p->port = 1;
  p->latency = 2.5f;
  p->max_comms = 1000;
  p->max_recvs = max_recvs();
  if constexpr (requires { p->reg_is_global; }) p->reg_is_global = 1;
  if constexpr (requires { p->force_flush; }) p->force_flush = 1;
  if constexpr (requires { p->max_p2p_bytes; }) p->max_p2p_bytes = p->max_coll_bytes = std::size_t{1} << 35;
  return get_properties();
}

int listen_v6(int, void* handle, void** listen_comm) { return listen(shared_context(), handle, listen_comm); }

int listen_v11(void* ctx, int, void* handle, void** listen_comm) {
  return listen(static_cast<Context*>(ctx), handle, listen_comm);
}

int connect_v6(int, void* handle, void** comm) { return connect(shared_context(), handle, comm); }

int connect_v7(int, void* handle, void** comm, DeviceHandle** device) {
  *device = nullptr;
  return connect(shared_context(), handle, comm);
}

int connect_v10(int, CommConfig* config, void* handle, void** comm, DeviceHandle** device) {
  *device = nullptr;
  note_traffic_class(config->traffic_class);
  return connect(shared_context(), handle, comm);
}

int connect_v11(void* ctx, int, void* handle, void** comm, DeviceHandle** device) {
  *device = nullptr;
  return connect(static_cast<Context*>(ctx), handle, comm);
}

int accept_v7(void* listen_comm, void** recv_comm, DeviceHandle** device) {
  *device = nullptr;
  return accept(listen_comm, recv_comm);
}

int reg_mr_v7(void* comm, void* data, int size, int type, void** mhandle) {
  return reg_mr(comm, data, static_cast<std::size_t>(size), type, mhandle);
}

int reg_mr_dma_buf(void*, void*, std::size_t, int, std::uint64_t, int, void**) { return kInternalError; }

int isend_v6(void* comm, void* data, int size, int tag, void* mhandle, void** request) {
  return isend(comm, data, static_cast<std::size_t>(size), tag, mhandle, request);
}

int isend_v10(void* comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
  const int result = isend(comm, data, size, tag, mhandle, request);
  if (hooks().posted != nullptr && result == kSuccess && *request != nullptr) hooks().posted(true, 1, &phandle);
  return result;
}

int irecv_v6(void* comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  if (*request != nullptr) {
    note_violation("the optional-completion marker reached a table that does not know it");
  }
  std::vector<std::size_t> wide(sizes, sizes + n);
  return irecv(comm, n, data, wide.data(), tags, mhandles, request);
}

int irecv_v10(void* comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
              void** request) {
  for (int i = 0; i < n; ++i) static_cast<void>(phandles[i]);  // there has to be an array
  const int result = irecv(comm, n, data, sizes, tags, mhandles, request);
  if (hooks().posted != nullptr && result == kSuccess && *request != nullptr) hooks().posted(false, n, phandles);
  return result;
}

}  // namespace

Hooks& hooks() {
  static Hooks instance;
  return instance;
}

}  // namespace clustar::tests::memory

using namespace clustar::tests::memory;  // NOLINT: the tables below are C names

#define MEMORY_EXPORT extern "C" __attribute__((visibility("default")))

MEMORY_EXPORT TableV6 ncclNetPlugin_v6;
MEMORY_EXPORT TableV7 ncclNetPlugin_v7;
MEMORY_EXPORT TableV8 ncclNetPlugin_v8;
MEMORY_EXPORT TableV9 ncclNetPlugin_v9;
MEMORY_EXPORT TableV10 ncclNetPlugin_v10;
MEMORY_EXPORT TableV11 ncclNetPlugin_v11;
MEMORY_EXPORT TableV12 ncclNetPlugin_v12;

TableV6 ncclNetPlugin_v6 = {"Memory",       init,       devices,    properties<PropertiesV6>,
                            listen_v6,      connect_v6, accept,     reg_mr_v7,
                            reg_mr_dma_buf, dereg_mr,   isend_v6,   irecv_v6,
                            iflush,         test,       close_send, close_recv,
                            close_listen};
TableV7 ncclNetPlugin_v7 = {"Memory",       init,       devices,    properties<PropertiesV7>,
                            listen_v6,      connect_v7, accept_v7,  reg_mr_v7,
                            reg_mr_dma_buf, dereg_mr,   isend_v6,   irecv_v6,
                            iflush,         test,       close_send, close_recv,
                            close_listen,   nullptr,    nullptr};
TableV8 ncclNetPlugin_v8 = {"Memory",       init,       devices,    properties<PropertiesV8>,
                            listen_v6,      connect_v7, accept_v7,  reg_mr,
                            reg_mr_dma_buf, dereg_mr,   isend_v6,   irecv_v6,
                            iflush,         test,       close_send, close_recv,
                            close_listen,   nullptr,    nullptr};
TableV9 ncclNetPlugin_v9 = {"Memory",       init,       devices,    properties<PropertiesV9>,
                            listen_v6,      connect_v7, accept_v7,  reg_mr,
                            reg_mr_dma_buf, dereg_mr,   isend,      irecv,
                            iflush,         test,       close_send, close_recv,
                            close_listen,   nullptr,    nullptr,    nullptr};
TableV10 ncclNetPlugin_v10 = {"Memory",       init_v10,    devices,    properties<PropertiesV9>,
                              listen_v6,      connect_v10, accept_v7,  reg_mr,
                              reg_mr_dma_buf, dereg_mr,    isend_v10,  irecv_v10,
                              iflush,         test,        close_send, close_recv,
                              close_listen,   nullptr,     nullptr,    nullptr};
TableV11 ncclNetPlugin_v11 = {"Memory",       init_v11,    devices,    properties<PropertiesV11>,
                              listen_v11,     connect_v11, accept_v7,  reg_mr,
                              reg_mr_dma_buf, dereg_mr,    isend_v10,  irecv_v10,
                              iflush,         test,        close_send, close_recv,
                              close_listen,   nullptr,     nullptr,    nullptr,
                              finalize,       set_net_attr};
TableV12 ncclNetPlugin_v12 = {"Memory",       init_v11,    devices,    properties<PropertiesV12>,
                              listen_v11,     connect_v11, accept_v7,  reg_mr,
                              reg_mr_dma_buf, dereg_mr,    isend_v10,  irecv_v10,
                              iflush,         test,        close_send, close_recv,
                              close_listen,   nullptr,     nullptr,    nullptr,
                              finalize,       set_net_attr};
