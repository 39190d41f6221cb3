// Strings to pull on the memory plugin (memory_plugin.cc) from a test in the same process.
#pragma once

namespace clustar::tests {

// Exported by the library as the data object `memory_plugin_control`.
struct MemoryPluginControl {
  // Forgets violations, counts and options.
  void (*reset)();
  // The named call fails with `result` once it was made `after` more times, and then always.
  void (*fail)(const char* call, long after, int result);
  // "max_recvs" (8), "busy_every" (5: every fifth isend or irecv of a comm answers NULL), "log_lines" (lines logged at
  // once), "never_connect", "lose_flags" (deliver sends without their last 16 bytes), "short_receive" (report one byte
  // less).
  void (*set)(const char* option, int value);
  long (*count)(const char* what);  // calls by name; also, as they are now, "comms", "contexts", "requests",
                                    // "listeners", "max_in_flight", "max_group"; "optional_receives"
  int (*traffic_class)();           // last one seen
  // Broken rules of NCCL, one per line; empty when there is none. Valid until the next call.
  const char* (*violations)();
};

}  // namespace clustar::tests
