// Whether an RDMA device takes dma-bufs, found out without one: NCCL asks the same question the same way.
#pragma once

#include <string>

#include "transport/base/result.h"

namespace clustar::transport::io::verbs {

class ProtectionDomain;  // its header needs libibverbs, which users of this one may not have

struct DmaBufProbe {
  bool supported = false;
  int error = 0;       // errno of registering descriptor -1
  std::string text{};  // "ibv_reg_dmabuf_mr of a bad descriptor on mlx5_0: errno 9 (EBADF)"
};

// A device that can do it gets as far as the descriptor, which is bad (EBADF); others say EOPNOTSUPP or
// EPROTONOSUPPORT. Error: the device could not be opened.
Result<DmaBufProbe> probe_dma_buf(const std::string& device);
// The same of an opened one.
DmaBufProbe ask_for_dma_buf(const ProtectionDomain& domain);

// How libclustar-verbs.so offers it (ModuleEntry::find), for programs that do not need libibverbs otherwise.
inline constexpr const char* kProbeDmaBuf = "probe_dma_buf";
using ProbeDmaBuf = Result<DmaBufProbe> (*)(const std::string& device);

}  // namespace clustar::transport::io::verbs
