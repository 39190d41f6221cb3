#include "gdr/cuda/driver.h"

#include <fmt/format.h>

#include <utility>

namespace clustar::gdr::cuda {
namespace {

const char* fix_of_start(CUresult result) {
  switch (result) {
    case CUDA_ERROR_NO_DEVICE:
      return "no GPU is shown to this process: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's devices";
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
      return "libcuda.so.1 and the kernel module are of different versions: reboot, or reload the module after an "
             "update";
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "CUDA's compatibility package is for data center GPUs: take its libcuda.so.1 off LD_LIBRARY_PATH";
    default: return "check that nvidia-smi works here";
  }
}

bool is_current_on(CUdevice device, CUcontext& context) {
  CUdevice of_current = 0;
  return cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr &&
         cuCtxGetDevice(&of_current) == CUDA_SUCCESS && of_current == device;
}

}  // namespace

std::string name_of(CUresult result) {
  const char* name = nullptr;
  if (cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return fmt::format("CUresult {}", static_cast<int>(result));
}

Error refused(const char* call, const std::string& what, CUresult result, const std::string& fix) {
  return {ErrorCode::kUnavailable, fmt::format("{}{}{}: {}{}{}", call, what.empty() ? "" : " ", what, name_of(result),
                                               fix.empty() ? "" : "; ", fix)};
}

bool is_dead(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

Result<void> start() {
  const OutsideCaptures outside;
  if (const CUresult result = cuInit(0); result != CUDA_SUCCESS) {
    return tl::unexpected(refused("cuInit", "", result, fix_of_start(result)));
  }
  return {};
}

Result<Context> Context::of(int device, CUcontext own) {
  const OutsideCaptures outside;
  CUdevice handle = 0;
  if (const CUresult result = cuDeviceGet(&handle, device); result != CUDA_SUCCESS) {
    return tl::unexpected(refused("cuDeviceGet", fmt::format("of device {}", device), result,
                                  "devices are numbered as CUDA_VISIBLE_DEVICES shows them to this process"));
  }
  unsigned flags = 0;
  int active = 0;
  if (cuDevicePrimaryCtxGetState(handle, &flags, &active) != CUDA_SUCCESS || active == 0) {
    if (own != nullptr) return Context(own, handle, false);
    CUcontext current = nullptr;
    if (is_current_on(handle, current)) return Context(current, handle, false);
  }
  CUcontext primary = nullptr;
  if (const CUresult result = cuDevicePrimaryCtxRetain(&primary, handle); result != CUDA_SUCCESS) {
    return tl::unexpected(refused("cuDevicePrimaryCtxRetain", fmt::format("of device {}", device), result,
                                  "the GPU may be full, or another process's alone: nvidia-smi, Compute Mode"));
  }
  return Context(primary, handle, true);
}

Context::Context(Context&& other) noexcept
    : context_(other.context_), device_(other.device_), retained_(std::exchange(other.retained_, false)) {}

Context& Context::operator=(Context&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(device_, other.device_);
  std::swap(retained_, other.retained_);
  return *this;
}

Context::~Context() {
  if (!retained_) return;
  const OutsideCaptures outside;
  cuDevicePrimaryCtxRelease(device_);
}

}  // namespace clustar::gdr::cuda
