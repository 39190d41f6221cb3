// What a workload can be played over.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "transport/base/result.h"

namespace clustar::bench::coflow::live {

struct Arm {
  std::string name;
  std::string_view what;
  bool plain = false;                         // kernel sockets, a connection for each flow
  std::string congestion_control{};           // of these; empty: the kernel's
  int rto_min_us = 200'000;                   // of the kernel's TCP, for all arms
  std::string order{};                        // CLUSTAR_SEND_ORDER of others
  bool classes = false;                       // the switches have the order, too (CLUSTAR_SEND_DSCP)
  bool sizes = false;                         // the order is told how large coflows are
  bool coordinated = false;                   // all hosts have the order of one coordinator
  bool shifts = true;                         // which holds periodic jobs back once, and
  bool coordinator_dies = false;              // which is killed now and then
  bool process_per_job = true;                // false: one process per host sends for all jobs
  std::string trace_policy{}, jobs_policy{};  // the simulator's counterpart; empty: none
};
const std::vector<Arm>& arms();

// Comma separated. Errors name what is allowed.
Result<std::vector<Arm>> parse_arms(const std::string& text);

}  // namespace clustar::bench::coflow::live
