#include "gdr/launch/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <thread>

namespace clustar::gdr::launch {
namespace {

constexpr std::chrono::microseconds kPoll{20};
constexpr unsigned kBlocksPerMultiprocessor = 8;

unsigned long long address(const void* memory) { return reinterpret_cast<unsigned long long>(memory); }

}  // namespace

Result<void> Device::check(int result, const std::string& call) const {
  if (result == kSuccess) return {};
  const char* name = nullptr;
  if (calls_.get_error_name(result, &name) != kSuccess || name == nullptr) name = "an unknown CUresult";
  return fail(ErrorCode::kSystem, fmt::format("{}: {} ({})", call, name, result));
}

Result<std::unique_ptr<Device>> Device::open(const std::string& library, const Image& module, int number,
                                             std::chrono::milliseconds patience) {
  std::unique_ptr<Device> device(new Device);
  device->patience_ = patience;
  if (auto ok = device->start(library, module, number); !ok) return tl::unexpected(ok.error());
  return device;
}

Result<void> Device::start(const std::string& library, const Image& module, int number) {
  auto calls = DriverCalls::open(library);
  if (!calls) return tl::unexpected(calls.error());
  calls_ = *calls;
  if (auto ok = check(calls_.init(0), "cuInit"); !ok) return fail(ErrorCode::kUnavailable, ok.error().message);
  int count = 0;
  if (auto ok = check(calls_.device_get_count(&count), "cuDeviceGetCount"); !ok) return ok;
  if (count < 1) return fail(ErrorCode::kUnavailable, fmt::format("'{}' shows no GPU to this process", library));
  if (auto ok = check(calls_.device_get(&device_, number % count), "cuDeviceGet"); !ok) return ok;
  std::array<char, 256> name{};
  if (auto ok = check(calls_.device_get_name(name.data(), name.size() - 1, device_), "cuDeviceGetName"); !ok) return ok;
  name_ = name.data();
  if (!has_device_code(module) && !emulated()) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("this build has no code for GPUs such as {}: build it where nvcc is (CUDA toolkit), with "
                            "CLUSTAR_WITH_CUDA=ON",
                            name_));
  }
  int multiprocessors = 0;
  const int asked = calls_.device_get_attribute(&multiprocessors, kMultiprocessors, device_);
  if (auto ok = check(asked, "cuDeviceGetAttribute"); !ok) return ok;
  multiprocessors_ = static_cast<unsigned>(std::max(multiprocessors, 1));
  void* context = nullptr;
  if (auto ok = check(calls_.primary_context_retain(&context, device_), "cuDevicePrimaryCtxRetain"); !ok) return ok;
  context_ = context;
  const InContext here(*this);
  const void* const image = has_device_code(module) ? module.data : kNoDeviceCode;
  if (auto ok = check(calls_.module_load(&module_, image), "cuModuleLoadData"); !ok) return ok;
  return check(calls_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
}

Device::~Device() {
  if (context_ == nullptr) return;
  // Work that does not end may still use what would go now; what failed has ended.
  if (stream_ != nullptr && settle() == kNotReady) return;
  {
    const InContext here(*this);
    if (mark_ != nullptr) calls_.event_destroy(mark_);
    if (stream_ != nullptr) calls_.stream_destroy(stream_);
    if (module_ != nullptr) calls_.module_unload(module_);
  }
  calls_.primary_context_release(device_);
}

Result<void*> Device::allocate(std::size_t bytes) {
  const InContext here(*this);
  unsigned long long at = 0;
  if (auto ok = check(calls_.memory_allocate(&at, std::max<std::size_t>(bytes, 1)),
                      fmt::format("cuMemAlloc of {} bytes", bytes));
      !ok) {
    return tl::unexpected(ok.error());
  }
  return reinterpret_cast<void*>(at);
}

void Device::release(void* memory) {
  if (memory == nullptr || settle() == kNotReady) return;  // work that does not end may still use it
  const InContext here(*this);
  calls_.memory_free(address(memory));
}

// Of pageable memory, which the driver reads before it returns, and for which it waits by itself: after a wait that has
// an end.
Result<void> Device::upload(void* device, const void* host, std::size_t bytes) {
  if (bytes == 0) return {};
  if (auto ok = wait(); !ok) return ok;
  const InContext here(*this);
  return check(calls_.copy_to_device(address(device), host, bytes, stream_), "cuMemcpyHtoDAsync");
}

Result<void> Device::download(void* host, const void* device, std::size_t bytes) {
  if (bytes == 0) return {};
  if (auto ok = wait(); !ok) return ok;
  {
    const InContext here(*this);
    if (auto ok = check(calls_.copy_to_host(host, address(device), bytes, stream_), "cuMemcpyDtoHAsync"); !ok)
      return ok;
  }
  return wait();
}

Result<void> Device::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  const InContext here(*this);
  return check(calls_.copy(address(to), address(from), bytes, stream_), "cuMemcpyDtoDAsync");
}

Result<void> Device::fill(void* device, std::uint32_t word, std::size_t count) {
  if (count == 0) return {};
  const InContext here(*this);
  return check(calls_.fill(address(device), word, count, stream_), "cuMemsetD32Async");
}

Grid Device::grid_for(std::uint64_t count, unsigned threads) const {
  const std::uint64_t blocks = (count + threads - 1) / threads;
  const std::uint64_t most = std::uint64_t{multiprocessors_} * kBlocksPerMultiprocessor;
  return {.x = static_cast<unsigned>(std::clamp<std::uint64_t>(blocks, 1, most)), .y = 1, .threads = threads};
}

Result<void> Device::launch_by_name(const char* name, const Grid& grid, void* argument) {
  const InContext here(*this);
  void*& function = functions_[name];
  if (function == nullptr) {
    const int found = calls_.module_function(&function, module_, name);
    if (auto ok = check(found, fmt::format("cuModuleGetFunction of {}", name)); !ok) return ok;
  }
  const int launched = calls_.launch(function, grid.x, grid.y, 1, grid.threads, 1, 1, 0, stream_, &argument, nullptr);
  return check(launched, fmt::format("cuLaunchKernel of {}", name));
}

Result<void*> Device::mark() {
  const InContext here(*this);
  if (mark_ == nullptr) {
    if (auto ok = check(calls_.event_create(&mark_, kDisableTiming), "cuEventCreate"); !ok) {
      return tl::unexpected(ok.error());
    }
  }
  if (auto ok = check(calls_.event_record(mark_, stream_), "cuEventRecord"); !ok) return tl::unexpected(ok.error());
  return mark_;
}

int Device::settle() const {
  const InContext here(*this);
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  for (;;) {
    const int state = calls_.stream_query(stream_);
    if (state != kNotReady || std::chrono::steady_clock::now() > deadline) return state;
    std::this_thread::sleep_for(kPoll);
  }
}

Result<void> Device::wait() {
  const int state = settle();
  if (state != kNotReady) return check(state, "work on the GPU");
  return fail(ErrorCode::kSystem, fmt::format("the GPU did not end its work within {} s", patience_.count() / 1000));
}

}  // namespace clustar::gdr::launch
