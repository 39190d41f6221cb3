#include "gdr/topology/cuda_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

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
using ErrorName = int (*)(int, const char**);

struct Driver {
  Init init;
  Version version;
  Count count;
  Get get;
  BusId bus_id;
  GetAttribute attribute;
  ErrorName error_name;  // null: a driver before CUDA 6
};

// CUresults with which a driver refuses to start, as CUDA's ABI numbers them.
struct Refusal {
  int status;
  const char* name;
  const char* fix;
};
constexpr Refusal kRefusals[] = {
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver could not start in this process; run it again"},
    {34, "CUDA_ERROR_STUB_LIBRARY",
     "this libcuda.so.1 is the stub of the CUDA toolkit: take its folder (stubs) off LD_LIBRARY_PATH"},
    {100, "CUDA_ERROR_NO_DEVICE",
     "no GPU is shown to this process: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM",
     "a system call of the driver failed: check access to /dev/nvidia*, and ulimit -n"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY",
     "the system is not ready: on machines with NVSwitch start nvidia-fabricmanager"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "libcuda.so.1 and the kernel module are of different versions: reboot, or reload the module after an update"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
     "CUDA's compatibility package is for data center GPUs: take its libcuda.so.1 off LD_LIBRARY_PATH"},
    {999, "CUDA_ERROR_UNKNOWN", "look into the kernel's log (dmesg, lines with NVRM or Xid); modprobe nvidia_uvm"},
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

CudaAnswers refused(const Driver& driver, const char* call, int status) {
  const auto* known = std::find_if(std::begin(kRefusals), std::end(kRefusals),
                                   [&](const Refusal& refusal) { return refusal.status == status; });
  const char* fix = known == std::end(kRefusals) ? "check that nvidia-smi works here" : known->fix;
  const char* name = nullptr;
  // The library's own word first: it knows results that are younger than this.
  if (driver.error_name != nullptr && driver.error_name(status, &name) != 0) name = nullptr;
  if (name == nullptr && known != std::end(kRefusals)) name = known->name;
  return {.not_asked = fmt::format("{} of libcuda.so.1 failed: {} ({}); {}", call, name == nullptr ? "CUresult" : name,
                                   status, fix)};
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
  find(handle, "cuGetErrorName", driver.error_name);
  if (const int status = driver.init(0); status != 0) return refused(driver, "cuInit", status);
  int version = 0;
  driver.version(&version);
  int count = 0;
  if (const int status = driver.count(&count); status != 0) return refused(driver, "cuDeviceGetCount", status);
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
