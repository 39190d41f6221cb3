// An NVML of one device without NVLink; NCCL loads it as libnvidia-ml.so.1 and does not start without it.

#include <nvmlwrap.h>

#define CLUSTAR_NVML(name, ...) extern "C" __attribute__((visibility("default"))) int name(__VA_ARGS__)

namespace {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;
char only_device;
}  // namespace

CLUSTAR_NVML(nvmlInit_v2) { return kSuccess; }
CLUSTAR_NVML(nvmlInit) { return kSuccess; }
CLUSTAR_NVML(nvmlShutdown) { return kSuccess; }
extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int) { return "emulated NVML error"; }
CLUSTAR_NVML(nvmlDeviceGetCount_v2, unsigned* count) { return *count = 1, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetCount, unsigned* count) { return *count = 1, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetHandleByIndex, unsigned, void** device) { return *device = &only_device, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetHandleByPciBusId, const char*, void** device) { return *device = &only_device, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetIndex, void*, unsigned* index) { return *index = 0, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetCudaComputeCapability, void*, int* major, int* minor) {
  *major = 9;
  *minor = 0;
  return kSuccess;
}
// From 2.30 on NCCL asks these, which it calls without a look at whether they are there, before sysfs.
CLUSTAR_NVML(nvmlDeviceGetPciInfo_v3, void*, nvmlPciInfo_t* info) {
  *info = {};
  info->bus = 0x65;
  info->pciDeviceId = 0x233010de;
  return kSuccess;
}
CLUSTAR_NVML(nvmlDeviceGetCurrPcieLinkGeneration, void*, unsigned* generation) { return *generation = 5, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetCurrPcieLinkWidth, void*, unsigned* lanes) { return *lanes = 16, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetP2PStatus, void*, void*, int, int* status) { return *status = 0, kSuccess; }
CLUSTAR_NVML(nvmlDeviceGetNvLinkState, void*, unsigned, int*) { return kNotSupported; }
CLUSTAR_NVML(nvmlDeviceGetNvLinkCapability, void*, unsigned, int, unsigned*) { return kNotSupported; }
CLUSTAR_NVML(nvmlDeviceGetNvLinkRemotePciInfo, void*, unsigned, void*) { return kNotSupported; }
