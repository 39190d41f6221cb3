// Least bytes first: a coflow takes its place before the first one that has more left. CoflowSim's LCF.
#include "coflow/core/policies/ordered.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_lcf(const Table& table, const MaddOptions& options) {
  const auto key = [](const Table& all, CoflowId id) {
    double left = 0;
    for (const Receiver& receiver : all.coflow(id).receivers) left += receiver.left;
    return left / all.coflow(id).weight;
  };
  return std::make_unique<Madd>(table, key, Madd::Keys::kNow, options);
}

}  // namespace clustar::coflow
