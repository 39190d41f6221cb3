// ncclNet_v6_t .. v12_t: the function tables a net plugin exports as data objects `ncclNetPlugin_vN`.
// Results are ncclResult_t (Result in types.h) passed as int.
#pragma once

#include "nccl_plugin/abi/properties.h"
#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_abi {

struct TableV6 {
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV6*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm);
  int (*accept)(void* listen_comm, void** recv_comm);
  int (*regMr)(void* comm, void* data, int size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
};
static_assert(sizeof(TableV6) == 136);

struct TableV7 {
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV7*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, int size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
};
static_assert(sizeof(TableV7) == 152);

struct TableV8 {
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV8*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, int size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, int* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
};
static_assert(sizeof(TableV8) == 152);

struct TableV9 {
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV9*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
  int (*makeVDevice)(int* dev, VDeviceV9*);
};
static_assert(sizeof(TableV9) == 160);

struct TableV10 {
  const char* name;
  int (*init)(DebugLogger, ProfilerCallback);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV9*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(int dev, CommConfig*, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
  int (*makeVDevice)(int* dev, VDeviceV9*);
};
static_assert(sizeof(TableV10) == 160);

struct TableV11 {
  const char* name;
  int (*init)(void** ctx, std::uint64_t comm_id, CommConfig*, DebugLogger, ProfilerCallback);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV11*);
  int (*listen)(void* ctx, int dev, void* handle, void** listen_comm);
  int (*connect)(void* ctx, int dev, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
  int (*makeVDevice)(int* dev, VDeviceV9*);
  int (*finalize)(void* ctx);
  int (*setNetAttr)(void* ctx, NetAttr*);
};
static_assert(sizeof(TableV11) == 176);

struct TableV12 {
  const char* name;
  int (*init)(void** ctx, std::uint64_t comm_id, CommConfig*, DebugLogger, ProfilerCallback);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV12*);
  int (*listen)(void* ctx, int dev, void* handle, void** listen_comm);
  int (*connect)(void* ctx, int dev, void* handle, void** send_comm, DeviceHandle** send_dev);
  int (*accept)(void* listen_comm, void** recv_comm, DeviceHandle** recv_dev);
  int (*regMr)(void* comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
  int (*deregMr)(void* comm, void* mhandle);
  int (*isend)(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void* phandle, void** request);
  int (*irecv)(void* recv_comm, int n, void** data, std::size_t* sizes, int* tags, void** mhandles, void** phandles,
               void** request);
  int (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  int (*test)(void* request, int* done, int* sizes);
  int (*closeSend)(void*);
  int (*closeRecv)(void*);
  int (*closeListen)(void*);
  int (*getDeviceMr)(void* comm, void* mhandle, void** dptr_mhandle);
  int (*irecvConsumed)(void* recv_comm, int n, void* request);
  int (*makeVDevice)(int* dev, VDeviceV12*);
  int (*finalize)(void* ctx);
  int (*setNetAttr)(void* ctx, NetAttr*);
};
static_assert(sizeof(TableV12) == 176);

}  // namespace clustar::nccl_abi
