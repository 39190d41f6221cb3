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

// Of an answer to a query: nothing of the context runs any more, and nothing of it will.
bool is_dead(CUresult result);

// A context that cannot be used any more.
inline constexpr const char* kContextFailed = "an earlier error has ended the CUDA context: look for the first one";

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
  // It stays retained when the object ends: giving back the last of a primary context ends it, and waits for its work.
  void keep() { retained_ = false; }

 private:
  Context(CUcontext context, CUdevice retained, bool is_retained)
      : context_(context), device_(retained), retained_(is_retained) {}

  CUcontext context_;
  CUdevice device_;
  bool retained_;
};

// What this thread calls until the end of the object is no part of a capture: while anybody captures a graph in global
// mode, as cudaStreamBeginCapture does by default, calls that may wait are refused in every thread else, and end that
// capture. Around every call that asks, allocates or frees.
class OutsideCaptures {
 public:
  OutsideCaptures() : exchanged_(cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS) {}
  ~OutsideCaptures() {
    if (exchanged_) cuThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;  // then the one that the thread came with
  bool exchanged_;
};

// The calling thread works in this context, outside captures, until the end of the object; then in the one it came
// with.
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
  OutsideCaptures outside_;  // first: it comes before the push and ends after the pop
  CUresult result_;
};

}  // namespace clustar::gdr::cuda
