// DPDK's environment (EAL) in the user's process: it begins once, cannot begin again, and is never left. What it may
// not do there: its threads run with all signals blocked, signal handlers and the caller's affinity stay as they were,
// no file is made, and what it says goes to our log.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "transport/base/log.h"
#include "transport/base/result.h"

namespace clustar::transport::io::dpdk {

struct EalOptions {
  bool huge_pages = false;
  std::uint32_t memory_mb = 256;
  std::vector<std::string> pci{};  // devices that it may touch, with their arguments; no other one on the bus is
};

// The first call decides; the answer to later ones is the same. Error: DPDK's reason.
Result<void> start_eal(const EalOptions& options);

// Runs `what` on the thread on which DPDK's drivers handle events, before or after such a handler, and returns when it
// is over. Where that thread does not come to it within a second, it runs here.
void run_between_events(const std::function<void()>& what);

// As long as one lives, what DPDK says goes to its log, the latest's; otherwise nowhere.
class EalLog {
 public:
  explicit EalLog(const Log& log);
  ~EalLog();
  EalLog(const EalLog&) = delete;
  EalLog& operator=(const EalLog&) = delete;
};

// What DPDK has complained of in calls of this thread since the latest call of this function: the reason behind a
// number. Empty: nothing.
std::string take_complaints();

}  // namespace clustar::transport::io::dpdk
