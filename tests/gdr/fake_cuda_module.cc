// Stands in for libcuda.so.1: a Hopper GPU with C2C and an older one whose driver knows few attributes.
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

// What cuInit answers; a test writes it.
EXPORT int fake_cuda_init;
int fake_cuda_init = 0;

EXPORT int cuInit(unsigned) { return fake_cuda_init; }
#ifndef FAKE_CUDA_WITHOUT_NAMES
EXPORT int cuGetErrorName(int status, const char** name) {
  if (status != 100 && status != 901) return 1;
  *name = status == 100 ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_OF_TOMORROW";
  return 0;
}
#endif
EXPORT int cuDriverGetVersion(int* version) {
  *version = 12080;
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = 2;
  return 0;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal + 40;  // a handle, not a number of a device
  return 0;
}
EXPORT int cuDeviceGetPCIBusId(char* text, int length, int device) {
  std::strncpy(text, device == 40 ? "0009:01:00.0" : "00000000:1B:00.0", static_cast<unsigned>(length));
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
  const bool hopper = device == 40;
  switch (attribute) {
    case 75: *value = hopper ? 9 : 7; return 0;
    case 76: *value = hopper ? 0 : 5; return 0;
    case 100: *value = hopper ? 1 : 0; return 0;
    case 116: *value = 1; return 0;
    case 117: *value = 3; return hopper ? 0 : 1;
    case 124: *value = hopper ? 1 : 0; return 0;
    default: return 1;
  }
}
