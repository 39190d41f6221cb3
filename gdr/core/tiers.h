// Which way GPU memory reaches a NIC, and for every better way why not. Pure: facts in, decision out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gdr/core/distance.h"
#include "gdr/core/machine.h"
#include "gdr/core/settings.h"

namespace clustar::gdr {

// Best first. kPinnedHost: no GPUDirect RDMA; NCCL's kernels copy to and from pinned host memory.
enum class Tier : std::uint8_t { kDataDirect, kDmaBuf, kPeermem, kPinnedHost };
// How what a NIC wrote becomes visible to the GPU before it is told of it.
enum class Flush : std::uint8_t { kNone, kRdmaRead, kGdrcopy, kCudaFlush };

const char* to_string(Tier tier);
const char* to_string(Flush flush);

// What the CUDA driver says.
struct GpuFacts {
  std::string not_asked{};              // why the rest is unknown; empty: it was asked
  Known direct_rdma = Known::kUnknown;  // CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED
  Known dma_buf = Known::kUnknown;      // CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED
  Known cuda_flush = Known::kUnknown;   // cuFlushGPUDirectRDMAWrites
  Known c2c = Known::kUnknown;          // joined to its CPU by NVLink-C2C
  Known nvlink = Known::kUnknown;       // to another GPU
  int compute_capability = 0;           // 90 = 9.0; 0 = unknown
  int cuda_version = 0;                 // of the driver: 13000 = 13.0; 0 = unknown
};

struct NicFacts {
  Known dma_buf = Known::kUnknown;      // ibv_reg_dmabuf_mr of a bad descriptor: EBADF = yes
  std::string dma_buf_evidence{};       // what it answered, or why it was not asked
  Known data_direct = Known::kUnknown;  // of mlx5: a PCIe function of its own for GPU memory
  std::string data_direct_evidence{};
  Known rdma_read = Known::kYes;  // UC and UD have none
};

struct Facts {
  GpuFacts gpu{};
  NicFacts nic{};
  Settings settings{};
  bool x86 = true;
};

enum class Direction : std::uint8_t { kBoth, kReceive, kSend };

// Why a tier was not taken. Not certain: its facts are unknown, so it may work all the same.
struct Reason {
  Tier tier = Tier::kPinnedHost;
  Direction direction = Direction::kBoth;
  bool certain = true;
  std::string why{};  // a sentence with its evidence
  std::string fix{};  // a command or a step
};

// What slows GPUDirect RDMA down or may break it, though NCCL does not look at it.
struct Note {
  std::string why{};
  std::string fix{};
};

struct Decision {
  std::string gpu{};
  std::string nic{};
  Distance distance = Distance::kUnknown;
  Tier receive = Tier::kPinnedHost;
  Tier send = Tier::kPinnedHost;
  // A better tier is refused for what is unknown only.
  bool receive_certain = true;
  bool send_certain = true;
  // On a GPU with C2C whose data takes PCIe: dma-bufs must be exported for that
  // (CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE).
  bool pcie_mapping = false;
  Flush flush = Flush::kNone;
  std::string flush_why{};
  std::vector<Reason> reasons{};  // by tier, the best first
  std::vector<Note> notes{};
};

Decision decide(const Machine& machine, const Gpu& gpu, const Nic& nic, const Facts& facts);

}  // namespace clustar::gdr
