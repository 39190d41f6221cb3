#include "gdr/cuda/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "gdr/cuda/driver.h"

namespace clustar::gdr::cuda {
namespace {

// CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE, which headers before CUDA 12.8 do not name.
constexpr unsigned long long kThroughPcie = 1;

CUdeviceptr pointer(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

std::string range_text(const void* address, std::size_t length) {
  return fmt::format("of {} B at {}", length, address);
}

template <class Value>
CUresult ask(CUpointer_attribute attribute, const void* address, Value& value) {
  return cuPointerGetAttribute(&value, attribute, pointer(address));
}

// A driver that does not know an attribute, or not of this memory, answers with an error.
Known known(CUpointer_attribute attribute, const void* address) {
  // Some attributes are a bool of one byte, others an int: zeros behind it are no part of the answer.
  unsigned value = 0;
  if (ask(attribute, address, value) != CUDA_SUCCESS) return Known::kUnknown;
  return value != 0 ? Known::kYes : Known::kNo;
}

CUcontext context_of(const void* address) {
  CUcontext context = nullptr;
  return ask(CU_POINTER_ATTRIBUTE_CONTEXT, address, context) == CUDA_SUCCESS ? context : nullptr;
}

// As sysfs writes it: four digits of domain, in lower case.
std::string pci_address(CUdevice device) {
  std::array<char, 32> text{};
  if (cuDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()) - 1, device) != CUDA_SUCCESS) return {};
  std::string address = text.data();
  std::transform(address.begin(), address.end(), address.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr std::size_t kLength = 12;
  return address.size() > kLength ? address.substr(address.size() - kLength) : address;
}

Known device_offers(int device, CUdevice_attribute attribute, int mask = -1) {
  CUdevice handle = 0;
  int value = 0;
  if (cuDeviceGet(&handle, device) != CUDA_SUCCESS) return Known::kUnknown;
  if (cuDeviceGetAttribute(&value, attribute, handle) != CUDA_SUCCESS) return Known::kUnknown;
  return (value & mask) != 0 ? Known::kYes : Known::kNo;
}

struct Range {
  CUdeviceptr begin = 0;
  std::size_t size = 0;
};

Result<Range> whole_pages(const void* address, std::size_t length) {
  const auto page = static_cast<CUdeviceptr>(sysconf(_SC_PAGESIZE));
  const CUdeviceptr first = pointer(address);
  if (length == 0 || length > ~CUdeviceptr{0} - first - page) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("export {}: at least 1 B is allowed, within the address space",
                                                         range_text(address, length)));
  }
  const CUdeviceptr begin = first / page * page;
  const CUdeviceptr end = (first + length + page - 1) / page * page;
  return Range{begin, static_cast<std::size_t>(end - begin)};
}

std::string fix_of_export(const Description& memory, CUresult result) {
  switch (result) {
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_INVALID_VALUE: {
      const Known offered = device_offers(memory.device, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
      if (offered == Known::kNo) {
        return "the driver exports no dma-bufs of this GPU: load the open kernel modules (driver 515 or later; not on "
               "a "
               "vGPU), or nvidia_peermem and give the pointer";
      }
      if (memory.gpu_direct == Known::kNo) {
        return "this memory was made without GPUDirect: set gpuDirectRDMACapable in CUmemAllocationProp, or, under "
               "PyTorch, do without expandable_segments";
      }
      return "the range must be device memory that is mapped throughout, on one device; nvidia_peermem does without "
             "dma-bufs";
    }
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_OUT_OF_MEMORY:
    case CUDA_ERROR_UNKNOWN:
      return "the process may be out of file descriptors: raise `ulimit -n`, and close each descriptor after its "
             "registration";
    default: return "nvidia_peermem does without dma-bufs";
  }
}

}  // namespace

Result<Description> describe(const void* address) {
  const OutsideCaptures outside;
  if (auto started = start(); !started) return tl::unexpected(started.error());
  Description memory;
  unsigned type = 0;
  const CUresult result = ask(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, type);
  if (result == CUDA_ERROR_INVALID_VALUE) return memory;
  if (result != CUDA_SUCCESS) {
    return tl::unexpected(
        refused("cuPointerGetAttribute", fmt::format("of the type of {}", address), result, kContextFailed));
  }
  memory.known_to_cuda = true;
  memory.place = type == CU_MEMORYTYPE_HOST ? Place::kHost : Place::kDevice;
  if (type == CU_MEMORYTYPE_UNIFIED || known(CU_POINTER_ATTRIBUTE_IS_MANAGED, address) == Known::kYes) {
    memory.place = Place::kManaged;
  }
  int device = -1;
  if (ask(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address, device) == CUDA_SUCCESS && device >= 0) {
    CUdevice handle = 0;
    memory.device = device;
    if (cuDeviceGet(&handle, device) == CUDA_SUCCESS) memory.pci_address = pci_address(handle);
  }
  CUdeviceptr base = 0;
  std::size_t size = 0;
  // The driver wants a context for it, though any will do; without one the range stays unknown.
  if (memory.device >= 0) {
    const auto context = Context::of(memory.device, context_of(address));
    if (context) {
      const Current current(*context);
      if (current.result() == CUDA_SUCCESS && cuMemGetAddressRange(&base, &size, pointer(address)) == CUDA_SUCCESS) {
        memory.base = reinterpret_cast<std::byte*>(base);
        memory.size = size;
      }
    }
  }
  memory.gpu_direct = known(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, address);
  memory.legacy = known(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address);
  return memory;
}

