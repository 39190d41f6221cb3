// The plugin's collective network as NCCL drives it: its tables of each version in one shape, and ranks as threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nccl_plugin/abi/collnet.h"
#include "nccl_plugin/abi/types.h"
#include "tests/plugin/plugin_under_test.h"

namespace clustar::tests {

struct CollNetProperties {
  int ptr_support = 0;
  std::size_t max_coll_bytes = 0;  // 0: the version has none
};

// A table of the library, loaded for as long as this lives. Calls return what the plugin does.
class CollNet {
 public:
  virtual ~CollNet() = default;
  static std::unique_ptr<CollNet> open(int version, const std::string& path = kPluginPath);

  virtual int init(void** context, std::uint64_t comm_id) = 0;
  virtual int finalize(void* context) = 0;
  virtual int listen(void* context, int device, void* handle, void** listen_comm) = 0;
  virtual int properties(int device, CollNetProperties* out) = 0;
  virtual int all_reduce(void* comm, void* send, void* recv, std::size_t count, int type, int op, void* send_mr,
                         void* recv_mr, void** request) = 0;
  virtual int all_gather(void* comm, void* send, void* recv, std::size_t per_rank, std::size_t offset,
                         std::size_t bytes, void* send_mr, void* recv_mr, void** request) = 0;
  virtual int reduce_scatter(void* comm, void* send, void* recv, std::size_t per_rank, std::size_t offset,
                             std::size_t bytes, int type, int op, void* send_mr, void* recv_mr, void** request) = 0;

  // Alike in all versions.
  int (*devices)(int*) = nullptr;
  int (*connect)(void* handles[], int ranks, int rank, void* listen_comm, void** comm) = nullptr;
  int (*reduce_support)(int type, int op, int* supported) = nullptr;
  int (*reg_mr)(void* comm, void* data, std::size_t size, int type, void** mr) = nullptr;
  int (*reg_mr_dma_buf)(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                        void** mr) = nullptr;
  int (*dereg_mr)(void* comm, void* mr) = nullptr;
  int (*flush)(void* comm, void* data, int size, void* mr, void** request) = nullptr;
  int (*test)(void* request, int* done, int* size) = nullptr;
  int (*close_coll)(void* comm) = nullptr;
  int (*close_listen)(void* listen_comm) = nullptr;
};

// What the plugin logged since the last call, with level WARN and above first in each line.
std::string collnet_log();

// One rank of a network.
struct CollRank {
  CollNet& net;
  int rank = 0;
  int ranks = 1;
  void* context = nullptr;
  void* comm = nullptr;

  // Of memory that stays as long as the rank: the handle.
  void* reg(void* data, std::size_t size, int type = nccl_abi::kPtrHost);
  // Until the request is done, or fails: its ncclResult_t. -1: nothing came of it within 60 s.
  int wait(void* request);
  void dereg_all();
  // As NCCL does at the end of a communicator.
  void leave();

  std::vector<void*> registered{};
};

// Each rank in a thread, from init to finalize. A rank that `body` has closed (comm is null) is not closed again.
void with_coll_ranks(CollNet& net, int ranks, const std::function<void(CollRank&)>& body);
// The ranks listen, exchange handles and connect; what connect said of each.
std::vector<int> connect_all(CollNet& net, std::vector<CollRank>& ranks, const std::vector<int>& who);

// Whole numbers from 0 to 127 in each datatype, so that no sum rounds.
std::size_t element_size(int type);
void encode(int type, int number, std::byte* at);
// Of rank `rank`'s element i.
inline int value_of(int rank, std::size_t i) {
  return static_cast<int>((i * 7 + static_cast<std::size_t>(rank) * 5) % 8);
}
std::vector<std::byte> values(int type, int rank, std::size_t begin, std::size_t count);
std::vector<std::byte> reduced(int type, int op, int ranks, std::size_t begin, std::size_t count);

}  // namespace clustar::tests
