// What the plugin keeps once per process, whatever NCCL loads first and ends last. It lives until the library is
// unloaded and has no destructors: NCCL's stopEvent has no context, the C API may be asked at any time, and NCCL's
// proxy threads may still run when a process exits without destroying its communicators.
#pragma once

#include <atomic>

#include "nccl_plugin/api/reception_book.h"
#include "nccl_plugin/loss/comm_registry.h"
#include "nccl_plugin/net/message_flow.h"
#include "nccl_plugin/profiler/profiler.h"

namespace clustar::nccl_plugin {

CommRegistry& process_registry();
Profiler& process_profiler();
SendCounters& process_sends();
ReceptionBook& process_receptions();
// Of sends that might lose, where nothing else drives them out.
ReceptionBook& process_exchanges();  // received, by sender
ReceptionBook& process_losses();     // sent, by receiver
// The model is in a phase in which it needs its gradients: set by the user through clustar.h.
std::atomic<bool>& critical_phase();

}  // namespace clustar::nccl_plugin
