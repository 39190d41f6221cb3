#include "bench/doctor/verbs_probe.h"

#if CLUSTAR_DOCTOR_HAS_VERBS
#include "transport/io/verbs/dmabuf_probe.h"
#endif

namespace clustar::bench::doctor {

gdr::NicFacts ask_verbs(const std::string& rdma_device) {
  gdr::NicFacts facts{.data_direct_evidence = "not asked: this version does not call mlx5dv"};
#if CLUSTAR_DOCTOR_HAS_VERBS
  const auto probe = transport::io::verbs::probe_dma_buf(rdma_device);
  if (probe) {
    facts.dma_buf = probe->supported ? gdr::Known::kYes : gdr::Known::kNo;
    facts.dma_buf_evidence = probe->text;
  } else {
    facts.dma_buf_evidence = probe.error().message;
  }
#else
  facts.dma_buf_evidence = "not asked: this build has no libibverbs, so nothing was asked of " + rdma_device;
#endif
  // Only mlx5 has it.
  if (rdma_device.rfind("mlx5", 0) != 0) {
    facts.data_direct = gdr::Known::kNo;
    facts.data_direct_evidence = "it is no mlx5 device";
  }
  return facts;
}

}  // namespace clustar::bench::doctor
