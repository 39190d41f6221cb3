// The net plugin's operations, once for all ABI versions: opaque pointers in, ncclResult_t out, nothing thrown.
// Rules of each call: NCCL v2.28.9 src/transport/net.cc; see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/plugin_state.h"
#include "transport/api/transport.h"

namespace clustar::nccl_plugin {

int net_init(void** context, const CommInit& init, nccl_abi::DebugLogger logger);
int net_finalize(void* context);
int net_devices(int* count);
// Strings in the answer live as long as the library. nullopt: no such device, or init was not called.
struct NetDevice {
  const char* name;
  const char* pci_path;
  transport::DeviceProperties properties;
};
std::optional<NetDevice> net_device(int device);
// *device becomes the index of the fusion of members[0 .. count). What cannot be fused is invalid usage: NCCL then goes
// on with the plain devices, unless NCCL_NET_FORCE_MERGE names these.
int net_make_v_device(int* device, const int* members, int count, std::size_t most);

int net_listen(void* context, int device, void* handle, void** listen_comm);
// `traffic_class` is what v10's connect brings; undefined = the context's.
int net_connect(void* context, int device, void* handle, void** send_comm,
                int traffic_class = nccl_abi::kTrafficClassUndefined);
int net_accept(void* listen_comm, void** recv_comm);
// Which memory a comm takes is its device's (memory.h).
int net_reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle);
int net_reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                       void** mhandle);
int net_dereg_mr(void* comm, void* mhandle);
// `phandle`: NCCL's word for the profiler's event of the transfer; null below v10.
int net_isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request);
int net_irecv(void* recv_comm, int n, void** data, const std::size_t* sizes, int* tags, void** mhandles,
              void** request);
// `n`: 1 .. transport::kMaxRecvParts. A part of size 0 needs no memory, and `sizes` may be null: then each is as long
// as its registration. *request stays null where nothing waits: host memory, nothing received.
int net_iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
int net_test(void* request, int* done, int* sizes);
int net_close_send(void* send_comm);
int net_close_recv(void* recv_comm);
int net_close_listen(void* listen_comm);

// The context of the ABI versions whose calls carry none (v8 to v10).
void* process_context();
int net_init_process(nccl_abi::DebugLogger logger, nccl_abi::ProfilerCallback callback);
// What the transfers that this thread starts next belong to (v11 and later).
int net_set_attr(void* context, const nccl_abi::NetAttr* attr);

}  // namespace clustar::nccl_plugin
