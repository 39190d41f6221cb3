// One GPU of this process, as a program that computes on it needs it: memory, and kernels on one stream. For trainers
// and framework hooks; never for NCCL's proxy thread, whose every call has to return at once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "gdr/kernels/arguments.h"
#include "gdr/launch/driver_calls.h"
#include "gdr/launch/image.h"
#include "transport/base/result.h"

namespace clustar::gdr::launch {

inline constexpr const char* kCudaDriver = "libcuda.so.1";
inline constexpr const char* kEmulatedDevice = "Emulated device";  // whose kernels run on the processor

struct Grid {
  unsigned x = 1;
  unsigned y = 1;
  unsigned threads = 256;  // of a block
};

// Work happens in the order of asking, in the device's primary context, where the CUDA runtime and NCCL are, too.
// Errors name the call and the driver's word for what it answered; what failed on the device, a later call tells, and
// the device is of no use then. Of one thread at a time. Waits at most `patience` for the device.
class Device {
 public:
  class InContext;

  // Of the GPUs that `library` shows the one of that number, counted round: that of a rank. `module` stays valid.
  // kUnavailable: no driver, no device, or a build without device code.
  static Result<std::unique_ptr<Device>> open(const std::string& library, const Image& module, int number = 0,
                                              std::chrono::milliseconds patience = std::chrono::seconds(60));
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const std::string& name() const { return name_; }
  bool emulated() const { return name_ == kEmulatedDevice; }

  // At least 256-byte aligned; not null.
  Result<void*> allocate(std::size_t bytes);
  void release(void* memory);  // once its work is done, which is waited for
  // `host` may be changed when it returns.
  Result<void> upload(void* device, const void* host, std::size_t bytes);
  Result<void> download(void* host, const void* device, std::size_t bytes);  // waits for all before it
  Result<void> copy(void* to, const void* from, std::size_t bytes);          // from device memory to device memory
  Result<void> fill(void* device, std::uint32_t word, std::size_t count);
  template <class Argument>
  Result<void> launch(const Kernel<Argument>& kernel, const Grid& grid, Argument argument) {
    return launch_by_name(kernel.name, grid, &argument);
  }
  // For `count` elements, each one a thread's in turn: enough blocks to fill the device, not more than there is work
  // for.
  Grid grid_for(std::uint64_t count, unsigned threads = 256) const;
  Result<void> wait();
  // A cudaEvent_t (a CUevent) behind all that was asked for so far, for other streams to wait for. The device's: the
  // next mark() moves it, which those that wait for it already do not mind.
  Result<void*> mark();
  // A cudaStream_t (a CUstream) for a library whose work is to lie in order with ours. Its calls need an InContext.
  void* stream() const { return stream_; }

 private:
  Device() = default;
  Result<void> start(const std::string& library, const Image& module, int number);
  int settle() const;  // waits: what the work ended with, or kNotReady
  Result<void> check(int result, const std::string& call) const;
  Result<void> launch_by_name(const char* name, const Grid& grid, void* argument);

  DriverCalls calls_;
  std::chrono::milliseconds patience_{};
  std::string name_;
  int device_ = 0;
  unsigned multiprocessors_ = 1;
  void* context_ = nullptr;
  void* module_ = nullptr;
  void* stream_ = nullptr;
  void* mark_ = nullptr;
  std::map<std::string, void*> functions_;
};

// While it lives the device's context is the calling thread's current one; afterwards that which it came with.
class Device::InContext {
 public:
  explicit InContext(const Device& device) : calls_(device.calls_) { calls_.push(device.context_); }
  ~InContext() {
    void* popped = nullptr;
    calls_.pop(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

 private:
  const DriverCalls& calls_;
};

}  // namespace clustar::gdr::launch
