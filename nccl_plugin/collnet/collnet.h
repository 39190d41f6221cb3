// The collective network's operations, once for all ABI versions: opaque pointers in, ncclResult_t out, nothing thrown.
// Rules of each call: NCCL v2.28.9 src/transport/coll_net.cc; see README.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "nccl_plugin/abi/types.h"
#include "nccl_plugin/net/net.h"

namespace clustar::nccl_plugin {

// Where the collective network is not offered *context stays null: NCCL then sees no device, and never finalizes it.
int collnet_init(void** context, std::uint64_t comm_id, nccl_abi::DebugLogger logger);
int collnet_init_process(nccl_abi::DebugLogger logger);
int collnet_finalize(void* context);
// None where it is not offered.
int collnet_devices(int* count);
// The net plugin's devices, by the same numbers: NCCL has one node of its topology for both.
std::optional<NetDevice> collnet_device(int device);
// What NCCL is told that one call may have.
inline constexpr std::size_t kMostCollBytes = std::size_t{1} << 30;

int collnet_listen(void* context, int device, void* handle, void** listen_comm);
// Blocks, for CollComm::kSetUp at most. NCCL forgets the listener when it fails (sharedConnect).
int collnet_connect(void* handles[], int ranks, int rank, void* listen_comm, void** coll_comm);
int collnet_reduce_support(int data_type, int red_op, int* supported);
int collnet_reg_mr(void* coll_comm, void* data, std::size_t size, int type, void** mhandle);
int collnet_reg_mr_dma_buf(void* coll_comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                           void** mhandle);
int collnet_dereg_mr(void* coll_comm, void* mhandle);

int collnet_iallreduce(void* coll_comm, void* send, void* recv, std::size_t count, int data_type, int red_op,
                       void* send_mhandle, void* recv_mhandle, void** request);
struct CollPart {
  void* mhandle = nullptr;
  void* address = nullptr;
  std::size_t size = 0;
};
struct CollWindow {
  std::size_t bytes_per_rank = 0, offset = 0, bytes = 0;
};
int collnet_iallgather(void* coll_comm, void* send, int parts, const CollPart& recv, const CollWindow& window,
                       void* send_mhandle, void** request);
int collnet_ireducescatter(void* coll_comm, int parts, const CollPart& send, void* recv, const CollWindow& window,
                           int data_type, int red_op, void* recv_mhandle, void** request);
// *request stays null: what is done is there.
int collnet_iflush(void* coll_comm, void* data, int size, void* mhandle, void** request);
int collnet_test(void* request, int* done, int* size);
int collnet_close_coll(void* coll_comm);
int collnet_close_listen(void* listen_comm);

// The context of the ABI versions whose calls carry none (v8 to v10).
void* collnet_process_context();

}  // namespace clustar::nccl_plugin
