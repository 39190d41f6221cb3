// Kinds of GPU memory, and what driver and module say of each.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "tests/gpu/gdr_check_parts.h"

namespace clustar::gdr_check {
namespace {

using nlohmann::json;
constexpr std::size_t kBytes = 4u << 20;

// Memory of one kind: how it is made and given back.
struct Kind {
  const char* name;
  std::function<CUresult(CUdeviceptr&)> make;
  std::function<void(CUdeviceptr)> free;
};

// Memory of cuMemCreate, mapped; `capable`: made for GPUDirect.
CUresult map_memory(const Driver& driver, int device, bool capable, CUdeviceptr& address) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.allocFlags.gpuDirectRDMACapable = capable ? 1 : 0;
  std::size_t granularity = 0;
  CUresult result = driver.cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  if (kBytes % granularity != 0) return CUDA_ERROR_NOT_SUPPORTED;
  CUmemGenericAllocationHandle handle = 0;
  result = driver.cuMemCreate(&handle, kBytes, &properties, 0);
  if (result != CUDA_SUCCESS) return result;
  result = driver.cuMemAddressReserve(&address, kBytes, 0, 0, 0);
  if (result == CUDA_SUCCESS) {
    result = driver.cuMemMap(address, kBytes, 0, handle, 0);
    CUmemAccessDesc access{};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (result == CUDA_SUCCESS) {
      result = driver.cuMemSetAccess(address, kBytes, &access, 1);
      if (result != CUDA_SUCCESS) driver.cuMemUnmap(address, kBytes);
    }
    if (result != CUDA_SUCCESS) driver.cuMemAddressFree(address, kBytes);
  }
  // The mapping keeps the memory.
  driver.cuMemRelease(handle);
  return result;
}

std::vector<Kind> kinds(const Driver& driver, int device) {
  const auto mapped = [&driver, device](const char* name, bool capable) {
    return Kind{name, [&driver, device, capable](CUdeviceptr& at) { return map_memory(driver, device, capable, at); },
                [&driver](CUdeviceptr at) {
                  driver.cuMemUnmap(at, kBytes);
                  driver.cuMemAddressFree(at, kBytes);
                }};
  };
  return {
      {"cuMemAlloc (cudaMalloc)", [&driver](CUdeviceptr& at) { return driver.cuMemAlloc(&at, kBytes); },
       [&driver](CUdeviceptr at) { driver.cuMemFree(at); }},
      mapped("cuMemMap, GPUDirect capable", true),
      mapped("cuMemMap", false),
      {"cuMemAllocAsync (cudaMallocAsync)",
       [&driver](CUdeviceptr& at) {
         const CUresult result = driver.cuMemAllocAsync(&at, kBytes, nullptr);
         return result == CUDA_SUCCESS ? driver.cuStreamSynchronize(nullptr) : result;
       },
       [&driver](CUdeviceptr at) { driver.cuMemFreeAsync(at, nullptr); }},
      {"cuMemAllocManaged",
       [&driver](CUdeviceptr& at) { return driver.cuMemAllocManaged(&at, kBytes, CU_MEM_ATTACH_GLOBAL); },
       [&driver](CUdeviceptr at) { driver.cuMemFree(at); }},
      {"cuMemHostAlloc",
       [&driver](CUdeviceptr& at) {
         void* memory = nullptr;
         const CUresult result = driver.cuMemHostAlloc(&memory, kBytes, CU_MEMHOSTALLOC_DEVICEMAP);
         at = reinterpret_cast<CUdeviceptr>(memory);
         return result;
       },
       [&driver](CUdeviceptr at) { driver.cuMemFreeHost(reinterpret_cast<void*>(at)); }},
  };
}

json export_of(const gdr::cuda::Api& api, const std::byte* address, bool pcie) {
  // Neither begins nor ends with a page.
  const auto exported = api.export_dma_buf(address + 5000, kBytes - 10000, pcie);
  if (!exported) return {{"pcie_wanted", pcie}, {"exported", false}, {"why", exported.error().message}};
  const json answer = {{"pcie_wanted", pcie},
                       {"exported", true},
                       {"pcie", exported->pcie},
                       {"why_not_pcie", exported->why_not_pcie},
                       {"offset", exported->offset},
                       {"size", exported->size},
                       {"end_of_fd", lseek(exported->fd, 0, SEEK_END)}};
  close(exported->fd);
  return answer;
}

}  // namespace

Spread spread_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const auto at = [&](double part) { return samples[static_cast<std::size_t>(part * (samples.size() - 1) + 0.5)]; };
  return {at(0.25), at(0.5), at(0.75)};
}

json look_at_memory(const Driver& driver, const gdr::cuda::Api& api, const Options& options) {
  json rows = json::array();
  for (const Kind& kind : kinds(driver, options.device)) {
    CUdeviceptr at = 0;
    if (const CUresult result = kind.make(at); result != CUDA_SUCCESS) {
      rows.push_back({{"kind", kind.name}, {"allocated", false}, {"why", driver.name_of(result)}});
      continue;
    }
    const auto* address = reinterpret_cast<const std::byte*>(at);
    json row = {{"kind", kind.name}, {"allocated", true}, {"asked_bytes", kBytes}};
    const auto described = api.describe(address);
    if (described) {
      row["place"] = to_string(described->place);
      row["device"] = described->device;
      row["pci_address"] = described->pci_address;
      row["before_address"] = described->base == nullptr ? -1 : address - described->base;
      row["size"] = described->size;
      row["gpu_direct"] = to_string(described->gpu_direct);
      row["legacy"] = to_string(described->legacy);
    } else {
      row["why"] = described.error().message;
    }
    row["exports"] = {export_of(api, address, true), export_of(api, address, false)};
    const auto set = api.sync_memops(address);
    row["sync_memops"] = set ? "set" : set.error().message;
    rows.push_back(row);
    kind.free(at);
  }
  return rows;
}

json time_flush(const gdr::cuda::Api& api, const Options& options) {
  constexpr int kCalls = 1000;
  if (const auto first = api.flush(options.device); !first) return {{"flushes", false}, {"why", first.error().message}};
  std::vector<double> microseconds;
  for (int i = 0; i < kCalls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto flushed = api.flush(options.device);
    const auto end = std::chrono::steady_clock::now();
    if (!flushed) return {{"flushes", false}, {"why", flushed.error().message}};
    microseconds.push_back(std::chrono::duration<double, std::micro>(end - begin).count());
  }
  const Spread spread = spread_of(microseconds);
  return {{"flushes", true},    {"scope", "owner"},           {"calls", kCalls},
          {"q1_us", spread.q1}, {"median_us", spread.median}, {"q3_us", spread.q3}};
}

}  // namespace clustar::gdr_check
