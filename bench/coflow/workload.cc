#include "bench/coflow/workload.h"

#include <algorithm>
#include <numeric>

namespace clustar::bench::coflow {

Load load_of(const Trace& trace, double bytes_per_s) {
  std::vector<double> bytes(2 * trace.ports, 0);
  for (const auto& coflow : trace.coflows) {
    for (const auto& flow : coflow.flows) {
      bytes[flow.src] += flow.bytes;
      bytes[trace.ports + flow.dst] += flow.bytes;
    }
  }
  if (trace.coflows.empty()) return {};
  const Duration span = trace.coflows.back().arrival - trace.coflows.front().arrival;
  const double most = std::chrono::duration<double>(span).count() * bytes_per_s;
  if (most <= 0) return {};
  const double all = std::accumulate(bytes.begin(), bytes.end(), 0.0);
  return {*std::max_element(bytes.begin(), bytes.end()) / most, all / most / static_cast<double>(bytes.size())};
}

}  // namespace clustar::bench::coflow
