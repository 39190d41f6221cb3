// Shortest coflow first: by the longest flow, the largest receiver's bytes over the number of senders. CoflowSim's SCF.
#include <algorithm>

#include "coflow/core/policies/ordered.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_scf(const Table& table, const MaddOptions& options) {
  const auto key = [](const Table& all, CoflowId id) {
    const Coflow& coflow = all.coflow(id);
    double most = 0;
    for (const Receiver& receiver : coflow.receivers) most = std::max(most, receiver.left);
    return most / static_cast<double>(coflow.senders.size()) / coflow.weight;
  };
  return std::make_unique<Madd>(table, key, Madd::Keys::kAtArrival, options);
}

}  // namespace clustar::coflow
