#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "tests/nccl_host/runtime/memory.h"
#include "tests/nccl_host/runtime/stream.h"

namespace nccl_host {

// The emulated device: its memory and streams, by the handles that programs have. Thread-safe.
class Device {
 public:
  Memory& memory() { return memory_; }
  // Of a handle; the default streams are one.
  std::shared_ptr<Stream> StreamOf(const void* handle);
  void* NewStream();
  bool DestroyStream(const void* handle);
  void SynchronizeAllStreams();

 private:
  Memory memory_;
  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<Stream>> streams_;
  std::shared_ptr<Stream> standard_ = std::make_shared<Stream>();
};

// The one of this process. Two libraries may have it: the CUDA runtime within libnccl.so.2, and the driver,
// libcuda.so.1 (tests/gdr/emulated_device). The first to be used makes it and the other takes that, so that an address,
// a stream or an event of one is the other's, too. Both are built from these sources.
Device& TheDevice();

}  // namespace nccl_host
