#include "gdr/topology/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace clustar::gdr {
namespace {

// Numbers of CUdevice_attribute, which CUDA's ABI fixes.
enum Attribute : int {
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kHostPageTables = 100,  // pageable memory through the host's page tables
  kGpuDirectRdma = 116,
  kFlushOptions = 117,
  kDmaBuf = 124,
};

using Init = int (*)(unsigned);
using Version = int (*)(int*);
using Count = int (*)(int*);
using Get = int (*)(int*, int);
using BusId = int (*)(char*, int, int);
using GetAttribute = int (*)(int*, int, int);

struct Driver {
  Init init;
  Version version;
  Count count;
  Get get;
  BusId bus_id;
  GetAttribute attribute;
};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Known flag(const Driver& driver, int device, Attribute attribute, int mask = -1) {
  int value = 0;
  // A driver that does not know an attribute returns an error.
  if (driver.attribute(&value, attribute, device) != 0) return Known::kUnknown;
  return (value & mask) != 0 ? Known::kYes : Known::kNo;
}

GpuFacts ask(const Driver& driver, int device, int cuda_version) {
  GpuFacts facts{.cuda_version = cuda_version};
  facts.direct_rdma = flag(driver, device, kGpuDirectRdma);
  facts.dma_buf = flag(driver, device, kDmaBuf);
  facts.cuda_flush = flag(driver, device, kFlushOptions, 1);
  int major = 0;
  int minor = 0;
  if (driver.attribute(&major, kCapabilityMajor, device) == 0 &&
      driver.attribute(&minor, kCapabilityMinor, device) == 0) {
    facts.compute_capability = major * 10 + minor;
  }
  // NCCL asks NVML for the number of C2C links. A GPU from Hopper on that walks the host's page tables has some.
  const Known host_tables = flag(driver, device, kHostPageTables);
  facts.c2c = facts.compute_capability == 0    ? Known::kUnknown
              : facts.compute_capability >= 90 ? host_tables
                                               : Known::kNo;
  return facts;
}

// "0000:1B:00.0" or "00000000:1B:00.0" as sysfs writes it.
std::string as_in_sysfs(std::string address) {
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::size_t kLength = 12;
  return address.size() > kLength ? address.substr(address.size() - kLength) : address;
}

CudaAnswers refused(const char* call, int status) {
  return {.not_asked = fmt::format("{} of libcuda.so.1 failed with CUresult {}", call, status)};
}

}  // namespace

CudaAnswers ask_cuda_driver(const char* library) {
  // Stays open: the driver's threads may run until the process ends.
  void* const handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return {.not_asked = fmt::format("not asked: {} is not there, or cannot be loaded ({})", library,
                                     why == nullptr ? "no reason given" : why)};
  }
  Driver driver{};
  if (!find(handle, "cuInit", driver.init) || !find(handle, "cuDriverGetVersion", driver.version) ||
      !find(handle, "cuDeviceGetCount", driver.count) || !find(handle, "cuDeviceGet", driver.get) ||
      !find(handle, "cuDeviceGetPCIBusId", driver.bus_id) || !find(handle, "cuDeviceGetAttribute", driver.attribute)) {
    return {.not_asked = fmt::format("not asked: {} lacks functions of the CUDA driver", library)};
  }
  if (const int status = driver.init(0); status != 0) return refused("cuInit", status);
  int version = 0;
  driver.version(&version);
  int count = 0;
  if (const int status = driver.count(&count); status != 0) return refused("cuDeviceGetCount", status);
  CudaAnswers answers;
  for (int i = 0; i < count; ++i) {
    int device = 0;
    std::array<char, 32> address{};
    if (driver.get(&device, i) != 0 || driver.bus_id(address.data(), address.size() - 1, device) != 0) continue;
    answers.gpus[as_in_sysfs(address.data())] = ask(driver, device, version);
  }
  return answers;
}

GpuFacts facts_of(const CudaAnswers& answers, const std::string& pci_address) {
  if (!answers.not_asked.empty()) return {.not_asked = answers.not_asked};
  const auto known = answers.gpus.find(pci_address);
  if (known != answers.gpus.end()) return known->second;
  return {.not_asked = "CUDA does not show this GPU to this process (CUDA_VISIBLE_DEVICES, MIG, or another driver)"};
}

}  // namespace clustar::gdr
