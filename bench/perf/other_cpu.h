// How busy others keep the cores of a measurement: the machine's user time there, less that of our own processes.
// Kernel time is left out of both: what the traffic costs in softirqs and kernel threads is booked to nobody in
// particular and could not be told from theirs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace clustar::bench::perf {

// User seconds so far, as one process sees them.
struct Usage {
  std::string machine;              // boot id: the same in all network namespaces and containers; "" = not known
  double own_s = 0;                 // of this process, all its threads
  std::vector<double> core_user_s;  // of everybody, by number of core; empty = not known
};
Usage usage_now();
nlohmann::json to_json(const Usage& usage);
Usage usage_from(const nlohmann::json& message);  // what makes no sense is taken as not known

// From the text of /proc/stat, user and niced.
std::vector<double> core_user_seconds(const std::string& proc_stat, double ticks_per_second);
// Where the calling thread may run.
std::vector<int> allowed_cores();

// One of our processes before and after what was measured.
struct Party {
  Usage before;
  Usage after;
  std::vector<int> cores;  // that it measures on; empty when it only waits
};

struct OtherCpu {
  double used = 0;  // cores, on average
  int cores = 0;    // that were measured on
  double seconds = 0;

  // More than 5 % of a core, and more than the kernel's ticks may pretend in a short time.
  bool disturbs() const { return used > 0.05 && used * seconds > 0.05; }
};

// What others used on `machine` in `seconds`. None when nobody measures there or its times are not known.
std::optional<OtherCpu> other_cpu(const std::vector<Party>& parties, const std::string& machine, double seconds);

// The mean over the rounds of a row, on each machine.
struct OtherCpuSum {
  std::optional<OtherCpu> here;
  std::optional<OtherCpu> server;
};
void add(std::optional<OtherCpu>& sum, const std::optional<OtherCpu>& round);

}  // namespace clustar::bench::perf
