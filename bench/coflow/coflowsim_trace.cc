#include "bench/coflow/coflowsim_trace.h"

#include <algorithm>
#include <vector>

namespace clustar::bench::coflow {

void give_coflowsim_deadlines(Trace& trace) {
  constexpr double kBytesPerSecond = 1 << 27;
  JavaRandom random(17);
  std::vector<double> bytes;
  for (auto& coflow : trace.coflows) {
    if (coflow.flows.empty()) continue;
    bytes.assign(2 * trace.ports, 0);
    for (const auto& flow : coflow.flows) {
      bytes[flow.src] += flow.bytes;
      bytes[trace.ports + flow.dst] += flow.bytes;
    }
    const double alone_s = *std::max_element(bytes.begin(), bytes.end()) / kBytesPerSecond;
    const double deadline_ns = alone_s * (1 + random.next_double()) * 1e9;
    coflow.deadline = Duration(static_cast<Duration::rep>(deadline_ns));
  }
}

}  // namespace clustar::bench::coflow
