// The CUDA driver as this module uses it: results in words, and contexts that are pushed, popped, kept and given back.
#pragma once

#include <cuda.h>

#include <string>

#include "transport/base/result.h"

// Younger than the oldest driver that should load the module: absent there, so a null pointer.
#pragma weak cuMemGetHandleForAddressRange
#pragma weak cuFlushGPUDirectRDMAWrites

namespace clustar::gdr::cuda {

// "CUDA_ERROR_NOT_SUPPORTED", or "CUresult 12345" of a driver that does not name it.
std::string name_of(CUresult result);

// "CALL WHAT: NAME; FIX".
Error refused(const char* call, const std::string& what, CUresult result, const std::string& fix = {});

// The driver is started, or why not. Cheap when it is.
Result<void> start();

// The context in which a device's memory is worked on: its primary context, which the CUDA runtime and NCCL use. Where
// that is not in use, the memory's own, or the caller's current one, so that no context comes into being beside one
// that is there.
class Context {
 public:
  // `own`: the context of the memory, null if not known. Errors: no such device, no context.
  static Result<Context> of(int device, CUcontext own = nullptr);

  Context(Context&& other) noexcept;
  Context& operator=(Context&& other) noexcept;
  ~Context();

  CUcontext get() const { return context_; }

 private:
  Context(CUcontext context, CUdevice retained, bool is_retained)
      : context_(context), device_(retained), retained_(is_retained) {}

  CUcontext context_;
  CUdevice device_;
  bool retained_;
};

// The calling thread works in this context until the end of the object; then in the one it came with.
class Current {
 public:
  explicit Current(const Context& context) : result_(cuCtxPushCurrent(context.get())) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (result_ == CUDA_SUCCESS) cuCtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  CUresult result() const { return result_; }

 private:
  CUresult result_;
};

}  // namespace clustar::gdr::cuda
