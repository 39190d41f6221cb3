// The exported tables ncclNetPlugin_v8 .. v12: each version only adapts types; net.h does the work.
// Left null on purpose: getDeviceMr, irecvConsumed (for transfers that a kernel drives). regMrDmaBuf is there always:
// NCCL calls it for devices whose ptrSupport says so.

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "nccl_plugin/abi/tables.h"
#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/net/fill_properties.h"
#include "nccl_plugin/net/net.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr const char* kName = "clustar";

template <class VDevice>
int make_v_device(int* device, VDevice* members) {
  if (members == nullptr) return kInvalidArgument;
  return net_make_v_device(device, members->devs, members->ndevs, std::size(members->devs));
}

template <class Properties>
int get_properties(int device, Properties* out) {
  return guarded([&] {
    const auto found = net_device(device);
    if (!found || out == nullptr) return static_cast<int>(kInvalidArgument);
    fill_properties(device, *found, out);
    return static_cast<int>(kSuccess);
  });
}

int init_v8(DebugLogger logger) { return net_init_process(logger, nullptr); }
int init_v10(DebugLogger logger, ProfilerCallback callback) { return net_init_process(logger, callback); }
int init_v11(void** context, std::uint64_t comm_id, CommConfig* config, DebugLogger logger, ProfilerCallback callback) {
  const int traffic_class = config == nullptr ? kTrafficClassUndefined : config->traffic_class;
  return net_init(context, {true, comm_id, traffic_class, callback}, logger);
}

int listen_v8(int device, void* handle, void** listen_comm) {
  return net_listen(process_context(), device, handle, listen_comm);
}
int listen_v11(void* context, int device, void* handle, void** listen_comm) {
  return net_listen(context, device, handle, listen_comm);
}

// A null device handle tells NCCL that the host drives the transfers.
void no_device(DeviceHandle** device_handle) {
  if (device_handle != nullptr) *device_handle = nullptr;
}
int connect_v8(int device, void* handle, void** send_comm, DeviceHandle** device_handle) {
  no_device(device_handle);
  return net_connect(process_context(), device, handle, send_comm);
}
int connect_v10(int device, CommConfig* config, void* handle, void** send_comm, DeviceHandle** device_handle) {
  no_device(device_handle);
  return net_connect(process_context(), device, handle, send_comm,
                     config == nullptr ? kTrafficClassUndefined : config->traffic_class);
}
int connect_v11(void* context, int device, void* handle, void** send_comm, DeviceHandle** device_handle) {
  no_device(device_handle);
  return net_connect(context, device, handle, send_comm);
}
int accept_v8(void* listen_comm, void** recv_comm, DeviceHandle** device_handle) {
  no_device(device_handle);
  return net_accept(listen_comm, recv_comm);
}

int isend_v8(void* send_comm, void* data, int size, int tag, void* mhandle, void** request) {
  if (size < 0) return kInvalidArgument;
  return net_isend(send_comm, data, static_cast<std::size_t>(size), tag, mhandle, nullptr, request);
}
int isend_v9(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** request) {
  return net_isend(send_comm, data, size, tag, mhandle, nullptr, request);
}

int irecv_v8(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request) {
  std::array<std::size_t, transport::kMaxRecvParts> wide{};
  if (sizes == nullptr || n < 1 || static_cast<std::size_t>(n) > wide.size()) return kInvalidArgument;
  for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
    if (sizes[i] < 0) return kInvalidArgument;
    wide[i] = static_cast<std::size_t>(sizes[i]);
  }
  return net_irecv(recv_comm, n, data, wide.data(), tags, mhandles, request);
}
int irecv_v9(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request) {
  return net_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}
// NCCL 2.27's callback reads what the second pointer behind `phandle` points to, and does not look whether it is null,
// as it is until a profiler keeps an operation there (v2.27.7 src/plugin/profiler.cc ncclProfilerCallback,
// src/include/proxy.h ncclProxyEventHandle). 2.26 has another record there, of as much memory; its messages are
// unidentified then.
int isend_v10(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request) {
  const bool kept = phandle != nullptr && static_cast<void* const*>(phandle)[1] != nullptr;
  return net_isend(send_comm, data, size, tag, mhandle, kept ? phandle : nullptr, request);
}
int irecv_v10(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void**,
              void** request) {
  return net_irecv(recv_comm, n, data, sizes, tags, mhandles, request);
}

