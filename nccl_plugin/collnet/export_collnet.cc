// The exported tables ncclCollNetPlugin_v8 .. v12: each version only adapts types; collnet.h does the work.
// Left null on purpose: makeVDevice. A fused device of the net plugin takes no part: NCCL makes those for each network.

#include <cstddef>
#include <cstdint>

#include "nccl_plugin/abi/collnet.h"
#include "nccl_plugin/c_boundary.h"
#include "nccl_plugin/collnet/collnet.h"
#include "nccl_plugin/net/fill_properties.h"

namespace clustar::nccl_plugin {
namespace {

using namespace nccl_abi;

constexpr const char* kName = "clustar";

template <class Properties>
int get_properties(int device, Properties* out) {
  return guarded([&] {
    const auto found = collnet_device(device);
    if (!found || out == nullptr) return static_cast<int>(kInvalidArgument);
    fill_properties(device, *found, out);
    if constexpr (requires { out->max_coll_bytes; }) out->max_coll_bytes = kMostCollBytes;
    return static_cast<int>(kSuccess);
  });
}

int listen_v8(int device, void* handle, void** listen_comm) {
  return collnet_listen(collnet_process_context(), device, handle, listen_comm);
}

int iallreduce_v8(void* coll_comm, void* send, void* recv, int count, int data_type, int red_op, void* send_mhandle,
                  void* recv_mhandle, void** request) {
  if (count < 0) return kInvalidArgument;
  return collnet_iallreduce(coll_comm, send, recv, static_cast<std::size_t>(count), data_type, red_op, send_mhandle,
                            recv_mhandle, request);
}

template <class Part>
int iallgather(void* coll_comm, void* send, int parts, Part* recv, std::size_t bytes_per_rank,
               std::size_t window_offset, std::size_t window_bytes, void* send_mhandle, void** request) {
  if (recv == nullptr) return kInvalidArgument;
  return collnet_iallgather(coll_comm, send, parts, {recv->mhandle, recv->address, recv->size},
                            {bytes_per_rank, window_offset, window_bytes}, send_mhandle, request);
}

template <class Part>
int ireducescatter(void* coll_comm, int parts, Part* send, void* recv, std::size_t bytes_per_rank,
                   std::size_t window_offset, std::size_t window_bytes, int data_type, int red_op, void* recv_mhandle,
                   void** request) {
  if (send == nullptr) return kInvalidArgument;
  return collnet_ireducescatter(coll_comm, parts, {send->mhandle, send->address, send->size}, recv,
                                {bytes_per_rank, window_offset, window_bytes}, data_type, red_op, recv_mhandle,
                                request);
}

// What all versions have. `init`, `listen` and, in v8, `iallreduce` have other arguments.
template <class Table, class Properties, class Part>
constexpr Table common() {
  Table table{};
  table.name = kName;
  table.devices = collnet_devices;
  table.getProperties = get_properties<Properties>;
  table.connect = collnet_connect;
  table.reduceSupport = collnet_reduce_support;
  table.regMr = collnet_reg_mr;
  table.regMrDmaBuf = collnet_reg_mr_dma_buf;
  table.deregMr = collnet_dereg_mr;
  table.iallgather = iallgather<Part>;
  table.ireducescatter = ireducescatter<Part>;
  table.iflush = collnet_iflush;
  table.test = collnet_test;
  table.closeColl = collnet_close_coll;
  table.closeListen = collnet_close_listen;
  return table;
}

constexpr CollNetV8 table_v8() {
  auto table = common<CollNetV8, PropertiesV8, PartV8>();
  table.init = collnet_init_process;
  table.listen = listen_v8;
  table.iallreduce = iallreduce_v8;
  return table;
}

constexpr CollNetV9 table_v9() {
  auto table = common<CollNetV9, PropertiesV9, PartV9>();
  table.init = collnet_init_process;
  table.listen = listen_v8;
  table.iallreduce = collnet_iallreduce;
  return table;
}

template <class Table, class Properties>
constexpr Table table_v11() {
  auto table = common<Table, Properties, PartV9>();
  table.init = collnet_init;
  table.listen = collnet_listen;
  table.iallreduce = collnet_iallreduce;
  table.finalize = collnet_finalize;
  return table;
}

}  // namespace
}  // namespace clustar::nccl_plugin

#define CLUSTAR_EXPORT extern "C" __attribute__((visibility("default")))

CLUSTAR_EXPORT const clustar::nccl_abi::CollNetV8 ncclCollNetPlugin_v8;
CLUSTAR_EXPORT const clustar::nccl_abi::CollNetV9 ncclCollNetPlugin_v9;
CLUSTAR_EXPORT const clustar::nccl_abi::CollNetV9 ncclCollNetPlugin_v10;
CLUSTAR_EXPORT const clustar::nccl_abi::CollNetV11 ncclCollNetPlugin_v11;
CLUSTAR_EXPORT const clustar::nccl_abi::CollNetV12 ncclCollNetPlugin_v12;

using namespace clustar::nccl_plugin;

constexpr clustar::nccl_abi::CollNetV8 ncclCollNetPlugin_v8 = table_v8();
constexpr clustar::nccl_abi::CollNetV9 ncclCollNetPlugin_v9 = table_v9();
constexpr clustar::nccl_abi::CollNetV9 ncclCollNetPlugin_v10 = table_v9();
constexpr clustar::nccl_abi::CollNetV11 ncclCollNetPlugin_v11 =
    table_v11<clustar::nccl_abi::CollNetV11, clustar::nccl_abi::PropertiesV11>();
constexpr clustar::nccl_abi::CollNetV12 ncclCollNetPlugin_v12 =
    table_v11<clustar::nccl_abi::CollNetV12, clustar::nccl_abi::PropertiesV12>();
