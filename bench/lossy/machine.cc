#include "bench/lossy/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

#include "bench/fabric/namespaces.h"
#include "bench/fabric/netlink.h"

namespace clustar::bench::lossy {
namespace {

std::string contents(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

perf::Usage usage() {
  perf::Usage usage = perf::usage_now();
  rusage children{};
  getrusage(RUSAGE_CHILDREN, &children);
  usage.own_s += static_cast<double>(children.ru_utime.tv_sec) + static_cast<double>(children.ru_utime.tv_usec) / 1e6;
  return usage;
}

}  // namespace

MachineCounts operator-(const MachineCounts& after, const MachineCounts& before) {
  return {after.busy_s - before.busy_s, after.interface_drops - before.interface_drops,
          after.softnet_drops - before.softnet_drops};
}

double busy_seconds(const std::string& proc_stat, double ticks_per_second) {
  std::istringstream lines(proc_stat);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    double user = 0, niced = 0, system = 0, idle = 0, waits = 0, irq = 0, softirq = 0;
    if (!(words >> name) || name != "cpu") continue;
    if (!(words >> user >> niced >> system >> idle >> waits >> irq >> softirq)) return 0;
    return (user + niced + system + irq + softirq) / ticks_per_second;
  }
  return 0;
}

std::uint64_t softnet_drops(const std::string& softnet_stat) {
  std::uint64_t sum = 0;
  std::istringstream lines(softnet_stat);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string processed, dropped;
    if (!(words >> processed >> dropped)) continue;
    std::uint64_t value = 0;
    if (std::from_chars(dropped.data(), dropped.data() + dropped.size(), value, 16).ec == std::errc()) sum += value;
  }
  return sum;
}

double busy_seconds_now() { return busy_seconds(contents("/proc/stat"), static_cast<double>(sysconf(_SC_CLK_TCK))); }

Result<MachineCounts> count_machine(const fabric::Fabric& fabric) {
  MachineCounts counts{.busy_s = busy_seconds_now(),
                       .interface_drops = 0,
                       .softnet_drops = softnet_drops(contents("/proc/net/softnet_stat"))};
  for (int host = 0; host < fabric.hosts(); ++host) {
    const auto done = fabric::run_inside(fabric.namespace_of(host), [&]() -> Result<void> {
      const auto links = fabric::read_links();
      if (!links) return tl::unexpected(links.error());
      for (const fabric::Link& link : *links) {
        if (link.name != "lo") counts.interface_drops += link.rx_drops;
      }
      return {};
    });
    if (!done) return tl::unexpected(done.error());
  }
  return counts;
}

OtherCpuWatch::OtherCpuWatch() : before_(usage()), begin_(std::chrono::steady_clock::now()) {}

std::optional<perf::OtherCpu> OtherCpuWatch::now() const {
  const perf::Usage after = usage();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  return perf::other_cpu({{before_, after, perf::allowed_cores()}}, after.machine, seconds.count());
}

}  // namespace clustar::bench::lossy