int set_net_attr(void* context, NetAttr* attr) { return net_set_attr(context, attr); }

}  // namespace
}  // namespace clustar::nccl_plugin

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

CLUSTAR_EXPORT const clustar::nccl_abi::TableV8 ncclNetPlugin_v8;
CLUSTAR_EXPORT const clustar::nccl_abi::TableV9 ncclNetPlugin_v9;
CLUSTAR_EXPORT const clustar::nccl_abi::TableV10 ncclNetPlugin_v10;
CLUSTAR_EXPORT const clustar::nccl_abi::TableV11 ncclNetPlugin_v11;
CLUSTAR_EXPORT const clustar::nccl_abi::TableV12 ncclNetPlugin_v12;

using namespace clustar::nccl_plugin;

const clustar::nccl_abi::TableV8 ncclNetPlugin_v8 = {
    .name = kName,
    .init = init_v8,
    .devices = net_devices,
    .getProperties = get_properties<PropertiesV8>,
    .listen = listen_v8,
    .connect = connect_v8,
    .accept = accept_v8,
    .regMr = net_reg_mr,
    .regMrDmaBuf = net_reg_mr_dma_buf,
    .deregMr = net_dereg_mr,
    .isend = isend_v8,
    .irecv = irecv_v8,
    .iflush = net_iflush,
    .test = net_test,
    .closeSend = net_close_send,
    .closeRecv = net_close_recv,
    .closeListen = net_close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
};

const clustar::nccl_abi::TableV9 ncclNetPlugin_v9 = {
    .name = kName,
    .init = init_v8,
    .devices = net_devices,
    .getProperties = get_properties<PropertiesV9>,
    .listen = listen_v8,
    .connect = connect_v8,
    .accept = accept_v8,
    .regMr = net_reg_mr,
    .regMrDmaBuf = net_reg_mr_dma_buf,
    .deregMr = net_dereg_mr,
    .isend = isend_v9,
    .irecv = irecv_v9,
    .iflush = net_iflush,
    .test = net_test,
    .closeSend = net_close_send,
    .closeRecv = net_close_recv,
    .closeListen = net_close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
    .makeVDevice = make_v_device<VDeviceV9>,
};

const clustar::nccl_abi::TableV10 ncclNetPlugin_v10 = {
    .name = kName,
    .init = init_v10,
    .devices = net_devices,
    .getProperties = get_properties<PropertiesV9>,
    .listen = listen_v8,
    .connect = connect_v10,
    .accept = accept_v8,
    .regMr = net_reg_mr,
    .regMrDmaBuf = net_reg_mr_dma_buf,
    .deregMr = net_dereg_mr,
    .isend = isend_v10,
    .irecv = irecv_v10,
    .iflush = net_iflush,
    .test = net_test,
    .closeSend = net_close_send,
    .closeRecv = net_close_recv,
    .closeListen = net_close_listen,
    .getDeviceMr = nullptr,
    .irecvConsumed = nullptr,
    .makeVDevice = make_v_device<VDeviceV9>,
};

// v11 and v12 differ in their property and virtual-device types only.
template <class Table, class Properties, class VDevice>
constexpr Table table_v11() {
  return {
      .name = kName,
      .init = init_v11,
      .devices = net_devices,
      .getProperties = get_properties<Properties>,
      .listen = listen_v11,
      .connect = connect_v11,
      .accept = accept_v8,
      .regMr = net_reg_mr,
      .regMrDmaBuf = net_reg_mr_dma_buf,
      .deregMr = net_dereg_mr,
      .isend = net_isend,
      .irecv = irecv_v10,
      .iflush = net_iflush,
      .test = net_test,
      .closeSend = net_close_send,
      .closeRecv = net_close_recv,
      .closeListen = net_close_listen,
      .getDeviceMr = nullptr,
      .irecvConsumed = nullptr,
      .makeVDevice = make_v_device<VDevice>,
      .finalize = net_finalize,
      .setNetAttr = set_net_attr,
  };
}

const clustar::nccl_abi::TableV11 ncclNetPlugin_v11 =
    table_v11<clustar::nccl_abi::TableV11, clustar::nccl_abi::PropertiesV11, clustar::nccl_abi::VDeviceV9>();
const clustar::nccl_abi::TableV12 ncclNetPlugin_v12 =
    table_v11<clustar::nccl_abi::TableV12, clustar::nccl_abi::PropertiesV12, clustar::nccl_abi::VDeviceV12>();
