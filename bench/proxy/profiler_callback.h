// ncclProfilerCallback: the way from a net plugin's isend and irecv to the profiler that NCCL loaded. Mirrors the body
// of NCCL 2.28.9 src/plugin/profiler.cc ncclProfilerCallback.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "bench/proxy/steps.h"
#include "nccl_plugin/abi/profiler.h"
#include "nccl_plugin/abi/types.h"

namespace clustar::bench::proxy {

class ProfilerPlugin;
struct ProxySub;

// What a phandle points to: ncclProxyEventHandle.
struct ProxyEventHandle {
  void* step_event = nullptr;
  ProxySub* sub = nullptr;
};

// The fields of ncclProxySubArgs that the profiler needs: one channel of one collective in one direction. Its address
// is in phandles, so it stays where it is; progress thread only.
struct ProxySub {
  ProfilerPlugin* profiler = nullptr;  // null: none, and nothing is started
  void* context = nullptr;
  int mask = 0;  // of the collective, taken when it was called
  int rank = 0;
  void* task_event = nullptr;
  void* op_event = nullptr;
  std::size_t transfer_size = 0;
  std::array<ProxyEventHandle, kSteps> handles{};

  void* phandle(std::size_t transfer) { return &handles[transfer % kSteps]; }
};

// The callback carries no user pointer, and on Stop and Update not even a phandle. NCCL has one profiler per process;
// here several libraries may be loaded, so each has a function of its own.
class ProfilerCallbackSlot {
 public:
  static constexpr int kSlots = 64;

  // Users of one library share its slot.
  explicit ProfilerCallbackSlot(void* library);
  ~ProfilerCallbackSlot();
  ProfilerCallbackSlot(const ProfilerCallbackSlot&) = delete;
  ProfilerCallbackSlot& operator=(const ProfilerCallbackSlot&) = delete;

  // Never null. When all slots are taken it starts no event, which is as if there were no profiler.
  nccl_abi::ProfilerCallback callback() const { return callback_; }

  // From now on the library's Stop and Update go to these. Without a slot for it: nothing happens.
  static void bind(void* library, int (*stop)(void*), int (*record)(void*, int, nccl_abi::EventStateArgs*));

 private:
  int slot_ = -1;
  nccl_abi::ProfilerCallback callback_;
};

}  // namespace clustar::bench::proxy
