#include "nccl_plugin/process.h"

namespace clustar::nccl_plugin {

CommRegistry& process_registry() {
  static CommRegistry registry;
  return registry;
}

SendCounters& process_sends() {
  static SendCounters counters;
  return counters;
}

ReceptionBook& process_receptions() {
  static ReceptionBook book;
  return book;
}

std::atomic<bool>& critical_phase() {
  static std::atomic<bool> critical{false};
  return critical;
}

Profiler& process_profiler() {
  static Profiler profiler({}, process_registry(), critical_phase());
  return profiler;
}

}  // namespace clustar::nccl_plugin
