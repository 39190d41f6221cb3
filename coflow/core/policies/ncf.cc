// Narrowest coflow first: by the lesser of the numbers of senders and receivers. CoflowSim's NCF.
#include <algorithm>

#include "coflow/core/policies/ordered.h"

namespace clustar::coflow {

std::unique_ptr<Scheduler> make_ncf(const Table& table, const MaddOptions& options) {
  const auto key = [](const Table& all, CoflowId id) {
    const Coflow& coflow = all.coflow(id);
    return static_cast<double>(std::min(coflow.senders.size(), coflow.receivers.size())) / coflow.weight;
  };
  return std::make_unique<Madd>(table, key, Madd::Keys::kAtArrival, options);
}

}  // namespace clustar::coflow
