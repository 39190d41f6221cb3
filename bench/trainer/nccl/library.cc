#include "bench/trainer/nccl/library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <vector>

namespace clustar::bench::trainer {
namespace {

constexpr const char* kDefaultLibrary = "libnccl.so.2";
constexpr std::array kRuntimes{"libcudart.so.13", "libcudart.so.12", "libcudart.so"};
constexpr const char* kAdvice =
    "name NCCL's library by --nccl-library or CLUSTAR_NCCL_LIBRARY; without a GPU, `scripts/nccl-host` builds one with "
    "an emulated device and prints its path";

// What dlerror says, in one line.
std::string reason() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given";
}

struct Entry {
  const char* name;
  void* slot;  // of a pointer to a function
  const char* other_name = nullptr;
};

// The name of the first that `library` lacks, or null.
const char* find_all(void* library, const std::vector<Entry>& entries) {
  for (const Entry& entry : entries) {
    void* found = entry.other_name != nullptr ? dlsym(library, entry.other_name) : nullptr;
    if (found == nullptr) found = dlsym(library, entry.name);
    if (found == nullptr) return entry.name;
    *static_cast<void**>(entry.slot) = found;
  }
  return nullptr;
}

std::vector<Entry> entries_of(NcclCalls& calls) {
  return {{"ncclGetVersion", &calls.get_version},
          {"ncclGetUniqueId", &calls.get_unique_id},
          {"ncclCommInitRankConfig", &calls.comm_init_rank_config},
          {"ncclCommGetAsyncError", &calls.comm_get_async_error},
          {"ncclCommFinalize", &calls.comm_finalize},
          {"ncclCommDestroy", &calls.comm_destroy},
          {"ncclCommAbort", &calls.comm_abort},
          {"ncclCommRegister", &calls.comm_register},
          {"ncclCommDeregister", &calls.comm_deregister},
          {"ncclAllReduce", &calls.all_reduce},
          {"ncclAllGather", &calls.all_gather},
          {"ncclReduceScatter", &calls.reduce_scatter},
          {"ncclGroupStart", &calls.group_start},
          {"ncclGroupEnd", &calls.group_end},
          {"ncclSend", &calls.send},
          {"ncclRecv", &calls.recv},
          {"ncclGetErrorString", &calls.get_error_string},
          {"ncclGetLastError", &calls.get_last_error}};
}

std::vector<Entry> entries_of(CudaCalls& calls) {
  return {{"cudaGetDeviceCount", &calls.get_device_count},
          {"cudaSetDevice", &calls.set_device},
          // CUDA 12 has an older form under the plain name.
          {"cudaGetDeviceProperties", &calls.get_device_properties, "cudaGetDeviceProperties_v2"},
          {"cudaMalloc", &calls.malloc},
          {"cudaFree", &calls.free},
          {"cudaHostRegister", &calls.host_register},
          {"cudaHostUnregister", &calls.host_unregister},
          {"cudaMemcpyAsync", &calls.memcpy_async},
          {"cudaStreamCreateWithFlags", &calls.stream_create},
          {"cudaStreamDestroy", &calls.stream_destroy},
          {"cudaStreamWaitEvent", &calls.stream_wait_event},
          {"cudaEventCreateWithFlags", &calls.event_create},
          {"cudaEventDestroy", &calls.event_destroy},
          {"cudaEventRecord", &calls.event_record},
          {"cudaEventQuery", &calls.event_query},
          {"cudaLaunchHostFunc", &calls.launch_host_function},
          {"cudaGetLastError", &calls.get_last_error},
          {"cudaGetErrorString", &calls.get_error_string}};
}

Result<void> open_runtime(void* nccl, const std::string& nccl_path, CudaCalls& calls) {
  if (dlsym(nccl, "cudaMalloc") != nullptr) {
    const char* const lacks = find_all(nccl, entries_of(calls));
    if (lacks == nullptr) return {};
    return fail(
        ErrorCode::kUnavailable,
        fmt::format("'{}' has a CUDA runtime without {}; build it again by scripts/nccl-host", nccl_path, lacks));
  }
  std::string said;
  for (const char* name : kRuntimes) {
    void* const runtime = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (runtime == nullptr) {
      said += fmt::format("\n  {}", reason());
      continue;
    }
    const char* const lacks = find_all(runtime, entries_of(calls));
    if (lacks == nullptr) return {};
    said += fmt::format("\n  {} has no {}", name, lacks);
    dlclose(runtime);
  }
  return fail(ErrorCode::kUnavailable,
              fmt::format("no CUDA runtime for '{}': neither it nor {} has one. Install the CUDA runtime of NCCL's "
                          "version, or add its folder to LD_LIBRARY_PATH{}",
                          nccl_path, fmt::join(kRuntimes, ", "), said));
}

}  // namespace

Result<NcclLibrary> NcclLibrary::open(const std::string& path) {
  NcclLibrary library;
  const std::string name = path.empty() ? kDefaultLibrary : path;
  void* const opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cannot open NCCL's library '{}': {}. {}", name, reason(), kAdvice));
  }
  if (const char* const lacks = find_all(opened, entries_of(library.nccl)); lacks != nullptr) {
    const std::string text = fmt::format("'{}' is not NCCL 2.19 or later: it has no {}. {}", name, lacks, kAdvice);
    dlclose(opened);
    return fail(ErrorCode::kUnavailable, text);
  }
  Dl_info info{};
  const bool known = dladdr(reinterpret_cast<void*>(library.nccl.get_version), &info) != 0;
  library.path = known && info.dli_fname != nullptr ? info.dli_fname : name;
  if (auto ok = open_runtime(opened, library.path, library.cuda); !ok) return tl::unexpected(ok.error());
  return library;
}

std::string NcclLibrary::version() const {
  int version = 0;
  if (nccl.get_version(&version) != kNcclSuccess) return "of unknown version";
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Result<int> NcclLibrary::devices() const {
  int count = 0;
  const int counted = cuda.get_device_count(&count);
  if (counted == kCudaSuccess && count > 0) return count;
  return fail(ErrorCode::kUnavailable,
              fmt::format("NCCL needs a GPU and the CUDA runtime finds none ({}); without one use the library of "
                          "scripts/nccl-host, or --collective proxy",
                          cuda.get_error_string(counted)));
}

Result<std::string> NcclLibrary::device_name(int device) const {
  // cudaDeviceProp begins with a name of 256 characters in every version; what follows grew to about 1 KiB.
  constexpr std::size_t kName = 256;
  std::array<char, 16384> properties{};
  if (const int error = cuda.get_device_properties(properties.data(), device); error != kCudaSuccess) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("cudaGetDeviceProperties of device {}: {}", device, cuda.get_error_string(error)));
  }
  properties[kName - 1] = '\0';
  return std::string(properties.data());
}

}  // namespace clustar::bench::trainer