Result<DmaBuf> export_dma_buf(const void* address, std::size_t length, bool want_pcie) {
  const OutsideCaptures outside;
  const auto range = whole_pages(address, length);
  if (!range) return tl::unexpected(range.error());
  const auto memory = describe(address);
  if (!memory) return tl::unexpected(memory.error());
  if (memory->place != Place::kDevice) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("export {}: this is {} memory; only a GPU's own is exported as a dma-buf: {}",
                            range_text(address, length), to_string(memory->place),
                            memory->place == Place::kHost ? "register it as host memory" : "take cudaMalloc's memory"));
  }
  if (cuMemGetHandleForAddressRange == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("export {}: libcuda.so.1 has no cuMemGetHandleForAddressRange: driver 515 (CUDA 11.7) or "
                            "later is needed, or nvidia_peermem",
                            range_text(address, length)));
  }
  const auto context = Context::of(memory->device, context_of(address));
  if (!context) return tl::unexpected(context.error());
  const Current current(*context);
  if (current.result() != CUDA_SUCCESS)
    return tl::unexpected(refused("cuCtxPushCurrent", "", current.result(), kContextFailed));

  DmaBuf exported;
  exported.offset = pointer(address) - range->begin;
  exported.size = range->size;
  // What is exported is the caller's range: of memory mapped in pieces the driver's own range is one piece.
  const auto ask_driver = [&](unsigned long long flags) {
    return cuMemGetHandleForAddressRange(&exported.fd, range->begin, range->size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
                                         flags);
  };
  if (want_pcie) {
    const CUresult result = ask_driver(kThroughPcie);
    exported.pcie = result == CUDA_SUCCESS;
    if (exported.pcie) return exported;
    exported.why_not_pcie = refused("cuMemGetHandleForAddressRange", "mapped through PCIe", result).message;
  }
  if (const CUresult result = ask_driver(0); result != CUDA_SUCCESS) {
    return tl::unexpected(
        refused("cuMemGetHandleForAddressRange", range_text(address, length), result, fix_of_export(*memory, result)));
  }
  return exported;
}

Result<void> sync_memops(const void* address) {
  const OutsideCaptures outside;
  const auto memory = describe(address);
  if (!memory) return tl::unexpected(memory.error());
  if (memory->place != Place::kDevice) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is {} memory; memory operations are made synchronous for a "
                            "GPU's own only: leave it out",
                            address, to_string(memory->place)));
  }
  const auto context = Context::of(memory->device, context_of(address));
  if (!context) return tl::unexpected(context.error());
  const Current current(*context);
  unsigned on = 1;
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) {
    result = cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, pointer(address));
  }
  if (result != CUDA_SUCCESS) {
    return tl::unexpected(refused(
        "cuPointerSetAttribute", fmt::format("SYNC_MEMOPS of {}", address), result,
        memory->legacy == Known::kNo ? "memory of cuMemMap and of pools may not have it; order copies by events instead"
                                     : "a NIC may see copies late: order them by events"));
  }
  return {};
}

Result<void> flush(int device) {
  const OutsideCaptures outside;
  if (auto started = start(); !started) return tl::unexpected(started.error());
  if (cuFlushGPUDirectRDMAWrites == nullptr) {
    return fail(
        ErrorCode::kUnavailable,
        "libcuda.so.1 has no cuFlushGPUDirectRDMAWrites: driver 465 (CUDA 11.3) or later is needed; a NIC flushes "
        "by an RDMA READ of the memory");
  }
  if (device_offers(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
                    CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST) == Known::kNo) {
    return fail(ErrorCode::kUnavailable, fmt::format("device {} offers no flush of GPUDirect writes to the host; a NIC "
                                                     "flushes by an RDMA READ of the memory",
                                                     device));
  }
  const auto context = Context::of(device);
  if (!context) return tl::unexpected(context.error());
  const Current current(*context);
  CUresult result = current.result();
  if (result == CUDA_SUCCESS) {
    result = cuFlushGPUDirectRDMAWrites(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
                                        CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  }
  if (result != CUDA_SUCCESS) {
    return tl::unexpected(refused("cuFlushGPUDirectRDMAWrites", fmt::format("of device {}", device), result,
                                  "a NIC flushes by an RDMA READ of the memory"));
  }
  return {};
}

}  // namespace clustar::gdr::cuda
