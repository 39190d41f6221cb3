#include "bench/doctor/probes.h"

#include <cstdlib>

#include "bench/doctor/verbs_probe.h"

namespace clustar::bench::doctor {
namespace {

std::optional<std::string> variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

gdr::Settings settings() {
  return {.gdr_level = variable("NCCL_NET_GDR_LEVEL"),
          .gdr_read = variable("NCCL_NET_GDR_READ"),
          .gdr_c2c = variable("NCCL_NET_GDR_C2C"),
          .dmabuf_enable = variable("NCCL_DMABUF_ENABLE"),
          .data_direct = variable("NCCL_IB_DATA_DIRECT"),
          .force_flush = variable("NCCL_NET_FORCE_FLUSH"),
          .gdrcopy_enable = variable("NCCL_GDRCOPY_ENABLE"),
          .gdrcopy_flush = variable("NCCL_GDRCOPY_FLUSH_ENABLE")};
}

#if defined(__x86_64__)
constexpr bool kX86 = true;
#else
constexpr bool kX86 = false;
#endif

}  // namespace

Probes probes_here() {
  return {.cuda = [] { return gdr::ask_cuda_driver(); }, .nic = ask_verbs, .settings = settings(), .x86 = kX86};
}

Probes probes_elsewhere() {
  const std::string why = "not asked: the tree is not this machine's";
  return {
      .cuda = [why] { return gdr::CudaAnswers{.not_asked = why}; },
      .nic = [why](const std::string&) { return gdr::NicFacts{.dma_buf_evidence = why, .data_direct_evidence = why}; },
      .settings = settings(),
      .x86 = kX86};
}

}  // namespace clustar::bench::doctor
