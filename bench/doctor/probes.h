// The sources of what no file tells: the CUDA driver, libibverbs, the environment.
#pragma once

#include <functional>
#include <string>

#include "gdr/core/settings.h"
#include "gdr/core/tiers.h"
#include "gdr/topology/cuda_driver.h"

namespace clustar::bench::doctor {

struct Probes {
  std::function<gdr::CudaAnswers()> cuda;
  std::function<gdr::NicFacts(const std::string& rdma_device)> nic;
  gdr::Settings settings{};
  bool x86 = true;
};

// Of this machine and process.
Probes probes_here();
// Of a tree that was copied from another machine: all unknown. The settings are this process's.
Probes probes_elsewhere();

}  // namespace clustar::bench::doctor
