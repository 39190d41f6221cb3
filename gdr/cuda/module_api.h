// What libclustar-cuda.so offers, for those who open it: no type of CUDA's, so that they need none of its headers.
//
// Thread rule: the functions may be called from any thread. None waits for a kernel, but those that say so.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "gdr/core/machine.h"
#include "gdr/device_copy.h"
#include "transport/base/result.h"

namespace clustar::gdr::cuda {

enum class Place : std::uint8_t { kHost, kDevice, kManaged };

constexpr const char* to_string(Place place) {
  return place == Place::kHost ? "host" : place == Place::kDevice ? "device" : "managed";
}

// What the driver says of one address.
struct Description {
  Place place = Place::kHost;
  bool known_to_cuda = false;  // false: ordinary host memory, of which nothing below is known
  int device = -1;             // CUDA's ordinal in this process; -1: none
  std::string pci_address{};   // of the device, as sysfs writes it: 0000:1b:00.0; empty: none
  // Of the allocation, bytes. Of memory that was mapped in pieces (cuMemMap) it is the piece, not the whole.
  std::byte* base = nullptr;
  std::size_t size = 0;
  Known gpu_direct = Known::kUnknown;  // the driver's word on whether a NIC may reach it
  // Made by cuMemAlloc and its like; kNo: mapped by cuMemMap, or from a pool. It is a hint: the attribute that tells is
  // whether the legacy CUDA IPC may share it.
  Known legacy = Known::kUnknown;
};

// A dma-buf of whole host pages. The caller closes `fd`.
struct DmaBuf {
  int fd = -1;
  std::uint64_t offset = 0;    // of the address that was asked for, bytes from the beginning of the dma-buf
  std::size_t size = 0;        // bytes exported
  bool pcie = false;           // mapped through the GPU's PCIe BAR, as was wanted
  std::string why_not_pcie{};  // empty unless it was wanted and refused
};

struct CopyOptions {
  unsigned most_outstanding = 256;  // copies begun and not known to have ended; 1 to 65,536
};

// Of any address. Errors: the driver's, named. An address that CUDA does not know is ordinary host memory, no error.
using Describe = Result<Description> (*)(const void* address);

// `length` bytes from `address` as a dma-buf; `want_pcie`: mapped through PCIe where there is another way, too (C2C),
// and if the driver refuses that, as it likes. Errors: memory that is no device's, what the driver refuses, with what
// to do.
using ExportDmaBuf = Result<DmaBuf> (*)(const void* address, std::size_t length, bool want_pcie);

// From now on memory operations on the allocation that are synchronous by CUDA's rules are so to NICs, too
// (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS); for memory that a NIC reaches. Stays set until the allocation ends.
using SyncMemops = Result<void> (*)(const void* address);

// What NICs have written to the GPU's memory before is visible to its own kernels after this (scope: the owner of the
// memory, not other GPUs; target: the context that the module takes for this device). Waits for writes on their way,
// not for kernels. Errors: the driver has no such function, the GPU does not offer it to hosts, the driver's.
using Flush = Result<void> (*)(int device);

// Copies of one GPU. Opening may wait for the GPU, as an allocation does: for setup, not while kernels wait for the
// caller. Ends before the module is closed.
using OpenCopy = Result<std::unique_ptr<DeviceCopy>> (*)(int device, const CopyOptions& options);

inline constexpr const char* kDescribe = "gdr.cuda.describe";
inline constexpr const char* kExportDmaBuf = "gdr.cuda.export_dma_buf";
inline constexpr const char* kSyncMemops = "gdr.cuda.sync_memops";
inline constexpr const char* kFlush = "gdr.cuda.flush";
inline constexpr const char* kOpenCopy = "gdr.cuda.open_copy";

struct Api {
  Describe describe = nullptr;
  ExportDmaBuf export_dma_buf = nullptr;
  SyncMemops sync_memops = nullptr;
  Flush flush = nullptr;
  OpenCopy open_copy = nullptr;
};

// All functions of a module whose `find` this is (transport::Module, or ModuleEntry::find). Nothing: it is another's.
template <class Find>
std::optional<Api> api_of(Find&& find) {
  const Api api{reinterpret_cast<Describe>(find(kDescribe)), reinterpret_cast<ExportDmaBuf>(find(kExportDmaBuf)),
                reinterpret_cast<SyncMemops>(find(kSyncMemops)), reinterpret_cast<Flush>(find(kFlush)),
                reinterpret_cast<OpenCopy>(find(kOpenCopy))};
  const bool whole = api.describe != nullptr && api.export_dma_buf != nullptr && api.sync_memops != nullptr &&
                     api.flush != nullptr && api.open_copy != nullptr;
  return whole ? std::optional<Api>(api) : std::nullopt;
}

}  // namespace clustar::gdr::cuda
