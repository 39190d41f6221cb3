// Data direct of mlx5: a NIC whose GPU memory goes by a PCIe function of its own, by libmlx5's mlx5dv_reg_dmabuf_mr.
// That is opened at run time and by version, as NCCL does it: distributions' libmlx5 may lack it (rdma-core 44 does).
// Not run on hardware: tests have a libmlx5 of their own.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "gdr/memory.h"
#include "transport/io/verbs/memory.h"

namespace clustar::transport::io::verbs {

struct DataDirectProbe {
  bool supported = false;
  std::string text{};      // "mlx5dv_get_data_direct_sysfs_path on mlx5_0: errno 19 (ENODEV)"
  std::string pci_path{};  // of its function, in /sys; where supported
};

class DataDirect {
 public:
  // The library of this process, opened at the first call and kept.
  static const DataDirect& library();
  // Never fails: what is missing is said by every probe. Tests give a file of their own.
  explicit DataDirect(const std::string& file);
  DataDirect(const DataDirect&) = delete;

  // As NCCL asks: an mlx5 device, whose driver takes dma-bufs by this call, and which has such a function.
  DataDirectProbe probe(const ProtectionDomain& domain) const { return probe(domain.get(), domain.device()); }
  DataDirectProbe probe(ibv_pd* domain, const std::string& device) const;

  // Null with errno set; EOPNOTSUPP where the library has no such call.
  ibv_mr* register_dma_buf(ibv_pd* domain, const gdr::MemoryRef& memory, std::uint64_t address, int access) const;

 private:
  using IsSupported = bool (*)(ibv_device*);
  using GetPath = int (*)(ibv_context*, char*, std::size_t);
  using Register = ibv_mr* (*)(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int, int);

  IsSupported is_supported_ = nullptr;
  GetPath get_path_ = nullptr;
  Register register_ = nullptr;
  std::string missing_{};  // what, and why
};

}  // namespace clustar::transport::io::verbs
