#include "bench/proxy/profiler_callback.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "bench/proxy/profiler_plugin.h"

namespace clustar::bench::proxy {
namespace {

using nccl_abi::EventStateArgs;

struct Slot {
  void* library = nullptr;  // guarded by slots_mutex()
  int users = 0;            // the same
  // Functions of the library, which alone calls them through us: they are there when they are called.
  std::atomic<int (*)(void*)> stop{nullptr};
  std::atomic<int (*)(void*, int, EventStateArgs*)> record{nullptr};
};

// Never destroyed: a plugin's thread may call while the process exits.
std::array<Slot, ProfilerCallbackSlot::kSlots>& slots() {
  static auto* instance = new std::array<Slot, ProfilerCallbackSlot::kSlots>;
  return *instance;
}

std::mutex& slots_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

int ignore_event(void** /*event_handle*/, int /*type*/, void* /*phandle*/, std::int64_t /*id*/, void* /*data*/) {
  return nccl_abi::kSuccess;
}

// A phandle is null where no proxy made it, as in a test of the plugin alone; NCCL's always is there.
void start_event(void** event_handle, const ProxyEventHandle* phandle, std::int64_t id, void* data) {
  if (phandle == nullptr || phandle->sub == nullptr) return;
  const ProxySub& sub = *phandle->sub;
  if (sub.profiler == nullptr || (sub.mask & nccl_abi::kEventNetPlugin) == 0) return;
  nccl_abi::EventV6 event{};
  event.type = nccl_abi::kEventNetPlugin;
  event.parent = phandle->step_event;
  event.rank = sub.rank;
  event.net_plugin = {id, data};
  sub.profiler->start(sub.context, event_handle, event);
}

template <std::size_t I>
int call(void** event_handle, int type, void* phandle, std::int64_t id, void* data) {
  if (type == nccl_abi::kProfilerStart) {
    start_event(event_handle, static_cast<const ProxyEventHandle*>(phandle), id, data);
    return nccl_abi::kSuccess;
  }
  Slot& slot = slots()[I];
  auto* const stop = slot.stop.load(std::memory_order_acquire);
  auto* const record = slot.record.load(std::memory_order_acquire);
  if (stop == nullptr || record == nullptr) return nccl_abi::kSuccess;
  if (type != nccl_abi::kProfilerStop) {
    EventStateArgs args{};
    args.net_plugin_data = data;
    record(*event_handle, kStateNetPluginUpdate, &args);
  }
  if (type != nccl_abi::kProfilerUpdate) stop(*event_handle);
  return nccl_abi::kSuccess;
}

template <std::size_t... I>
constexpr std::array<nccl_abi::ProfilerCallback, sizeof...(I)> make_callbacks(std::index_sequence<I...>) {
  return {&call<I>...};
}
constexpr auto kCallbacks = make_callbacks(std::make_index_sequence<ProfilerCallbackSlot::kSlots>());

// Of the library, or -1. Under slots_mutex().
int find_slot(const void* library) {
  for (int i = 0; i < ProfilerCallbackSlot::kSlots; ++i) {
    if (slots()[static_cast<std::size_t>(i)].library == library) return i;
  }
  return -1;
}

}  // namespace

ProfilerCallbackSlot::ProfilerCallbackSlot(void* library) : callback_(&ignore_event) {
  const std::lock_guard lock(slots_mutex());
  slot_ = find_slot(library);
  if (slot_ < 0) slot_ = find_slot(nullptr);
  if (slot_ < 0) return;
  Slot& slot = slots()[static_cast<std::size_t>(slot_)];
  slot.library = library;
  ++slot.users;
  callback_ = kCallbacks[static_cast<std::size_t>(slot_)];
}

ProfilerCallbackSlot::~ProfilerCallbackSlot() {
  if (slot_ < 0) return;
  const std::lock_guard lock(slots_mutex());
  Slot& slot = slots()[static_cast<std::size_t>(slot_)];
  if (--slot.users > 0) return;
  slot.library = nullptr;
  slot.stop.store(nullptr, std::memory_order_release);
  slot.record.store(nullptr, std::memory_order_release);
}

void ProfilerCallbackSlot::bind(void* library, int (*stop)(void*), int (*record)(void*, int, EventStateArgs*)) {
  const std::lock_guard lock(slots_mutex());
  const int found = find_slot(library);
  if (library == nullptr || found < 0) return;
  Slot& slot = slots()[static_cast<std::size_t>(found)];
  slot.stop.store(stop, std::memory_order_release);
  slot.record.store(record, std::memory_order_release);
}

}  // namespace clustar::bench::proxy
