// What the machine did besides the processes that are measured: everybody's CPU time, and packets that were dropped
// where no rule of a fabric drops any.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "bench/fabric/fabric.h"
#include "bench/perf/other_cpu.h"
#include "transport/base/result.h"

namespace clustar::bench::lossy {

// Since boot, and since the fabric was made; of use as differences.
struct MachineCounts {
  double busy_s = 0;                  // of all cores: user, system and interrupts, soft ones included; 0 = not known
  std::uint64_t interface_drops = 0;  // rx_dropped of the hosts' interfaces
  std::uint64_t softnet_drops = 0;    // by the cores' input queues, of everybody's packets
};
MachineCounts operator-(const MachineCounts& after, const MachineCounts& before);

// Seconds that the cores were not idle, from the text of /proc/stat. Not what the hypervisor gave to others (steal).
double busy_seconds(const std::string& proc_stat, double ticks_per_second);
// From the text of /proc/net/softnet_stat: the second column of each core's line, in hexadecimal.
std::uint64_t softnet_drops(const std::string& softnet_stat);

Result<MachineCounts> count_machine(const fabric::Fabric& fabric);
// busy_s alone: cheap, so it can stand next to what is timed.
double busy_seconds_now();

// User time of everybody on all cores but of this process and of its children that it waited for.
class OtherCpuWatch {
 public:
  OtherCpuWatch();
  // Since the beginning. Nothing when the kernel does not say.
  std::optional<perf::OtherCpu> now() const;

 private:
  perf::Usage before_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace clustar::bench::lossy
