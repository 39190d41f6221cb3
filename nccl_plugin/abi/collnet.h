// ncclCollNet_v8_t .. v12_t: the function tables that a collective network exports as data objects
// `ncclCollNetPlugin_vN`. Results are ncclResult_t (Result in types.h) passed as int.
// Source of the layouts: NCCL v2.28.9-1 (v8 to v11) and v2.30.7-1 (v12), src/include/plugin/net/.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/properties.h"
#include "nccl_plugin/abi/types.h"

namespace clustar::nccl_abi {

// ncclRedOp_t; the average is a sum for the network.
enum RedOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4 };

// A part of what a call sends or receives.
struct PartV8 {
  void* mhandle;
  void* address;
  std::uint32_t size;
};
struct PartV9 {
  void* mhandle;
  void* address;
  std::size_t size;
};
static_assert(sizeof(PartV8) == 24 && sizeof(PartV9) == 24);

struct CollNetV8 {
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV8*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** coll_comm);
  int (*reduceSupport)(int data_type, int red_op, int* supported);
  int (*regMr)(void* coll_comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                     void** mhandle);
  int (*deregMr)(void* coll_comm, void* mhandle);
  int (*iallreduce)(void* coll_comm, void* send, void* recv, int count, int data_type, int red_op, void* send_mhandle,
                    void* recv_mhandle, void** request);
  int (*iallgather)(void* coll_comm, void* send, int recv_parts, PartV8*, std::size_t bytes_per_rank,
                    std::size_t window_offset, std::size_t window_bytes, void* send_mhandle, void** request);
  int (*ireducescatter)(void* coll_comm, int send_parts, PartV8*, void* recv, std::size_t bytes_per_rank,
                        std::size_t window_offset, std::size_t window_bytes, int data_type, int red_op,
                        void* recv_mhandle, void** request);
  int (*iflush)(void* coll_comm, void* data, int size, void* mhandle, void** request);
  int (*test)(void* request, int* done, int* size);
  int (*closeColl)(void* coll_comm);
  int (*closeListen)(void* listen_comm);
};
static_assert(sizeof(CollNetV8) == 136);

struct CollNetV9 {  // and v10
  const char* name;
  int (*init)(DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, PropertiesV9*);
  int (*listen)(int dev, void* handle, void** listen_comm);
  int (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** coll_comm);
  int (*reduceSupport)(int data_type, int red_op, int* supported);
  int (*regMr)(void* coll_comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                     void** mhandle);
  int (*deregMr)(void* coll_comm, void* mhandle);
  int (*iallreduce)(void* coll_comm, void* send, void* recv, std::size_t count, int data_type, int red_op,
                    void* send_mhandle, void* recv_mhandle, void** request);
  int (*iallgather)(void* coll_comm, void* send, int recv_parts, PartV9*, std::size_t bytes_per_rank,
                    std::size_t window_offset, std::size_t window_bytes, void* send_mhandle, void** request);
  int (*ireducescatter)(void* coll_comm, int send_parts, PartV9*, void* recv, std::size_t bytes_per_rank,
                        std::size_t window_offset, std::size_t window_bytes, int data_type, int red_op,
                        void* recv_mhandle, void** request);
  int (*iflush)(void* coll_comm, void* data, int size, void* mhandle, void** request);
  int (*test)(void* request, int* done, int* size);
  int (*closeColl)(void* coll_comm);
  int (*closeListen)(void* listen_comm);
  int (*makeVDevice)(int* dev, VDeviceV9*);
};
static_assert(sizeof(CollNetV9) == 144);

// v11 and v12 differ in the types of properties and virtual devices only.
template <class Properties, class VDevice>
struct CollNetV11Of {
  const char* name;
  int (*init)(void** ctx, std::uint64_t comm_id, DebugLogger);
  int (*devices)(int* ndev);
  int (*getProperties)(int dev, Properties*);
  int (*listen)(void* ctx, int dev, void* handle, void** listen_comm);
  int (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** coll_comm);
  int (*reduceSupport)(int data_type, int red_op, int* supported);
  int (*regMr)(void* coll_comm, void* data, std::size_t size, int type, void** mhandle);
  int (*regMrDmaBuf)(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                     void** mhandle);
  int (*deregMr)(void* coll_comm, void* mhandle);
  int (*iallreduce)(void* coll_comm, void* send, void* recv, std::size_t count, int data_type, int red_op,
                    void* send_mhandle, void* recv_mhandle, void** request);
  int (*iallgather)(void* coll_comm, void* send, int recv_parts, PartV9*, std::size_t bytes_per_rank,
                    std::size_t window_offset, std::size_t window_bytes, void* send_mhandle, void** request);
  int (*ireducescatter)(void* coll_comm, int send_parts, PartV9*, void* recv, std::size_t bytes_per_rank,
                        std::size_t window_offset, std::size_t window_bytes, int data_type, int red_op,
                        void* recv_mhandle, void** request);
  int (*iflush)(void* coll_comm, void* data, int size, void* mhandle, void** request);
  int (*test)(void* request, int* done, int* size);
  int (*closeColl)(void* coll_comm);
  int (*closeListen)(void* listen_comm);
  int (*makeVDevice)(int* dev, VDevice*);
  int (*finalize)(void* ctx);
};
using CollNetV11 = CollNetV11Of<PropertiesV11, VDeviceV9>;
using CollNetV12 = CollNetV11Of<PropertiesV12, VDeviceV12>;
static_assert(sizeof(CollNetV11) == 152 && sizeof(CollNetV12) == 152);

}  // namespace clustar::nccl_abi
