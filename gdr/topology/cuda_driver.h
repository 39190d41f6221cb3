// What the CUDA driver says of each GPU, asked without creating a context. No part of CUDA is needed to build this.
#pragma once

#include <map>
#include <string>

#include "gdr/core/tiers.h"

namespace clustar::gdr {

struct CudaAnswers {
  std::string not_asked{};                 // why nothing is known; empty: it was asked
  std::map<std::string, GpuFacts> gpus{};  // by PCI address; only the GPUs that CUDA shows to this process
};

// Opens libcuda.so.1, which starts the driver for this process: for tools, never from a plugin.
CudaAnswers ask_cuda_driver(const char* library = "libcuda.so.1");

// Of one GPU. An address that CUDA does not know: facts that say why they are unknown.
GpuFacts facts_of(const CudaAnswers& answers, const std::string& pci_address);

}  // namespace clustar::gdr
