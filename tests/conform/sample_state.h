// What the sample plugin's files share: its wire format, its objects, and which defect is switched on.
#pragma once

#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "nccl_plugin/abi/types.h"

namespace clustar::sample {

namespace abi = clustar::nccl_abi;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMagic = 0x53414d504c45314eull;
constexpr int kMaxRecvs = 8;

// Is SAMPLE_DEFECT in the environment this name? Read once, when the library is loaded.
bool defect(const char* name);
void block_for_a_while();  // longer than any call may take

// Wire, host byte order (loopback only): the connecting side sends Hello once, then per message a MessageHeader and
// its payload.
struct Hello {
  std::uint64_t magic, token;
  std::int64_t pid;
};
struct MessageHeader {
  std::uint32_t magic;
  std::int32_t tag;
  std::uint64_t size;
};

// A registration. A dma-buf's bytes are reached through a mapping of its descriptor, as a NIC reaches them through its
// own; the others at the address that NCCL gave.
struct Mr {
  int type = 0;
  std::byte* data = nullptr;  // NCCL's address
  std::size_t size = 0;
  std::byte* mapping = nullptr;
  std::size_t mapping_bytes = 0;
  std::byte* reached = nullptr;  // what `data` is here
  // Used by defects only.
  int fd = -1;
  bool invalid = false;
};

struct Comm;
struct Part {
  std::byte* data;
  std::size_t size;  // posted
  int tag;
  std::size_t total;  // bytes that the peer sent
  bool claimed, complete;
};
struct Request {
  Comm* comm = nullptr;
  bool used = false, flush = false;
  int n = 0;
  std::array<Part, kMaxRecvs> parts{};
  Clock::time_point posted;
  bool complete() const {
    return std::all_of(parts.begin(), parts.begin() + n, [](const Part& part) { return part.complete; });
  }
};
struct Unexpected {
  int tag;
  std::vector<std::byte> data;
  bool complete = false;
};

// One connection, one direction, one socket. Used by one thread at a time, but for regMr.
struct Comm {
  int fd = -1;
  bool sender = false;
  bool failed = false;
  Clock::time_point asked_of_failure{};  // when it was first asked after it had failed
  std::array<Request, abi::kMaxRequests * kMaxRecvs> pool;
  std::list<Request*> queue;  // posted and incomplete, oldest first
  // Position in the message that is on its way.
  MessageHeader header{};
  std::size_t offset = 0;  // header bytes, then payload bytes
  Part* target = nullptr;
  Unexpected* spill = nullptr;
  std::list<Unexpected> unexpected;  // arrived before a receive of their tag was posted, while others were
  // Used by defects only.
  std::vector<int> registered;
  std::vector<Mr*> mrs;
  std::int64_t owner = 0;
};

// NCCL_PTR_*.
int ptr_support();

// With a defect fuse_* there are two plain devices, which become one virtual device.
int plain_devices();
int virtual_devices();
bool has_device(int dev);  // that can be listened on

int init(std::uint64_t comm_id, const abi::CommConfig* config, void** ctx);
int finalize(void* ctx);
int devices(int* count);
int listen_on(int dev, void* opaque, void** listen_comm);
int connect_to(int dev, void* opaque, void** send_comm);
int accept_from(void* listen_comm, void** recv_comm);
int close_listen(void* opaque);
int close_comm(void* opaque);

int reg_mr(void* comm, void* data, std::size_t size, int type, void** mhandle);
int reg_mr_dma_buf(void* comm, void* data, std::size_t size, int type, std::uint64_t offset, int fd, void** mhandle);
int dereg_mr(void* comm, void* mhandle);
int isend(void* send_comm, void* data, std::size_t size, int tag, void* mhandle, void** out);
int irecv(void* recv_comm, int n, void** data, const std::size_t* sizes, const int* tags, void** mhandles, void** out);
int iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** out);
int test(void* opaque, int* done, int* sizes);

}  // namespace clustar::sample
