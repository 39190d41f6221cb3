// What the driver of GPUs tells a transport whose library registers GPU memory by itself.
#pragma once

#include "transport/base/result.h"

namespace clustar::transport {

// Any thread. Nothing waits for a kernel.
class GpuDriver {
 public:
  GpuDriver() = default;
  virtual ~GpuDriver() = default;
  GpuDriver(const GpuDriver&) = delete;
  GpuDriver& operator=(const GpuDriver&) = delete;

  // CUDA's ordinal of the device that owns the memory. Errors: the driver's; the memory is no device's.
  virtual Result<int> device_of(const void* address) = 0;
  // What NICs have written to the device's memory before is visible to its kernels after this. Error: the driver's.
  virtual Result<void> flush(int device) = 0;
};

}  // namespace clustar::transport
