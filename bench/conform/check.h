// What a check is, and the list of all of them by group.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace clustar::bench::conform {

// What a check is given. Everything a run can vary is here.
struct Env {
  std::string plugin;                            // path of the .so
  int version = 0;                               // table to use, 6 .. 12
  std::chrono::milliseconds freeze{60000};       // how long a peer stays stopped
  std::chrono::milliseconds death_bound{10000};  // a peer's death must be an error within this
  std::chrono::milliseconds timeout{30000};      // one check, without freeze and death_bound
  // Calls that may not block (listen, connect, accept, isend, irecv, iflush, test) must return within this: far above
  // what a busy machine takes from us, far below a wait for a peer.
  std::chrono::milliseconds call_bound{2000};
  // The plugin takes host memory for a GPU's: the tester cannot make any. Otherwise checks that need it are skipped.
  bool emulated_gpu = false;
  // Who connects does so from this device; who listens, on device 0. Another one where two reach each other over a wire
  // that a process does not have with itself.
  int connect_device = 0;
  // A transfer that makes no progress for this long is stuck.
  std::chrono::milliseconds stuck_bound{15000};
};

struct Check {
  const char* name;    // group.what
  const char* rule;    // what NCCL relies on, one sentence
  const char* source;  // where NCCL v2.28.9-1 does so, below its src/; or the issue that asks for it
  bool every_version;  // otherwise on the newest table only
  // Runs in a process of its own that has not loaded the plugin. Returns the evidence for a pass; see verdict.h.
  std::string (*run)(const Env&);
  // True for the checks whose length is freeze or death_bound.
  bool waits_for_freeze = false;
  bool waits_for_death = false;
};

std::span<const Check> abi_checks();
std::span<const Check> setup_checks();     // contract: listen, connect, accept, regMr
std::span<const Check> transfer_checks();  // contract: sizes, content, order
std::span<const Check> request_checks();   // contract: requests, tags, test, flush, many connections
std::span<const Check> memory_checks();    // registrations: any range, any order
std::span<const Check> gpu_checks();       // GPU memory
std::span<const Check> thread_checks();
std::span<const Check> error_checks();
std::span<const Check> handshake_checks();
std::span<const Check> death_checks();
std::span<const Check> close_checks();
std::span<const Check> reload_checks();

std::vector<Check> all_checks();

}  // namespace clustar::bench::conform
