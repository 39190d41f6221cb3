#include "tests/nccl_host/runtime/device.h"

#include <dlfcn.h>

#include <thread>
#include <utility>
#include <vector>

namespace nccl_host {
namespace {

// Changes with what Device, Memory, Stream or Event are made of: libraries of different builds do not share a device.
constexpr int kLayout = 1;
constexpr const char* kShared = "clustar_emulated_device";
using Shared = Device* (*)(int layout);

std::mutex mutex;
Device* the_device = nullptr;

}  // namespace

// The device, if this library has one already.
extern "C" __attribute__((visibility("default"))) Device* clustar_emulated_device(int layout) {
  std::lock_guard lock(mutex);
  return layout == kLayout ? the_device : nullptr;
}

namespace {

Device* MadeByAnother() {
  for (const char* library : {"libcuda.so.1", "libnccl.so.2"}) {
    void* const handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    const auto shared = reinterpret_cast<Shared>(dlsym(handle, kShared));
    Device* const made = shared == nullptr || shared == clustar_emulated_device ? nullptr : shared(kLayout);
    dlclose(handle);
    if (made != nullptr) return made;
  }
  return nullptr;
}

}  // namespace

Device& TheDevice() {
  {
    std::lock_guard lock(mutex);
    if (the_device != nullptr) return *the_device;
  }
  Device* const other = MadeByAnother();
  std::lock_guard lock(mutex);
  // Never destroyed: NCCL's threads may still use it while the process ends.
  if (the_device == nullptr) the_device = other != nullptr ? other : new Device;
  return *the_device;
}

std::shared_ptr<Stream> Device::StreamOf(const void* handle) {
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  return found == streams_.end() ? standard_ : found->second;
}

void* Device::NewStream() {
  auto stream = std::make_shared<Stream>();
  void* const handle = stream.get();
  std::lock_guard lock(mutex_);
  streams_[handle] = std::move(stream);
  return handle;
}

bool Device::DestroyStream(const void* handle) {
  std::shared_ptr<Stream> ended;
  std::lock_guard lock(mutex_);
  const auto found = streams_.find(handle);
  if (found == streams_.end()) return false;
  ended = std::move(found->second);
  streams_.erase(found);
  // CUDA returns at once and lets the work end; a thread that an abort must end first would hold up the caller here.
  std::thread([last = std::move(ended)]() mutable { last.reset(); }).detach();
  return true;
}

void Device::SynchronizeAllStreams() {
  std::vector<std::shared_ptr<Stream>> all{standard_};
  {
    std::lock_guard lock(mutex_);
    for (const auto& [handle, stream] : streams_) all.push_back(stream);
  }
  for (const auto& stream : all) stream->Synchronize();
}

}  // namespace nccl_host
