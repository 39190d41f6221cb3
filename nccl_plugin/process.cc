#include "nccl_plugin/process.h"

#include <cstddef>
#include <new>

namespace clustar::nccl_plugin {
namespace {

// In the library's own zeroed memory, which dlclose takes away: nothing is left behind, and nothing is destroyed.
template <class T, int kWhich = 0, class... Arguments>
T& immortal(Arguments&&... arguments) {
  alignas(T) static std::byte storage[sizeof(T)];
  static T* const made = new (storage) T(arguments...);
  return *made;
}

}  // namespace

CommRegistry& process_registry() { return immortal<CommRegistry>(); }
SendCounters& process_sends() { return immortal<SendCounters>(); }
ReceptionBook& process_receptions() { return immortal<ReceptionBook>(); }
ReceptionBook& process_exchanges() { return immortal<ReceptionBook, 2>(); }
ReceptionBook& process_losses() { return immortal<ReceptionBook, 1>(); }

std::atomic<bool>& critical_phase() {
  static constinit std::atomic<bool> critical{false};
  return critical;
}

Profiler& process_profiler() { return immortal<Profiler>(Profiler::Options{}, process_registry(), critical_phase()); }

}  // namespace clustar::nccl_plugin
